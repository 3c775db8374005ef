package notifyq_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func (b *bundle) outbox(t *testing.T) notifyq.OutboxStats {
	t.Helper()
	stats, err := b.client.Stats(t.Context())
	require.NoError(t, err)
	return stats.Outbox
}

// pending stores n events that are due, were made some time ago, and have failed so often.
func (b *bundle) pending(t *testing.T, n int, made string, failures int) []uuid.UUID {
	t.Helper()
	return value[[]uuid.UUID](t, b, `with made as (
		insert into @outbox_events (id, topic, key, body, created_at, next_attempt_at, failure_count)
		select gen_random_uuid(), 'topic', 'key', 'body', now() - $2::text::interval, now() - $2::text::interval, $3
		  from generate_series(1, $1::int) returning id)
		select array_agg(id order by id) from made`, n, made, failures)
}

// sinceTime wants a duration to be the age of what a query returns, by the database's clock.
func (b *bundle) sinceTime(t *testing.T, read func() time.Duration, query string, args ...any) {
	t.Helper()
	age := func() time.Duration {
		micros := value[int64](t, b, `select (extract(epoch from clock_timestamp() - (`+query+`)) * 1000000)::bigint`, args...)
		return time.Duration(micros) * time.Microsecond
	}
	least := age()
	got := read()
	require.GreaterOrEqual(t, got, least)
	require.LessOrEqual(t, got, age())
}

func TestStatsOfAnEmptyOutboxAreZero(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	require.Equal(t, notifyq.OutboxStats{Failing: map[int]int64{1: 0, 3: 0, 10: 0}}, b.outbox(t))
}

func TestStatsCountEventsByWhatBecameOfThem(t *testing.T) { // C112
	t.Parallel()
	b := newBundle(t)
	for _, failures := range []int{0, 0, 1, 2, 3, 9, 10, 11} {
		b.pending(t, 1, "1 hour", failures)
	}
	waiting, claimed := b.pending(t, 2, "1 hour", 0), b.pending(t, 3, "1 hour", 4)
	b.exec(t, `update @outbox_events set next_attempt_at = now() + interval '1 hour' where id = any($1)`, waiting)
	b.exec(t, `update @outbox_events set claim_token = gen_random_uuid(), locked_by = 'r' where id = any($1)`, claimed)
	b.park(t, 4, "a", notifyq.ParkedDisabled)
	b.park(t, 5, "a", notifyq.ParkedExhausted)
	b.park(t, 6, "", notifyq.ParkedRefused)
	published := b.pending(t, 7, "1 hour", 5)
	b.exec(t, `update @outbox_events set published_at = now() where id = any($1)`, published)
	b.endpoint(t, "healthy", "", "")
	b.endpoint(t, "failing", "1 hour", "")
	b.endpoint(t, "off", "1 hour", "1 minute")
	b.endpoint(t, "gone", "", "1 minute")

	stats := b.outbox(t)
	require.Equal(t, notifyq.OutboxStats{
		Pending: 13, Parked: 15, Held: 4, Published: 7, Failing: map[int]int64{1: 9, 3: 7, 10: 2}, DisabledEndpoints: 2,
		OldestPending: stats.OldestPending, OldestDue: stats.OldestDue,
	}, stats)
	b.exec(t, `analyze @outbox_events`)
	stats.OldestPending, stats.OldestDue = 0, 0
	analyzed := b.outbox(t)
	analyzed.OldestPending, analyzed.OldestDue = 0, 0
	require.Equal(t, stats, analyzed, "what can be counted is not estimated")
}

func TestATenantSeesNothingOfTheOutbox(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.pending(t, 3, "1 hour", 3)
	b.endpoint(t, "off", "1 hour", "1 minute")
	for _, tenant := range []string{"acme", ""} {
		stats, err := b.client.ForTenant(tenant).Stats(t.Context())
		require.NoError(t, err)
		require.Zero(t, stats.Outbox)
	}
}

func TestOldestDueIsWhatHasWaitedLongestToBeClaimed(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	due := func() time.Duration { return b.outbox(t).OldestDue }
	old := b.pending(t, 6, "3 days", 1)
	b.exec(t, `update @outbox_events set next_attempt_at = now() + interval '1 hour' where id = $1`, old[0])
	b.exec(t, `update @outbox_events set claim_token = gen_random_uuid(), locked_by = 'r',
		next_attempt_at = now() + interval '1 minute' where id = $1`, old[1])
	b.exec(t, `update @outbox_events set published_at = now() where id = $1`, old[2])
	b.exec(t, `update @outbox_events set parked_at = now(), parked_reason = 'refused' where id = $1`, old[3])
	b.exec(t, `delete from @outbox_events where id = $1`, old[4])
	b.exec(t, `update @outbox_events set next_attempt_at = now() - interval '2 hours' where id = $1`, old[5])
	b.sinceTime(t, due, `select next_attempt_at from @outbox_events where id = $1`, old[5])
	young := b.pending(t, 1, "5 minutes", 0)
	b.sinceTime(t, due, `select next_attempt_at from @outbox_events where id = $1`, old[5])
	b.exec(t, `update @outbox_events set next_attempt_at = now() - interval '1 day' where id = $1`, old[1]) // its lease ran out
	b.sinceTime(t, due, `select next_attempt_at from @outbox_events where id = $1`, old[1])
	b.exec(t, `delete from @outbox_events where id = any($1)`, []uuid.UUID{old[1], old[5]})
	b.sinceTime(t, due, `select next_attempt_at from @outbox_events where id = $1`, young[0])
	b.exec(t, `delete from @outbox_events where id = $1`, young[0])
	require.Zero(t, due())
	require.NotZero(t, b.outbox(t).OldestPending)
}

// Each of these is older than what is due, and all but the first one wait for something.
func TestOldestPendingCountsWhateverAnEventWaitsFor(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"due":                 `next_attempt_at = created_at`,
		"in flight":           `claim_token = gen_random_uuid(), locked_by = 'r', next_attempt_at = now() + interval '1 minute'`,
		"lease ran out":       `claim_token = gen_random_uuid(), locked_by = 'r', next_attempt_at = now() - interval '1 second'`,
		"in backoff":          `failure_count = 1, next_attempt_at = now() + interval '1 minute'`,
		"due after backoff":   `failure_count = 1, next_attempt_at = now() - interval '1 second'`,
		"handed back to wait": `next_attempt_at = now() + interval '1 minute'`,
		"handed back as due":  `next_attempt_at = now() - interval '1 second'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			b.pending(t, 2, "5 minutes", 0)
			ended := b.pending(t, 2, "9 days", 1)
			b.exec(t, `update @outbox_events set published_at = now() where id = $1`, ended[0])
			b.exec(t, `update @outbox_events set parked_at = now(), parked_reason = 'refused' where id = $1`, ended[1])
			oldest := b.pending(t, 1, "2 days", 0)[0]
			b.exec(t, `update @outbox_events set `+change+` where id = $1`, oldest)
			b.sinceTime(t, func() time.Duration { return b.outbox(t).OldestPending }, `select created_at from @outbox_events where id = $1`, oldest)
		})
	}
}

// A redrive at a pace spreads events that were made long ago over the time to come.
func TestOldestPendingCountsWhatWasRedriven(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.park(t, 3, "a", notifyq.ParkedExhausted)
	b.exec(t, `update @outbox_events set created_at = now() - interval '1 hour'`)
	b.exec(t, `update @outbox_events set created_at = now() - interval '2 days' where id = $1`, ids[2])
	_, err := b.client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{PerSecond: 0.01})
	require.NoError(t, err)
	b.sinceTime(t, func() time.Duration { return b.outbox(t).OldestPending }, `select created_at from @outbox_events where id = $1`, ids[2])
}

func TestCountsOfALargeOutboxAreBoundsAndSaySo(t *testing.T) { // C112
	t.Parallel()
	b := newBundle(t)
	const many, bound = 100_010, 100_000
	b.pending(t, 5, "1 hour", 0)
	b.exec(t, `insert into @outbox_events (id, topic, key, body, failure_count)
		select gen_random_uuid(), 't', 'k', 'b', 3 from generate_series(1, $1::int)`, many)
	stats := b.outbox(t)
	require.True(t, stats.Estimated)
	require.EqualValues(t, bound, stats.Pending)
	require.Equal(t, map[int]int64{1: bound, 3: bound, 10: 0}, stats.Failing)

	b.exec(t, `update @outbox_events set parked_at = now(), parked_reason = 'disabled', endpoint = 'a' where failure_count = 3`)
	stats = b.outbox(t)
	require.True(t, stats.Estimated)
	require.EqualValues(t, 5, stats.Pending)
	require.EqualValues(t, bound, stats.Parked)
	require.EqualValues(t, bound, stats.Held)

	b.exec(t, `update @outbox_events set parked_at = null, parked_reason = null, endpoint = null, published_at = now() where failure_count = 3`)
	stats = b.outbox(t)
	require.True(t, stats.Estimated)
	require.InDelta(t, many, stats.Published, many/100, "whether or not it has been analyzed")
	b.exec(t, `analyze @outbox_events`)
	stats = b.outbox(t)
	require.True(t, stats.Estimated)
	require.InDelta(t, many, stats.Published, many/100)
	require.EqualValues(t, 5, stats.Pending)
	require.Zero(t, stats.Parked)
}
