package notifyq_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// age moves a job and all that belongs to it into the past, its id too, which is made of the time. finished says how long
// ago it ended.
func (b *workerBundle) age(id uuid.UUID, created, finished time.Duration) (aged uuid.UUID) {
	b.t.Helper()
	aged = id
	ms := binary.BigEndian.Uint64(id[:8])>>16 - uint64(created.Milliseconds())
	binary.BigEndian.PutUint64(aged[:8], ms<<16|binary.BigEndian.Uint64(id[:8])&0xffff)
	b.exec(`update @notifications set id = $2, created_at = now() - make_interval(secs => $3),
		scheduled_at = least(scheduled_at, now() - make_interval(secs => $3)) where id = $1`, id, aged, created.Seconds())
	b.exec(`update @notification_queue set id = $2 where id = $1`, id, aged)
	b.exec(`update @notification_outcomes set id = $2, finished_at = now() - make_interval(secs => $3) where id = $1`, id, aged, finished.Seconds())
	b.exec(`update @notification_attempts set id = $2 where id = $1`, id, aged)
	b.exec(`update @outbox_events set job_id = $2, id = @event_id($2, status, redrive_count) where job_id = $1`, id, aged)
	return aged
}

func (b *workerBundle) exists(id uuid.UUID) bool {
	b.t.Helper()
	return one[bool](b, `select exists (select from @notifications where id = $1)`, id)
}

const (
	day       = 24 * time.Hour
	retention = 30 * day
)

func TestRetentionRemovesWhatEndedLongAgoWithItsAttempts(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	dead := b.schedule(withAttempts(2))
	w := b.run(failing(errNo))
	b.await(dead, notifyq.StatusDeadLettered)
	require.NoError(t, w.stop())
	sent := b.schedule()
	w = b.run(accepting())
	b.await(sent, notifyq.StatusSent)
	require.NoError(t, w.stop())
	key := b.job(sent).IdempotencyKey
	dead, sent = b.age(dead, 40*day, 31*day), b.age(sent, 40*day, 31*day)

	cfg := b.config(accepting())
	cfg.Retention = retention
	b.start(cfg)
	entry := b.logs.await(t, "housekeeping.pruned")
	require.EqualValues(t, 2, entry.attrs["rows"])
	require.False(t, b.exists(dead))
	require.False(t, b.exists(sent))
	require.Zero(t, one[int64](b, `select count(*) from @notification_attempts`))
	require.Zero(t, one[int64](b, `select count(*) from @notification_outcomes`))

	again, err := b.client.Schedule(t.Context(), notifyq.Notification{
		IdempotencyKey: key, Recipient: "another@example.test", Channel: "EMAIL", Payload: []byte(`{}`),
	})
	require.NoError(t, err, "the key is free again")
	require.False(t, again.Replayed)
}

// C35: what counts is when it ended, not when it was made.
func TestRetentionKeepsWhatIsYoungOrUnfinished(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	kept := map[string]uuid.UUID{}
	kept["sent a second ago"] = b.schedule()
	w := b.run(accepting())
	b.await(kept["sent a second ago"], notifyq.StatusSent)
	require.NoError(t, w.stop())
	kept["dead a second ago"] = b.schedule(withAttempts(1))
	w = b.run(failing(errNo))
	b.await(kept["dead a second ago"], notifyq.StatusDeadLettered)
	require.NoError(t, w.stop())
	kept["due tomorrow"] = b.schedule(func(n *notifyq.Notification) { n.Delay = day })
	kept["claimed"] = b.schedule()
	require.Len(t, b.crash(1), 1)
	for what, id := range kept {
		kept[what] = b.age(id, 40*day, time.Second)
	}
	old := b.schedule()
	w = b.run(accepting())
	b.await(old, notifyq.StatusSent)
	require.NoError(t, w.stop())
	old = b.age(old, 41*day, 31*day)

	cfg := b.config(accepting())
	cfg.Retention = retention
	b.start(cfg)
	b.logs.await(t, "housekeeping.pruned")
	require.False(t, b.exists(old), "or nothing was tested")
	for what, id := range kept {
		require.True(t, b.exists(id), what)
	}
	require.Len(t, b.attempts(kept["dead a second ago"]), 1)
}

// More than one batch, with what is kept in between.
func TestRetentionGoesOnUntilAllIsDone(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	b.exec(`with id as (
			select (lpad(to_hex((extract(epoch from now() - interval '40 days') * 1000)::bigint), 12, '0') || '7000'
			       || '8' || lpad(to_hex(g), 15, '0'))::uuid as id, g from generate_series(1, 2500) g
		), n as (
			insert into @notifications (id, idempotency_key, request_fingerprint, recipient, recipient_key, channel, payload,
			                            priority, scheduled_at, max_attempts, created_at)
			select id, 'old-' || g, '', 'u', 'u', 'EMAIL', '1', 2, now() - interval '40 days', 4, now() - interval '40 days' from id
		)
		insert into @notification_outcomes (id, finished_at, status, attempt_count, max_attempts, tenant)
		select id, case when g % 100 = 0 then now() else now() - interval '35 days' end, 5, 0, 4, '' from id`)
	cfg := b.config(accepting())
	cfg.Retention = retention
	b.start(cfg)
	require.EqualValues(t, 2475, b.logs.await(t, "housekeeping.pruned").attrs["rows"])
	require.EqualValues(t, 25, one[int64](b, `select count(*) from @notifications`))
}

func TestNothingIsRemovedByDefault(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	cfg := b.config(accepting())
	cfg.RecordEvents = true
	w := b.start(cfg)
	b.await(id, notifyq.StatusSent)
	require.NoError(t, w.stop())
	id = b.age(id, 4000*day, 4000*day)
	b.exec(`update @outbox_events set published_at = now() - interval '4000 days'`)
	// A round of housekeeping begins with recovery, so the second recovery ends the first round.
	b.run(accepting())
	for range 2 {
		stale := b.schedule(onChannel("PIGEON"))
		b.exec(`update @notification_queue set status = 1, attempt_count = 1, claim_token = gen_random_uuid(), locked_by = 'x',
			locked_at = now(), leased_until = now() - interval '1 s', first_attempt_at = now() where id = $1`, stale)
		b.await(stale, notifyq.StatusPending)
	}
	require.True(t, b.exists(id))
	require.Len(t, b.events(), 1)
}

func TestEventRetentionRemovesOnlyWhatWasPublishedLongAgo(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.scheduleMany(3)
	cfg := b.config(accepting())
	cfg.RecordEvents = true
	w := b.start(cfg)
	b.awaitCount(notifyq.StatusSent, 3)
	require.NoError(t, w.stop())
	for i := range ids {
		ids[i] = b.age(ids[i], 40*day, 40*day)
	}
	b.exec(`update @outbox_events set published_at = now() - interval '31 days' where job_id = $1`, ids[0])
	b.exec(`update @outbox_events set published_at = now() - interval '29 days' where job_id = $1`, ids[1])
	cfg.EventRetention = retention
	b.start(cfg)
	entry := b.logs.await(t, "housekeeping.pruned")
	require.Equal(t, "events", entry.attrs["table"])
	require.EqualValues(t, 1, entry.attrs["rows"])
	var left []uuid.UUID
	for _, e := range b.events() {
		left = append(left, e.Job)
	}
	require.ElementsMatch(t, ids[1:], left, "the job stays, and so does an event that nobody has seen")
	require.True(t, b.exists(ids[0]))
}
