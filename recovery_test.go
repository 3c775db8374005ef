package notifyq_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestRecoveredJobIsDueNowAndFree(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	b.crash(1)
	b.expireLeases(id)
	r, err := b.store.Recover(t.Context(), b.Pool, 10, false)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{id}, r.Requeued)
	job := b.job(id)
	require.Equal(t, notifyq.StatusPending, job.Status)
	require.Equal(t, job.UpdatedAt, job.NextAttemptAt)
	require.Zero(t, job.LockedBy)
	require.Zero(t, job.LeasedUntil)
	require.Equal(t, 1, job.AttemptCount, "not refunded: a poison job must end")
	require.NotEmpty(t, job.LastError)
}

func TestRecoveryLeavesLiveLeasesAlone(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	b.crash(1)
	before := b.job(id)
	r, err := b.store.Recover(t.Context(), b.Pool, 10, false)
	require.NoError(t, err)
	require.Empty(t, r.Requeued)
	require.Equal(t, before, b.job(id))
}

// A row that is just being recorded or renewed is locked. Without SKIP LOCKED this waits for ever.
func TestRecoveryPassesOverLockedJobs(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.scheduleMany(3)
	b.crash(3)
	b.expireLeases(ids...)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), b.sql(`select from @notification_queue where id = $1 for update`), ids[0])
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := b.store.Recover(ctx, b.Pool, 10, false)
	require.NoError(t, err)
	require.ElementsMatch(t, ids[1:], r.Requeued)
}

func TestRecoveriesAtOnceShareTheJobs(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.scheduleMany(60)
	b.crash(60)
	b.expireLeases(ids...)
	recovered := make(map[uuid.UUID]int)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range 6 {
		workers.Go(func() {
			for range 6 {
				r, err := b.store.Recover(t.Context(), b.Pool, 7, false)
				if err != nil {
					t.Errorf("recover: %v", err)
				}
				mu.Lock()
				for _, id := range r.Requeued {
					recovered[id]++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	require.Len(t, recovered, len(ids))
	for id, n := range recovered {
		require.Equal(t, 1, n, "job %s", id)
	}
}

// Every crash uses up an attempt, so what crashes every worker ends.
func TestJobThatCrashesEveryWorkerEnds(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(withAttempts(3))
	crashes := 0
	for b.job(id).Status == notifyq.StatusPending {
		require.Len(t, b.crash(1), 1)
		crashes++
		require.LessOrEqual(t, crashes, 4)
		b.expireLeases(id)
		_, err := b.store.Recover(t.Context(), b.Pool, 10, false)
		require.NoError(t, err)
	}
	require.Equal(t, 4, crashes, "three, and the one of the grant")
	require.Equal(t, notifyq.StatusDeadLettered, b.job(id).Status)
	require.Len(t, b.attempts(id), 4)
}

func TestRecoveryNeedsNoProviderOfTheChannel(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	b.crash(1)
	b.expireLeases(id)
	cfg := b.config(nil)
	cfg.Providers = map[notifyq.Channel]notifyq.ProviderConfig{"SMS": {Provider: accepting()}}
	b.start(cfg)
	require.Equal(t, 1, b.await(id, notifyq.StatusPending).AttemptCount)
	entry := b.logs.await(t, "jobs.recovered")
	require.EqualValues(t, 1, entry.attrs["requeued"])
}

// C53: jobs that wait long in memory are not taken from a worker that lives.
func TestWaitingJobsKeepTheirLease(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.scheduleMany(4)
	c, answers := held()
	cfg := b.config(c)
	cfg.Lease, cfg.Concurrency, cfg.BatchSize = 1500*time.Millisecond, 1, 4
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 1400 * time.Millisecond}
	b.start(cfg)
	c.next(t)
	claimed := one[time.Time](b, `select max(leased_until) from @notification_queue`)
	other := b.config(accepting())
	other.Providers = map[notifyq.Channel]notifyq.ProviderConfig{"SMS": {Provider: accepting()}}
	b.start(other) // it recovers all the time
	// Each of the jobs that wait is renewed; the one that runs is not, since it began with a lease that outlasts it.
	require.Eventually(t, func() bool {
		return one[int64](b, `select count(*) from @notification_queue where leased_until > $1`, claimed) == 3
	}, patience, poll)
	close(answers)
	b.awaitCount(notifyq.StatusSent, len(ids))
	for _, id := range ids {
		for _, a := range b.failedAttempts(id) {
			require.NotEqual(t, "lease_expired", a.Class)
		}
	}
}
