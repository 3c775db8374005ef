package notifyq

import (
	"cmp"
	"context"
	"encoding/base64"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq/internal/store"
)

// events.go is what a Client does with the outbox.

// PublishTx writes an event of the caller's own into the outbox, in the caller's transaction: it is published at least
// once if that commits, and never if it does not. Topic is 1 to 255 bytes, Key at most 255, without control characters;
// Body is 1 byte to 1 MiB and is sent as it is; CreatedAt and Attempt are not the caller's. A nil ID is made up; an ID that was used before is an error of the
// database. The id under which it is published is returned.
func (c *Client) PublishTx(ctx context.Context, tx pgx.Tx, e Event) (uuid.UUID, error) {
	if c.broken != nil {
		return uuid.Nil, c.broken
	}
	if err := checkName("Topic", e.Topic, MaxTopicBytes); err != nil {
		return uuid.Nil, err
	}
	if e.Topic == TopicSent || e.Topic == TopicFailed || e.Topic == TopicDeadLettered {
		return uuid.Nil, invalid("Topic", "must not be one of notifyq's own")
	}
	if err := checkText("Key", e.Key, MaxEventKeyBytes); err != nil {
		return uuid.Nil, err
	}
	if len(e.Body) == 0 || len(e.Body) > MaxEventBodyBytes {
		return uuid.Nil, invalid("Body", "must be 1 byte to 1 MiB")
	}
	if e.ID != uuid.Nil && e.ID.Version() == 8 {
		return uuid.Nil, invalid("ID", "must not be a version 8 UUID, as notifyq's own events have")
	}
	id, err := c.store.Publish(ctx, tx, e.ID, e.Topic, e.Key, e.Body)
	if err != nil {
		return uuid.Nil, databaseError("publish", err)
	}
	return id, nil
}

// ParkedReason says why an event is parked.
type ParkedReason string

// The reasons.
const (
	ParkedExhausted ParkedReason = "exhausted" // it failed as often as it may
	ParkedRefused   ParkedReason = "refused"   // its publisher says that no repetition can help
	ParkedDisabled  ParkedReason = "disabled"  // its endpoint is disabled
)

// ParkedEvent is an event that is not sent any more unless it is redriven.
type ParkedEvent struct {
	ID        uuid.UUID
	Topic     string
	Key       string
	JobID     uuid.UUID // zero for a service's own event
	Endpoint  string    // empty where the publisher has none
	Reason    ParkedReason
	Failures  int
	LastError string // cleaned and cut at 4 KB
	CreatedAt time.Time
	ParkedAt  time.Time
}

// ParkedParams choose parked events.
type ParkedParams struct {
	Endpoint string // empty: of all
	Limit    int    // default 50, 1 to 1,000
	Cursor   string // ParkedPage.Next of the page before; empty for the first
}

// ParkedPage is one page of parked events, by id. Only an empty Next ends the list.
type ParkedPage struct {
	Events []ParkedEvent
	Next   string
}

// ListParked reads one page of parked events. It is not for a client made by ForTenant: the outbox has no tenants.
func (c *Client) ListParked(ctx context.Context, p ParkedParams) (ParkedPage, error) {
	if err := c.wholeOutbox(); err != nil {
		return ParkedPage{}, err
	}
	p.Limit = cmp.Or(p.Limit, 50)
	if p.Limit < 1 || p.Limit > 1000 {
		return ParkedPage{}, invalid("Limit", "must be between 1 and 1,000")
	}
	if err := checkText("Endpoint", p.Endpoint, maxEndpointBytes); err != nil {
		return ParkedPage{}, err
	}
	after, err := openParkedCursor(p.Cursor)
	if err != nil {
		return ParkedPage{}, err
	}
	rows, err := c.store.Parked(ctx, c.pool, p.Endpoint, after, p.Limit)
	if err != nil {
		return ParkedPage{}, databaseError("list", err)
	}
	page := ParkedPage{Events: make([]ParkedEvent, len(rows))}
	for i := range rows {
		page.Events[i] = parkedFromRow(&rows[i])
	}
	if len(rows) == p.Limit {
		last := rows[len(rows)-1].ID
		page.Next = base64.RawURLEncoding.EncodeToString(last[:])
	}
	return page, nil
}

const maxEndpointBytes = 255

func openParkedCursor(cursor string) (id uuid.UUID, err error) {
	if cursor == "" {
		return uuid.Nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) != len(id) || base64.RawURLEncoding.EncodeToString(b) != cursor {
		return uuid.Nil, invalid("Cursor", "must be the Next of a page")
	}
	return uuid.UUID(b), nil
}

func parkedFromRow(r *store.ParkedEvent) ParkedEvent {
	e := ParkedEvent{
		ID: r.ID, Topic: r.Topic, Key: r.Key, JobID: r.JobID, Endpoint: r.Endpoint, Reason: ParkedReason(r.Reason),
		Failures: int(r.Failures), LastError: r.LastError, CreatedAt: utc(r.CreatedAt), ParkedAt: utc(r.ParkedAt),
	}
	if r.JobID != uuid.Nil {
		e.Topic, e.Key = topicOf(r.Status), r.JobID.String()
	}
	return e
}

// RedriveEvent brings one parked event back: due now, under the same id, with a fresh budget of attempts. ErrNotFound if
// there is no such event, ErrNotParked if it is not parked.
func (c *Client) RedriveEvent(ctx context.Context, id uuid.UUID, op Operation) error {
	if err := cmp.Or(c.wholeOutbox(), checkOperation(op)); err != nil {
		return err
	}
	var done, found bool
	err := c.inTx(ctx, func(q store.Querier) (err error) {
		done, found, err = c.store.RedriveEvent(ctx, q, id, store.By{Actor: op.Actor, Reason: op.Reason})
		return err
	})
	switch {
	case err != nil:
		return databaseError("redrive", err)
	case !found:
		return ErrNotFound
	case !done:
		return ErrNotParked
	}
	c.log.Info("event.redriven", "eventId", id, "actor", op.Actor)
	c.relays.wake()
	return nil
}

// RedriveEventsParams choose the events of a bulk redrive. Its zero value means the 100 first parked ones, due now.
type RedriveEventsParams struct {
	// Endpoint and Reason narrow the choice where they are not empty.
	Endpoint string
	Reason   ParkedReason
	// Since leaves out what was parked before it.
	Since time.Time
	// Limit is how many at most: default 100, at most 1,000. Call again until Remaining is 0.
	Limit int
	// PerSecond spaces the due times, so that what has piled up does not fall upon the receiver at once. A further paced
	// call goes on where the one before ends. Zero makes all due now; at most 1,000,000.
	PerSecond float64
	Operation Operation
}

// RedriveEvents brings parked events back, by id. Calls at the same time share them.
func (c *Client) RedriveEvents(ctx context.Context, p RedriveEventsParams) (Redriven, error) {
	filter, every, err := c.parkedFilter(&p)
	if err != nil {
		return Redriven{}, err
	}
	done, _, err := c.redriveEvents(ctx, filter, p.Limit, every, p.Operation)
	return done, err
}

func (c *Client) parkedFilter(p *RedriveEventsParams) (f store.ParkedFilter, every time.Duration, err error) {
	p.Limit = cmp.Or(p.Limit, 100)
	switch p.Reason {
	case "", ParkedExhausted, ParkedRefused, ParkedDisabled:
	default:
		return f, 0, invalid("Reason", "must be exhausted, refused or disabled")
	}
	if p.Limit < 1 || p.Limit > maxRedrive {
		return f, 0, invalid("Limit", "must be between 1 and 1,000")
	}
	if every, err = pace(p.PerSecond); err != nil {
		return f, 0, err
	}
	err = cmp.Or(c.wholeOutbox(), checkText("Endpoint", p.Endpoint, maxEndpointBytes), checkTime("Since", p.Since), checkOperation(p.Operation))
	return store.ParkedFilter{Endpoint: p.Endpoint, Reason: string(p.Reason), Since: p.Since}, every, err
}

// pace is the time between two redrives.
func pace(perSecond float64) (time.Duration, error) {
	switch {
	case perSecond == 0:
		return 0, nil
	case !(perSecond > 0 && perSecond <= 1_000_000): // NaN is neither
		return 0, invalid("PerSecond", "must be between 0 and 1,000,000")
	case perSecond < 0.001:
		return 0, invalid("PerSecond", "must be 0 or at least 0.001")
	}
	return time.Duration(float64(time.Second) / perSecond), nil
}

func (c *Client) redriveEvents(ctx context.Context, f store.ParkedFilter, limit int, every time.Duration, op Operation) (done Redriven, last uuid.UUID, err error) {
	var step store.EventsRedriven
	err = c.inTx(ctx, func(q store.Querier) (err error) {
		step, err = c.store.RedriveEvents(ctx, q, f, limit, every, store.By{Actor: op.Actor, Reason: op.Reason})
		return err
	})
	if err != nil {
		return Redriven{}, uuid.Nil, databaseError("redrive", err)
	}
	done = Redriven{Retried: step.Back, Remaining: step.Left}
	c.log.Info("events.redriven", "endpoint", f.Endpoint, "retried", done.Retried, "remaining", done.Remaining, "actor", op.Actor)
	if done.Retried > 0 {
		c.relays.wake()
	}
	return done, step.Last, nil
}

// EndpointStatus is what is known of a receiver of events.
type EndpointStatus struct {
	Name         string
	Failures     int64     // since the last success
	FailingSince time.Time // zero: it does not fail
	DisabledAt   time.Time // zero: it is enabled
	Reason       string    // of the disabling: gone or failing
}

// Endpoints lists the receivers that relays have met, the first 1,000 by name.
func (c *Client) Endpoints(ctx context.Context) ([]EndpointStatus, error) {
	if err := c.wholeOutbox(); err != nil {
		return nil, err
	}
	rows, err := c.store.ListEndpoints(ctx, c.pool, 1000)
	if err != nil {
		return nil, databaseError("list", err)
	}
	list := make([]EndpointStatus, len(rows))
	for i, r := range rows {
		list[i] = EndpointStatus{
			Name: r.Name, Failures: r.Failures, FailingSince: utc(r.FailingSince), DisabledAt: utc(r.DisabledAt), Reason: r.Reason,
		}
	}
	return list, nil
}

// EnableParams say which endpoint to enable.
type EnableParams struct {
	Name string
	// PerSecond spaces what it missed, as RedriveEventsParams.PerSecond does.
	PerSecond float64
	// Limit is how many events to bring back at most, for callers that have no time for all: call again while as many came
	// back. Zero is all; at most 1,000,000. A relay brings back by itself, unpaced, what is still held some seconds later.
	Limit     int
	Operation Operation
}

// EnableEndpoint lets events go to an endpoint again, and brings back what it missed: the events that were held for it,
// and those that were given up since it began to fail. It returns how many. It can be called again after an error, and goes
// on with what is left. What was given up before an endpoint recovered by itself is for RedriveEvents. Relays notice
// within seconds. ErrNotFound if no relay has met an endpoint of this name.
func (c *Client) EnableEndpoint(ctx context.Context, p EnableParams) (int, error) {
	every, err := pace(p.PerSecond)
	if err = cmp.Or(err, c.wholeOutbox(), checkName("Name", p.Name, maxEndpointBytes), checkOperation(p.Operation)); err != nil {
		return 0, err
	}
	if p.Limit < 0 || p.Limit > maxEnable {
		return 0, invalid("Limit", "must be between 0 and 1,000,000")
	}
	var since time.Time
	var found bool
	err = c.inTx(ctx, func(q store.Querier) (err error) {
		since, found, err = c.store.EnableEndpoint(ctx, q, p.Name, store.By{Actor: p.Operation.Actor, Reason: p.Operation.Reason})
		return err
	})
	switch {
	case err != nil:
		return 0, databaseError("enable", err)
	case !found:
		return 0, ErrNotFound
	}
	c.log.Info("endpoint.enabled", "endpoint", p.Name, "actor", p.Operation.Actor)
	missed := store.ParkedFilter{Endpoint: p.Name, OrHeld: true, Reason: string(ParkedDisabled)}
	if !since.IsZero() {
		// The first failures may have been recorded before the endpoint was known to fail.
		missed.Reason, missed.Since = "", since.Add(-time.Minute)
	}
	limit := cmp.Or(p.Limit, math.MaxInt)
	total, err := c.bringBack(ctx, missed, limit, every, p.Operation)
	if err != nil || total == limit || since.IsZero() { // at the limit there may be more, which since is needed to find
		return total, err
	}
	return total, databaseError("enable", c.store.NothingMissed(ctx, c.pool, p.Name, since))
}

// maxEnable bounds EnableParams.Limit.
const maxEnable = 1_000_000

// bringBack redrives what is chosen, in steps, up to limit.
func (c *Client) bringBack(ctx context.Context, f store.ParkedFilter, limit int, every time.Duration, op Operation) (total int, err error) {
	for total < limit {
		done, last, err := c.redriveEvents(ctx, f, min(limit-total, maxRedrive), every, op)
		total += done.Retried
		if err != nil || done.Retried == 0 {
			return total, err
		}
		f.After = last
	}
	return total, nil
}

// wholeOutbox refuses a client that is limited to a tenant.
func (c *Client) wholeOutbox() error {
	switch {
	case c.broken != nil:
		return c.broken
	case c.tenant != nil:
		return invalid("Tenant", "must not be set: the outbox is all tenants'")
	}
	return nil
}
