package notifyq_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// eventHistory is what event retention finds: the old events may go, the others must stay.
type eventHistory struct {
	old, kept []uuid.UUID
}

// eventHistory stores events of jobs and of a service's own that were made long ago. None of them is due, so that a
// relay leaves alone what is pending.
func (b *workerBundle) eventHistory() (h eventHistory) {
	b.t.Helper()
	const each = 5
	cfg := b.config(accepting())
	cfg.RecordEvents = true
	jobs := b.scheduleMany(each)
	w := b.start(cfg)
	b.awaitCount(notifyq.StatusSent, each)
	require.NoError(b.t, w.stop())
	for _, id := range jobs {
		b.age(id, 40*day, 40*day)
	}
	random := func(change func(id *uuid.UUID)) (ids []uuid.UUID) {
		for range each {
			id := uuid.New()
			change(&id)
			ids = append(ids, id)
		}
		b.exec(`insert into @outbox_events (id, topic, key, body) select id, 'topic', 'key', 'body' from unnest($1::uuid[]) id`, ids)
		return ids
	}
	groups := [][]uuid.UUID{
		one[[]uuid.UUID](b, `select array_agg(id) from @outbox_events`),
		random(func(*uuid.UUID) {}),
		random(func(id *uuid.UUID) { id[0] = 0x00 }), // as if of 1970
		random(func(id *uuid.UUID) { id[0] = 0xff }), // as if of a time to come
	}
	b.exec(`update @outbox_events set created_at = now() - interval '40 days', next_attempt_at = now() + interval '1 day'`)
	for _, ids := range groups {
		require.Len(b.t, ids, each)
		h.old, h.kept = append(h.old, ids[:2]...), append(h.kept, ids[2:]...)
		b.exec(`update @outbox_events set published_at = now() - interval '31 days' where id = any($1)`, ids[:2])
		b.exec(`update @outbox_events set published_at = now() - interval '29 days' where id = $1`, ids[2])
		b.exec(`update @outbox_events set parked_at = now() - interval '39 days', parked_reason = 'exhausted' where id = $1`, ids[3])
	}
	return h
}

func (b *workerBundle) awaitOnlyOldEventsGone(h eventHistory) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		return one[int64](b, `select count(*) from @outbox_events where id = any($1)`, h.old) == 0
	}, patience, poll)
	require.ElementsMatch(b.t, h.kept, one[[]uuid.UUID](b, `select array_agg(id) from @outbox_events`))
	var tables []string
	for _, entry := range b.logs.matching("housekeeping.pruned", nil) {
		tables = append(tables, entry.attrs["table"].(string))
	}
	require.Subset(b.t, []string{"events", "own events"}, tables)
	require.True(b.t, slices.Contains(tables, "events"))
}

// C112: what was published goes after its time, what was not never does, whatever its id seems to say.
func TestWorkerRemovesOnlyEventsThatWerePublishedLongAgo(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	h := b.eventHistory()
	cfg := b.config(accepting())
	cfg.EventRetention = retention
	b.start(cfg)
	b.awaitOnlyOldEventsGone(h)
}

func TestRelayRemovesOnlyEventsThatWerePublishedLongAgo(t *testing.T) { // C112
	t.Parallel()
	b := newWorkerBundle(t)
	h := b.eventHistory()
	b.relay(acknowledging(), func(c *notifyq.RelayConfig) { c.EventRetention = retention })
	b.awaitOnlyOldEventsGone(h)
}

// A worker with a publisher prunes once, not beside its own relay.
func TestWorkerWithARelayRemovesOnlyEventsThatWerePublishedLongAgo(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	h := b.eventHistory()
	cfg := b.config(accepting())
	cfg.Publisher, cfg.EventRetention = acknowledging(), retention
	b.start(cfg)
	b.awaitOnlyOldEventsGone(h)
}

// More than one step of each table, with what is kept in between.
func TestEventRetentionGoesOnUntilAllIsDone(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	b.exec(`insert into @outbox_events (id, topic, key, body, published_at, next_attempt_at)
		select case when i % 2 = 0 then gen_random_uuid()
		       else (lpad(to_hex((extract(epoch from now() - interval '40 days') * 1000)::bigint), 12, '0')
		             || '70008' || lpad(to_hex(i), 15, '0'))::uuid end,
		       'topic', 'key', 'body', case when i % 50 < 2 then now() else now() - interval '31 days' end, now() - interval '40 days'
		  from generate_series(1, 5000) i`)
	kept := one[[]uuid.UUID](b, `select array_agg(id) from @outbox_events where published_at > now() - interval '1 day'`)
	require.Len(t, kept, 200)
	b.relay(acknowledging(), func(c *notifyq.RelayConfig) { c.EventRetention = retention })
	require.Eventually(t, func() bool { return one[int64](b, `select count(*) from @outbox_events`) == 200 }, patience, poll)
	require.ElementsMatch(t, kept, one[[]uuid.UUID](b, `select array_agg(id) from @outbox_events`))
}

// What is pruned while a relay is down is none of what it has to send.
func TestARelayFindsAllItHasToSendAfterPruning(t *testing.T) { // C112
	t.Parallel()
	b := newWorkerBundle(t)
	h := b.eventHistory()
	cfg := b.config(accepting())
	cfg.EventRetention = retention
	w := b.start(cfg)
	b.awaitOnlyOldEventsGone(h)
	require.NoError(t, w.stop())
	b.exec(`update @outbox_events set next_attempt_at = now() where published_at is null and parked_at is null`)
	pending := one[[]uuid.UUID](b, `select array_agg(id) from @outbox_events where published_at is null and parked_at is null`)
	require.Len(t, pending, 4)
	p := acknowledging()
	b.relay(p)
	var sent []uuid.UUID
	for range pending {
		sent = append(sent, b.next(p).ID)
	}
	require.ElementsMatch(t, pending, sent)
}
