package notifyq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/notify"
	"github.com/notifyq/notifyq/internal/relay"
	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/store"
)

// RelayConfig needs a Publisher; every other field has a default.
type RelayConfig struct {
	// Publisher sends the events. One relay publishes all events of its schema, so routing by topic is a Publisher.
	Publisher Publisher
	// Schema holds notifyq's tables. Default "notifyq".
	Schema string
	// ID names the relay in logs and rows, for people; claims go by a fresh token each. Default host, process id and a
	// random part. At most 255 bytes.
	ID string
	// Logger gets the events. Default slog.Default(). No body, key or publisher's error text is ever logged.
	Logger *slog.Logger
	// Client, if set, wakes this relay when its Wake is called, after the commit of a PublishTx, without the way through the
	// database.
	Client *Client
	// PollOnly saves the connection on which the relay hears of events that other processes have written: see
	// WorkerConfig.PollOnly.
	PollOnly bool

	// Concurrency is how many events are on their way at once, and how many the relay claims at most. Default 500, or the
	// Concurrency of the endpoint if the Publisher has a single one; at most 10,000. Throughput is about Concurrency over
	// the time to the acknowledgement.
	Concurrency int
	// PollInterval is how often an idle relay looks for due events. Default 1 s; at least 10 ms.
	PollInterval time.Duration
	// Timeout bounds one attempt, from Start to the acknowledgement. Default 30 s; at least 1 ms.
	Timeout time.Duration
	// Lease is how long a claim is worth: after it, another relay may send what this one has not recorded. It is renewed
	// for what can't be recorded. Default 1 min, or twice the Timeout if that is more; at least 1 s and 100 ms more than
	// the Timeout.
	Lease time.Duration
	// MaxAttempts is after how many failures an event is parked: given up, visible in Stats and ListParked, and brought
	// back by RedriveEvent. Default 0, which never gives up; an Endpoint may say otherwise.
	MaxAttempts int
	// Retry is the backoff after a failure. Default 1 s doubled up to 5 min.
	Retry RetryPolicy
	// ShutdownTimeout is what events on their way get at a stop. Default 10 s. Two seconds more may be needed to write
	// what came of them; give the process 5 s more than this before it is killed.
	ShutdownTimeout time.Duration
	// SampleInterval is how often the outbox is measured for Stats. Default 15 s; at least 100 ms.
	SampleInterval time.Duration
	// EventRetention removes events that were published longer ago. Default 0, which keeps them; at least 1 min.
	EventRetention time.Duration
}

// Relay publishes the events of the outbox: those that workers write with RecordEvents, and those of PublishTx. Any number
// may run on one database. An event is published at least once: it leaves the outbox only after its acknowledgement.
type Relay struct {
	cfg      RelayConfig
	pool     *pgxpool.Pool
	store    *store.Store
	log      *slog.Logger
	engine   atomic.Pointer[relay.Relay]     // nil before Run
	listener atomic.Pointer[notify.Listener] // nil before Run, and with PollOnly
	started  atomic.Bool
}

// NewRelay checks the configuration; it does not touch the database. The relay takes only the address and the credentials
// from pool and opens three connections of its own, or two if it is PollOnly.
func NewRelay(pool *pgxpool.Pool, cfg RelayConfig) (*Relay, error) {
	if pool == nil {
		return nil, invalid("pool", "must not be nil")
	}
	if cfg.Publisher == nil {
		return nil, invalid("Publisher", "must not be nil")
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Relay{cfg: cfg, pool: pool, store: newStore(cfg.Schema), log: cfg.Logger.With("relayId", cfg.ID)}, nil
}

func (cfg RelayConfig) withDefaults() RelayConfig {
	cfg.Schema = cmp.Or(cfg.Schema, DefaultSchema)
	cfg.ID = cmp.Or(cfg.ID, defaultID())
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Concurrency == 0 {
		cfg.Concurrency = cmp.Or(onlyEndpoint(cfg.Publisher).Concurrency, 500)
	}
	cfg.PollInterval = cmp.Or(cfg.PollInterval, time.Second)
	cfg.Timeout = cmp.Or(cfg.Timeout, 30*time.Second)
	cfg.Lease = cmp.Or(cfg.Lease, max(time.Minute, 2*cfg.Timeout))
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, 10*time.Second)
	cfg.SampleInterval = cmp.Or(cfg.SampleInterval, 15*time.Second)
	cfg.Retry = cfg.Retry.withDefaults()
	return cfg
}

func (cfg *RelayConfig) validate() error {
	const day = 24 * time.Hour
	switch {
	case !schema.ValidName(cfg.Schema):
		return invalid("Schema", schemaRule)
	case cfg.Concurrency < 1 || cfg.Concurrency > 10_000:
		return invalid("Concurrency", "must be between 1 and 10,000")
	case onlyEndpoint(cfg.Publisher).Concurrency > 0 && cfg.Concurrency > onlyEndpoint(cfg.Publisher).Concurrency:
		return invalid("Concurrency", fmt.Sprintf("must be at most that of the publisher's only endpoint (%d)", onlyEndpoint(cfg.Publisher).Concurrency))
	case cfg.MaxAttempts < 0 || cfg.MaxAttempts > MaxAttemptsLimit:
		return invalid("MaxAttempts", fmt.Sprintf("must be between 0 and %d", MaxAttemptsLimit))
	case cfg.EventRetention != 0 && cfg.EventRetention < time.Minute:
		return invalid("EventRetention", "must be 0 or at least 1m")
	case cfg.Client != nil && cfg.Client.cfg.Schema != cfg.Schema:
		return invalid("Client", "must work on the relay's schema")
	}
	return errors.Join(
		checkName("ID", cfg.ID, 255),
		checkDuration("PollInterval", cfg.PollInterval, 10*time.Millisecond, time.Hour),
		checkDuration("Timeout", cfg.Timeout, time.Millisecond, day/2),
		checkDuration("Lease", cfg.Lease, max(time.Second, cfg.Timeout+LeaseMargin), day),
		checkDuration("ShutdownTimeout", cfg.ShutdownTimeout, 0, time.Hour),
		checkDuration("SampleInterval", cfg.SampleInterval, 100*time.Millisecond, day),
		cfg.Retry.validate(),
	)
}

// Run publishes until ctx ends, and then drains: nothing more is claimed, what has not started goes back at once, and what
// is on its way gets ShutdownTimeout under a context that the stop does not cancel. What is unacknowledged then stays in
// the outbox, and its claims are given back, without a failure counted, before Run returns: nil if there was none of it,
// and ErrDrainTimeout otherwise.
//
// A database that is away is waited for, at the start too. ErrSchema means that waiting can't help: the schema is missing
// or too old, or the role may not use it. A relay runs once.
func (r *Relay) Run(ctx context.Context) error {
	if !r.started.CompareAndSwap(false, true) {
		return invalid("Relay", "must be run only once")
	}
	own, err := ownPool(ctx, r.pool, 2)
	if err != nil {
		return err
	}
	defer closeWithin(own, time.Second)
	if err := awaitSchema(ctx, own, r.cfg.Schema, r.log, "relay.database_away"); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it started
		}
		return err
	}
	e := relay.New(r.engineConfig(own))
	r.engine.Store(e)
	if r.cfg.Client != nil {
		defer r.cfg.Client.relays.add(e.Wake)()
	}
	if !r.cfg.PollOnly {
		defer r.listen(ctx, own)()
	}
	handedBack, unrecorded := e.Run(ctx)
	if handedBack == 0 && unrecorded == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d events handed back unacknowledged, %d outcomes not recorded", ErrDrainTimeout, handedBack, unrecorded)
}

// listen wakes the relay for what other processes tell.
func (r *Relay) listen(ctx context.Context, own *pgxpool.Pool) (wait func()) {
	e := r.engine.Load()
	l, wait := listen(ctx, notify.Config{
		Store: r.store, Logger: r.log, Connect: connectLike(own), Send: teller(e.Aside, r.store, own),
		Wake: map[string]func(){store.KindEvents: e.Wake},
	})
	r.listener.Store(l)
	return wait
}

// wake makes a relay that runs look for due events now.
func (r *Relay) wake() {
	if e := r.engine.Load(); e != nil {
		e.Wake()
	}
}

// maxRelayPause bounds the pauses of a publisher that is Unavailable.
const maxRelayPause = 30 * time.Second

func (r *Relay) engineConfig(own *pgxpool.Pool) relay.Config {
	cfg := relay.Config{
		Store: r.store, Pool: own, Logger: r.cfg.Logger, ID: r.cfg.ID,
		Concurrency: r.cfg.Concurrency, PollInterval: r.cfg.PollInterval, Timeout: r.cfg.Timeout, Lease: r.cfg.Lease,
		SampleInterval: r.cfg.SampleInterval, ShutdownTimeout: r.cfg.ShutdownTimeout, Retention: r.cfg.EventRetention,
		MaxAttempts: r.cfg.MaxAttempts, Publish: r.publish, Delay: r.delay, GivenUp: ErrLeaseLost, Clean: cleanError,
		Random: rand.Float64, Thresholds: failureThresholds(), MaxPause: maxRelayPause,
	}
	if p, ok := r.cfg.Publisher.(EndpointPublisher); ok {
		cfg.Endpoint = func(e *relay.Event) relay.Endpoint { return r.endpoint(p.Endpoint(eventOf(e))) }
		cfg.Only = r.endpoint(onlyEndpoint(r.cfg.Publisher))
	}
	return cfg
}

func (r *Relay) delay(failures int) time.Duration { return r.cfg.Retry.Delay(failures, rand.Float64()) }

// onlyEndpoint is that of a publisher which has but one; its Name is empty otherwise.
func onlyEndpoint(p Publisher) (only Endpoint) {
	defer func() {
		if recover() != nil { // it wants a real event
			only = Endpoint{}
		}
	}()
	if p, ok := p.(EndpointPublisher); ok {
		only = p.Endpoint(Event{})
	}
	return only
}

// endpoint leaves out what can't be stored; events go there as to no endpoint in particular.
func (r *Relay) endpoint(ep Endpoint) relay.Endpoint {
	if ep.Name == "" {
		return relay.Endpoint{}
	}
	if err := errors.Join(checkName("Endpoint.Name", ep.Name, maxEndpointBytes), checkText("Endpoint.Target", ep.Target, maxEndpointBytes)); err != nil {
		r.log.Error("endpoint.invalid", "rule", err.Error())
		return relay.Endpoint{}
	}
	return relay.Endpoint{
		Name: ep.Name, Target: ep.Target, Concurrency: max(ep.Concurrency, 0), MaxAttempts: max(ep.MaxAttempts, 0),
		DisableAfter: max(ep.DisableAfter, 0),
	}
}

// eventOf gives the event of a job its topic and key, which are not stored.
func eventOf(e *relay.Event) Event {
	out := Event{ID: e.ID, Topic: e.Topic, Key: e.Key, Body: e.Body, CreatedAt: utc(e.CreatedAt), Attempt: int(e.Failures) + 1}
	if e.JobID != uuid.Nil {
		out.Topic, out.Key = topicOf(e.Status), e.JobID.String()
	}
	return out
}

// topicOf is the topic of a job's event by the number of its status.
func topicOf(status int16) string {
	switch statusFromNumber(status) {
	case StatusSent:
		return TopicSent
	case StatusFailed:
		return TopicFailed
	default:
		return TopicDeadLettered
	}
}

// publish makes one attempt: both phases of the publisher, and what its error says.
func (r *Relay) publish(ctx context.Context, e *relay.Event) relay.Result {
	pending, err := r.cfg.Publisher.Start(ctx, eventOf(e))
	if err == nil {
		if pending == nil {
			err = errors.New("the publisher returned neither a Pending nor an error")
		} else {
			err = pending.Wait(ctx)
		}
	}
	if err == nil {
		return relay.Result{Class: relay.Accepted}
	}
	class := resultOf(err)
	after, _ := RetryDelay(err)
	return relay.Result{Class: class, RetryAfter: after, Error: cleanText(string(class)+": "+err.Error(), maxEventErrorBytes)}
}

// maxEventErrorBytes is how much of a publisher's error is kept with the event.
const maxEventErrorBytes = 4096

func resultOf(err error) relay.Class {
	if IsPermanent(err) {
		return relay.Refused
	}
	switch publishClassOf(err) {
	case classUnavailable:
		return relay.Unavailable
	case classNotSent:
		return relay.NotSent
	case classGone:
		return relay.Gone
	case classRejected:
		return relay.Rejected
	default:
		return relay.Unknown
	}
}

// failureThresholds are the numbers of failures by which Stats counts events that fail again and again.
func failureThresholds() []int32 { return []int32{1, 3, 10} }

// OutboxStats is the state of the outbox, measured on its rows.
type OutboxStats struct {
	// Pending are events that are neither published nor parked; Parked were given up, or wait for a disabled endpoint,
	// which Held counts apart.
	Pending, Parked, Held int64
	// Published is what the outbox still keeps of published events.
	Published int64
	// Estimated tells that a count is a lower bound, which those above 100,000 are, or that Published is an estimate.
	Estimated bool
	// OldestPending is the age of the oldest pending event, whatever it waits for. OldestDue is how long the event that is
	// due for longest has waited to be claimed: the signal for more relays. Zero without such an event.
	OldestPending, OldestDue time.Duration
	// Failing counts pending events by how often they failed: at least once, 3 and 10 times.
	Failing map[int]int64
	// DisabledEndpoints are receivers that get nothing until somebody enables them.
	DisabledEndpoints int64
}

// RelayStats is what a relay has done since it started, and its last look at the outbox.
type RelayStats struct {
	Claimed, Published, Failed int64
	Parked                     int64 // of the failed ones
	Released                   int64 // handed back without a failure: at a stop, or with the receiver busy or away
	LeaseLost                  int64 // what was told too late: another relay had the event
	Sending                    int   // now
	// PolledAt is when the relay last looked for due events, or had no room for any. Zero before the first.
	PolledAt time.Time
	// Listening tells that the relay hears of events that other processes have written, as far as it knows.
	Listening bool
	// Outbox is the same for all relays of a schema: alert on the maximum, not on the sum. SampledAt is zero before the
	// first look.
	Outbox    OutboxStats
	SampledAt time.Time
}

// Stats reads counters and the last sample. It does not ask the database.
func (r *Relay) Stats() RelayStats {
	e := r.engine.Load()
	if e == nil {
		return RelayStats{}
	}
	c := e.Counts()
	stats := RelayStats{
		Claimed: c.Claimed, Published: c.Published, Failed: c.Failed, Parked: c.Parked, Released: c.Released,
		LeaseLost: c.LeaseLost, Sending: c.Sending, PolledAt: c.PolledAt,
	}
	if l := r.listener.Load(); l != nil {
		stats.Listening = l.Listening()
	}
	if sample := e.Sample(); sample != nil {
		stats.Outbox, stats.SampledAt = outboxStats(sample.Outbox), sample.At
	}
	return stats
}

func outboxStats(o store.Outbox) OutboxStats {
	stats := OutboxStats{
		Pending: o.Pending, Parked: o.Parked, Held: o.Disabled, Published: o.Published, Estimated: o.Capped || o.Estimated,
		OldestPending: o.OldestPending, OldestDue: o.OldestDue, Failing: make(map[int]int64, len(o.Failing)),
		DisabledEndpoints: o.DisabledEndpoints,
	}
	for i, least := range failureThresholds() {
		stats.Failing[int(least)] = o.Failing[i]
	}
	return stats
}
