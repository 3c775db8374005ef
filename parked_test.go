package notifyq_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// park stores n parked events of a service's own and returns them in the order of the list.
func (b *bundle) park(t *testing.T, n int, endpoint string, reason notifyq.ParkedReason) []uuid.UUID {
	t.Helper()
	return value[[]uuid.UUID](t, b, `with made as (
		insert into @outbox_events (id, topic, key, body, failure_count, last_error, parked_at, parked_reason, endpoint)
		select gen_random_uuid(), 'topic', 'key', 'body', 3, 'rejected: 500', now(), $2, nullif($3, '') from generate_series(1, $1::int)
		returning id)
		select array_agg(id order by id) from made`, n, string(reason), endpoint)
}

// unparked are three events that are none of ListParked's: one that is due, one that is claimed and one that is published.
func (b *bundle) unparked(t *testing.T) []uuid.UUID {
	t.Helper()
	ids := b.park(t, 3, "a", notifyq.ParkedExhausted)
	b.exec(t, `update @outbox_events set parked_at = null, parked_reason = null, endpoint = null where id = any($1)`, ids)
	b.exec(t, `update @outbox_events set claim_token = gen_random_uuid(), locked_by = 'r',
		next_attempt_at = now() + interval '1 hour' where id = $1`, ids[1])
	b.exec(t, `update @outbox_events set published_at = now() where id = $1`, ids[2])
	return ids
}

// listed pages through the list of parked events.
func (b *bundle) listed(t *testing.T, p notifyq.ParkedParams, between func(page int)) (ids []uuid.UUID, sizes []int) {
	t.Helper()
	for {
		page, err := b.client.ListParked(t.Context(), p)
		require.NoError(t, err)
		sizes = append(sizes, len(page.Events))
		for _, e := range page.Events {
			ids = append(ids, e.ID)
		}
		if p.Cursor = page.Next; p.Cursor == "" {
			return ids, sizes
		}
		if between != nil {
			between(len(sizes))
		}
	}
}

func byID(ids ...uuid.UUID) []uuid.UUID {
	slices.SortFunc(ids, func(x, y uuid.UUID) int { return strings.Compare(x.String(), y.String()) })
	return ids
}

func TestParkedEventsAreListedPageByPage(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	page, err := b.client.ListParked(t.Context(), notifyq.ParkedParams{})
	require.NoError(t, err)
	require.Empty(t, page.Events)
	require.Empty(t, page.Next)

	b.unparked(t)
	first := b.park(t, 20, "a", notifyq.ParkedDisabled)
	other := b.park(t, 24, "b", notifyq.ParkedExhausted)
	none := b.park(t, 16, "", notifyq.ParkedRefused)
	all := byID(slices.Concat(first, other, none)...)
	for _, c := range []struct {
		p     notifyq.ParkedParams
		want  []uuid.UUID
		sizes []int
	}{
		{notifyq.ParkedParams{}, all, []int{50, 10}},
		{notifyq.ParkedParams{Limit: 1000}, all, []int{60}},
		{notifyq.ParkedParams{Limit: 20}, all, []int{20, 20, 20, 0}},
		{notifyq.ParkedParams{Limit: 7, Endpoint: "a"}, first, []int{7, 7, 6}},
		{notifyq.ParkedParams{Limit: 12, Endpoint: "b"}, other, []int{12, 12, 0}},
		{notifyq.ParkedParams{Endpoint: "unknown"}, nil, []int{0}},
	} {
		ids, sizes := b.listed(t, c.p, nil)
		require.Equal(t, c.want, ids, "%+v", c.p)
		require.Equal(t, c.sizes, sizes, "%+v", c.p)
	}
}

func TestNoParkedEventIsListedTwiceWhileTheListChanges(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.park(t, 12, "a", notifyq.ParkedExhausted)
	got, _ := b.listed(t, notifyq.ParkedParams{Limit: 3}, func(page int) {
		if page > 1 {
			return
		}
		for _, id := range []uuid.UUID{ids[1], ids[7], ids[9]} {
			require.NoError(t, b.client.RedriveEvent(t.Context(), id, notifyq.Operation{}))
		}
		b.exec(t, `update @outbox_events set parked_at = now(), parked_reason = 'refused', endpoint = 'b' where id = any($1)`, []uuid.UUID{ids[1], ids[9]})
	})
	require.Equal(t, slices.DeleteFunc(ids, func(id uuid.UUID) bool { return id == ids[7] }), got)
}

func TestAParkedEventIsListedWithAllThatIsKnown(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	own := b.park(t, 1, "a", notifyq.ParkedExhausted)[0]
	b.exec(t, `update @outbox_events set topic = 'order.paid', key = 'customer 7', created_at = '2026-01-02 03:04:05.678901+02',
		parked_at = '2026-01-03 00:00:00+02'`)
	jobs := map[notifyq.Status]uuid.UUID{}
	for status, reason := range map[notifyq.Status]string{
		notifyq.StatusSent: "", notifyq.StatusFailed: notifyq.ReasonRefused, notifyq.StatusDeadLettered: notifyq.ReasonExhausted,
	} {
		jobs[status] = b.schedule(t, email(string(status))).ID
		b.end(t, status, reason, jobs[status])
	}
	b.exec(t, `insert into @outbox_events (id, job_id, status, redrive_count, body, parked_at, parked_reason)
		select @event_id(id, status, redrive_count), id, status, redrive_count, 'x', now(), 'refused' from @notification_outcomes`)
	page, err := b.client.ListParked(t.Context(), notifyq.ParkedParams{})
	require.NoError(t, err)
	require.Len(t, page.Events, 4)
	for _, e := range page.Events {
		require.Equal(t, time.UTC, e.CreatedAt.Location())
		if e.ID == own {
			require.Equal(t, notifyq.ParkedEvent{
				ID: own, Topic: "order.paid", Key: "customer 7", Endpoint: "a", Reason: notifyq.ParkedExhausted, Failures: 3,
				LastError: "rejected: 500", CreatedAt: time.Date(2026, 1, 2, 1, 4, 5, 678901000, time.UTC),
				ParkedAt: time.Date(2026, 1, 2, 22, 0, 0, 0, time.UTC),
			}, e)
			continue
		}
		topic := map[uuid.UUID]string{
			jobs[notifyq.StatusSent]: notifyq.TopicSent, jobs[notifyq.StatusFailed]: notifyq.TopicFailed,
			jobs[notifyq.StatusDeadLettered]: notifyq.TopicDeadLettered,
		}[e.JobID]
		require.NotEmpty(t, topic)
		require.Equal(t, notifyq.ParkedEvent{
			ID: e.ID, Topic: topic, Key: e.JobID.String(), JobID: e.JobID, Reason: notifyq.ParkedRefused,
			CreatedAt: e.CreatedAt, ParkedAt: e.ParkedAt,
		}, e)
		require.EqualValues(t, 8, e.ID.Version())
	}
}

func TestListParkedRefusesWrongParameters(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.park(t, 1, "a", notifyq.ParkedExhausted)[0]
	encoded := base64.RawURLEncoding.EncodeToString(id[:])
	for field, params := range map[string][]notifyq.ParkedParams{
		"Limit":    {{Limit: -1}, {Limit: 1001}},
		"Endpoint": {{Endpoint: "\x00"}, {Endpoint: "\xff"}, {Endpoint: strings.Repeat("e", 256)}},
		"Cursor": {
			{Cursor: " "},
			{Cursor: "canary"},
			{Cursor: encoded[1:]},
			{Cursor: encoded + "A"},
			{Cursor: encoded + "=="},
			{Cursor: encoded[:8] + "\n" + encoded[8:]},
			{Cursor: encoded[:21] + "_"}, // the same bytes, and bits that no encoder leaves
			{Cursor: base64.StdEncoding.EncodeToString(id[:])},
			{Cursor: base64.RawURLEncoding.EncodeToString(id[:15])},
			{Cursor: base64.RawURLEncoding.EncodeToString(append(id[:], 0))},
			{Cursor: id.String()},
			{Cursor: strings.Repeat("A", 1<<20)},
		},
	} {
		for _, p := range params {
			page, err := b.client.ListParked(t.Context(), p)
			requireInvalid(t, err, field)
			require.NotContains(t, err.Error(), "canary")
			require.Zero(t, page)
		}
	}
}

// outboxCalls is each call of the client about the whole outbox.
func outboxCalls(c *notifyq.Client, id uuid.UUID, op notifyq.Operation) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"ListParked":   func(ctx context.Context) error { _, err := c.ListParked(ctx, notifyq.ParkedParams{}); return err },
		"RedriveEvent": func(ctx context.Context) error { return c.RedriveEvent(ctx, id, op) },
		"RedriveEvents": func(ctx context.Context) error {
			_, err := c.RedriveEvents(ctx, notifyq.RedriveEventsParams{Operation: op})
			return err
		},
		"Endpoints": func(ctx context.Context) error { _, err := c.Endpoints(ctx); return err },
		"EnableEndpoint": func(ctx context.Context) error {
			_, err := c.EnableEndpoint(ctx, notifyq.EnableParams{Name: "a", Operation: op})
			return err
		},
	}
}

func TestTheOutboxIsNoTenants(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.park(t, 1, "a", notifyq.ParkedDisabled)[0]
	b.endpoint(t, "a", "2 hours", "1 hour")
	before := b.outboxText(t)
	for _, tenant := range []string{"acme", "", "a\nb"} {
		for name, call := range outboxCalls(b.client.ForTenant(tenant), id, notifyq.Operation{}) {
			err := call(t.Context())
			require.Error(t, err, name)
			requireInvalid(t, err, "Tenant")
		}
	}
	require.Equal(t, before, b.outboxText(t))
	require.Zero(t, b.count(t, "@operations"))
}

// outboxText is all that an operator may change, for comparison.
func (b *bundle) outboxText(t *testing.T) string {
	t.Helper()
	return value[string](t, b, `select coalesce((select string_agg(e::text, E'\n' order by id) from @outbox_events e), '')
		|| coalesce((select string_agg(w::text, E'\n' order by name) from @webhook_endpoints w), '')`)
}

// What is personal stands in the events, and each call is made so that it works, is refused, and fails in the database.
func TestNoErrorAndNoLogHoldsWhatIsInAnEvent(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var errs []error
	saw := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	plant := func() uuid.UUID {
		ids := b.park(t, 2, "a", notifyq.ParkedDisabled)
		b.exec(t, `update @outbox_events set topic = 'canary-topic', key = 'canary-key', body = 'canary-body', last_error = 'canary-error'`)
		return ids[0]
	}
	try := func(event func() uuid.UUID) {
		for _, op := range []notifyq.Operation{{Actor: "ann", Reason: "canary-reason"}, {Actor: "canary-actor\n"}, {Reason: "canary-reason\x00"}} {
			for name := range outboxCalls(b.client, uuid.Nil, op) {
				saw(outboxCalls(b.client, event(), op)[name](t.Context()))
			}
		}
		_, err := b.client.ListParked(t.Context(), notifyq.ParkedParams{Cursor: "canary-cursor"})
		saw(err)
		_, err = b.client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{Reason: "canary-reason"})
		saw(err)
	}
	b.endpoint(t, "a", "2 hours", "1 hour")
	try(plant)
	require.Len(t, errs, 8)
	// A constraint whose DETAIL quotes the whole row.
	id := plant()
	b.exec(t, `alter table @outbox_events add constraint broken check (false) not valid`)
	try(func() uuid.UUID { return id })
	require.Len(t, errs, 19, "three calls more")
	require.Contains(t, fmt.Sprint(errs), "database error 23514 (constraint broken)")
	for _, err := range errs {
		require.NotContains(t, err.Error(), "canary")
	}
	logs := b.logs.String()
	require.NotContains(t, logs, "canary")
	for _, event := range []string{"event.redriven", "events.redriven", "endpoint.enabled"} {
		require.Contains(t, logs, event)
	}
	b.exec(t, `alter table @outbox_events drop constraint broken`)
}

func TestErrorsOfTheOutboxAreDescribedNotQuoted(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	unreachable := openPool(t, "postgres://canary-user:canary-word@127.0.0.1:1/canary-db?connect_timeout=1", nil)
	for name, call := range outboxCalls(b.newClient(t, unreachable, notifyq.ClientConfig{}), uuid.New(), notifyq.Operation{}) {
		err := call(t.Context())
		require.ErrorContains(t, err, "notifyq: ", name)
		require.NotContains(t, err.Error(), "canary", name)
		require.NotErrorIs(t, err, notifyq.ErrNotFound)
	}
}
