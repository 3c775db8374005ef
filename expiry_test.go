package notifyq_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// expire lets the time of waiting jobs be over.
func (b *workerBundle) expire(ids ...uuid.UUID) {
	b.t.Helper()
	for _, id := range ids {
		b.exec(`with n as (update @notifications set scheduled_at = now() - interval '2 hours', expires_at = now() - interval '1 hour' where id = $1)
			update @notification_queue set expires_at = now() - interval '1 hour' where id = $1`, id)
	}
}

func expiring(n *notifyq.Notification) { n.ExpiresAt = time.Now().Add(2 * time.Hour) }

func TestJobsExpireWhereverTheyWait(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	require.NoError(t, b.client.PauseChannel(t.Context(), "SMS", notifyq.Operation{}))
	later := func(n *notifyq.Notification) { n.Delay = time.Hour }
	waiting := map[string]uuid.UUID{
		"for a provider that nobody has": b.schedule(onChannel("PIGEON"), expiring),
		"for a channel to resume":        b.schedule(onChannel("SMS"), expiring),
		"for its due time":               b.schedule(later, expiring),
	}
	cfg := b.config(failing(errNo))
	cfg.RecordEvents = true
	cfg.Retry = notifyq.RetryPolicy{BaseDelay: time.Hour, MaxDelay: time.Hour}
	waiting["for a retry"] = b.schedule(expiring)
	never := b.schedule(onChannel("PIGEON"))
	b.start(cfg)
	b.logs.awaitJob(t, "job.retry", waiting["for a retry"])
	for _, id := range waiting {
		b.expire(id)
	}
	for where, id := range waiting {
		job := b.await(id, notifyq.StatusFailed)
		require.Equal(t, notifyq.ReasonExpired, job.Reason, where)
		b.logs.awaitJob(t, "job.fail", id)
		if where == "for a retry" {
			require.Equal(t, 1, job.AttemptCount)
			require.Equal(t, "no", job.LastError)
		} else {
			require.Zero(t, job.AttemptCount, where)
		}
		_, err := b.client.Redrive(t.Context(), id, notifyq.Operation{})
		require.ErrorIs(t, err, notifyq.ErrNotRedrivable)
	}
	require.Equal(t, notifyq.StatusPending, b.job(never).Status)
	require.Len(t, b.events(), len(waiting))
}

func TestExpiredJobIsNotClaimed(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(expiring)
	b.expire(id)
	require.Empty(t, b.crash(1))
}

// Its time may be over between the claim and the start.
func TestJobThatExpiresWhileItWaitsInMemoryIsNotDelivered(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	cfg := b.config(c)
	cfg.Concurrency, cfg.BatchSize, cfg.RecordEvents = 1, 2, true
	first := b.schedule(withPriority(notifyq.PriorityHigh))
	expires := time.Now().Add(500 * time.Millisecond)
	second := b.schedule(func(n *notifyq.Notification) { n.ExpiresAt = expires })
	b.start(cfg)
	c.next(t)
	b.awaitJob(second, func(j notifyq.Job) bool { return j.Status == notifyq.StatusProcessing })
	require.Eventually(t, func() bool { return one[bool](b, `select now() > $1`, expires) }, patience, poll)
	answerAll(t, answers, 1, nil)
	b.await(first, notifyq.StatusSent)
	job := b.await(second, notifyq.StatusFailed)
	require.Equal(t, notifyq.ReasonExpired, job.Reason)
	require.Zero(t, job.AttemptCount, "the attempt that the claim counted is refunded")
	require.Len(t, c.all(), 1)
	require.Len(t, b.events(), 2)
}

func TestDeliveryThatRunsIsNotExpired(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	id := b.schedule(expiring)
	b.run(c)
	c.next(t)
	b.expire(id)
	over, err := b.store.Expire(t.Context(), b.Pool, 10, false)
	require.NoError(t, err)
	require.Empty(t, over)
	answerAll(t, answers, 1, nil)
	b.await(id, notifyq.StatusSent)
}
