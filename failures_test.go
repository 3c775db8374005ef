package notifyq_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/store"
)

// One test for each row of the specification's failure matrix (section 16) that concerns the worker. The rows of the
// API, of webhooks and of rate limits are tested where those are.

// Row "Worker crashes before claiming": job stays PENDING; another worker takes it.
func TestCrashBeforeTheClaimIsCommittedLeavesTheJobToAnother(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	conn, err := b.Pool.Acquire(t.Context())
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), b.sql(`
		update @notification_queue set status = 1, attempt_count = 1, claim_token = $1, locked_by = 'dying', locked_at = now(),
		       leased_until = now() + interval '1 hour', first_attempt_at = now()`), uuid.New())
	require.NoError(t, err)
	require.NoError(t, conn.Conn().PgConn().Conn().Close()) // no goodbye: the process is gone
	conn.Release()

	b.run(accepting())
	job := b.await(id, notifyq.StatusSent)
	require.Equal(t, 1, job.AttemptCount, "nothing was written")
}

// Row "Worker crashes after claiming": recovered after the visibility timeout; attempt counted.
func TestCrashAfterTheClaimCostsAnAttemptAndALease(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	require.Len(t, b.crash(1), 1)
	c := accepting()
	b.run(c)
	b.await(b.schedule(), notifyq.StatusSent)
	require.Equal(t, notifyq.StatusProcessing, b.job(id).Status, "while the lease runs nobody touches it")
	b.expireLeases(id)
	job := b.await(id, notifyq.StatusSent)
	require.Equal(t, 2, job.AttemptCount)
	require.False(t, job.ReconciliationGranted)
	attempts := b.failedAttempts(id)
	require.Len(t, attempts, 1)
	require.Equal(t, "lease_expired", attempts[0].Class)
	require.Equal(t, "crashed", attempts[0].Worker)
	require.Equal(t, 1, c.times()[id])
}

// Row "Worker crashes on the final attempt": one reconciliation attempt with the same key: SENT. (C52)
func TestCrashOnTheLastAttemptGetsOneMore(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(withAttempts(1))
	require.Len(t, b.crash(1), 1)
	b.expireLeases(id)
	c := accepting()
	b.run(c)
	require.Equal(t, id, c.next(t).Key)
	job := b.await(id, notifyq.StatusSent)
	require.Equal(t, 2, job.AttemptCount)
	require.Equal(t, 2, job.MaxAttempts)
	require.True(t, job.ReconciliationGranted)
}

// Row "Worker crashes on the reconciliation attempt too": dead-lettered by recovery; event written. (C52)
func TestCrashOnTheReconciliationAttemptDeadLettersWithItsEvent(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(withAttempts(1))
	for range 2 {
		require.Len(t, b.crash(1), 1)
		b.expireLeases(id)
		_, err := b.store.Recover(t.Context(), b.Pool, 10, true)
		require.NoError(t, err)
	}
	job := b.job(id)
	require.Equal(t, notifyq.StatusDeadLettered, job.Status)
	require.Equal(t, notifyq.ReasonLeaseExpired, job.Reason)
	require.Equal(t, 2, job.AttemptCount)
	events := b.events()
	require.Len(t, events, 1)
	require.Equal(t, id, events[0].Job)
	require.EqualValues(t, 4, events[0].Status)

	redriven, err := b.client.Redrive(t.Context(), id, notifyq.Operation{})
	require.NoError(t, err)
	require.Equal(t, 1, redriven.MaxAttempts, "with the budget it was asked for")
	require.False(t, redriven.ReconciliationGranted, "and a fresh grant")
	require.Equal(t, job.LastError, redriven.LastError)
	b.run(accepting())
	b.await(id, notifyq.StatusSent)
}

// Row "Error before the provider call": handed back at once, attempt refunded. Writing started_at is what fails here.
func TestErrorBeforeTheCallCostsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	mend := b.sabotage("notification_queue", "update", "new.started_at is not null and old.started_at is null", "53100")
	id := b.schedule(parked, withAttempts(1))
	c := accepting()
	b.run(c)
	b.logs.await(t, "worker.start_failed")
	entry := b.logs.awaitJob(t, "job.released", id)
	require.Equal(t, "error before the provider call", entry.attrs["why"])
	require.Empty(t, c.all())
	mend()
	job := b.await(id, notifyq.StatusSent)
	require.Equal(t, 1, job.AttemptCount)
	require.Equal(t, 1, c.next(t).Attempt)
	require.Len(t, c.all(), 1)
}

// Row "Job reclaimed while waiting in the first worker's queue": it skips the job; the new owner delivers it.
func TestJobReclaimedWhileItWaitedIsSkipped(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	cfg := b.config(c)
	cfg.ID, cfg.Concurrency, cfg.BatchSize, cfg.RecoveryInterval = "first", 1, 2, time.Hour
	// By its own clock the lease is soon too short for another delivery, so the start has to ask.
	cfg.Lease = 5 * time.Second
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 4900 * time.Millisecond}
	ids := b.scheduleMany(2)
	b.start(cfg)
	running := c.next(t).Key
	waits := ids[0]
	if waits == running {
		waits = ids[1]
	}
	b.await(waits, notifyq.StatusProcessing)

	second := accepting()
	taken := b.config(second)
	taken.ID = "second"
	b.start(taken)
	b.expireLeases(waits)
	b.await(waits, notifyq.StatusSent)
	<-time.After(100 * time.Millisecond) // a start needs 4,925 ms of the lease
	answerAll(t, answers, 1, nil)
	b.logs.awaitJob(t, "job.claim_lost", waits)
	require.Equal(t, 1, c.times()[running])
	require.Zero(t, c.times()[waits])
	require.Equal(t, 1, second.times()[waits])
}

// Row "Provider fails transiently": retry with backoff.
func TestTransientFailureIsTriedAgainAfterABackoff(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	cfg := b.config(failing(errNo))
	cfg.Retry = notifyq.RetryPolicy{BaseDelay: time.Hour, MaxDelay: time.Hour}
	b.start(cfg)
	b.logs.awaitJob(t, "job.retry", id)
	job := b.job(id)
	require.Equal(t, notifyq.StatusPending, job.Status)
	require.Equal(t, "no", job.LastError)
	require.Equal(t, 1, job.AttemptCount)
	wait := job.NextAttemptAt.Sub(job.UpdatedAt)
	require.GreaterOrEqual(t, wait, 30*time.Minute)
	require.LessOrEqual(t, wait, time.Hour)
	attempts := b.attempts(id)
	require.Len(t, attempts, 1)
	require.Equal(t, "transient", attempts[0].Class)
	require.Equal(t, "no", attempts[0].Error)
}

// The same row: a provider that asks for time gets it, if that is longer than the backoff.
func TestProviderMayAskForMoreTimeThanTheBackoff(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	asked := map[uuid.UUID]time.Duration{
		b.schedule(): 2 * time.Hour, b.schedule(): time.Minute, b.schedule(): 1000 * time.Hour,
	}
	c := newCourier(nil)
	c.answer = func(_ context.Context, d notifyq.Delivery) error { return notifyq.RetryAfter(errNo, asked[d.Key]) }
	cfg := b.config(c)
	cfg.Retry = notifyq.RetryPolicy{BaseDelay: time.Hour, MaxDelay: time.Hour}
	b.start(cfg)
	for id, after := range asked {
		b.logs.awaitJob(t, "job.retry", id)
		job := b.job(id)
		wait := job.NextAttemptAt.Sub(job.UpdatedAt)
		switch after {
		case 2 * time.Hour:
			require.Equal(t, after, wait)
		case time.Minute:
			require.GreaterOrEqual(t, wait, 30*time.Minute)
		default:
			require.Equal(t, 24*time.Hour, wait)
		}
	}
}

// Row "Provider fails permanently": FAILED immediately.
func TestPermanentFailureEndsTheJobAtOnce(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	c := failing(notifyq.Permanent(errNo))
	b.run(c)
	job := b.await(id, notifyq.StatusFailed)
	require.Equal(t, notifyq.ReasonRefused, job.Reason)
	require.Equal(t, "no", job.LastError)
	require.Equal(t, 1, job.AttemptCount)
	require.False(t, job.FailedAt.IsZero())
	require.Len(t, c.all(), 1)
	require.Equal(t, "permanent", b.attempts(id)[0].Class)
}

// Row "Provider keeps failing": DEAD_LETTERED after the last attempt.
func TestJobIsDeadLetteredAfterItsLastAttempt(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(withAttempts(3))
	c := failing(errNo)
	b.run(c)
	job := b.await(id, notifyq.StatusDeadLettered)
	require.Equal(t, notifyq.ReasonExhausted, job.Reason)
	require.Equal(t, 3, job.AttemptCount)
	require.Len(t, c.all(), 3)
	for i, a := range b.attempts(id) {
		require.Equal(t, i+1, a.Number)
		require.Equal(t, "transient", a.Class)
	}
}

// Row "Provider hangs": timed out, retried.
func TestHangingProviderIsCutOffAndTheJobTriedAgain(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	c := newCourier(func(ctx context.Context, d notifyq.Delivery) error {
		if d.Attempt == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	cfg := b.config(c)
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 50 * time.Millisecond}
	b.start(cfg)
	job := b.await(id, notifyq.StatusSent)
	require.Equal(t, 2, job.AttemptCount)
	require.Equal(t, "timeout", b.failedAttempts(id)[0].Class)
}

// Row "Provider succeeds, then worker crashes": resent with the same key; one logical delivery. (C63)
func TestCrashAfterAcceptanceResendsUnderTheSameKey(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(withAttempts(1))
	claims := b.crash(1)
	accepted := map[uuid.UUID]bool{claims[0].ID: true} // the provider has it, and the worker is gone
	logical := len(accepted)
	c := newCourier(nil)
	c.answer = func(_ context.Context, d notifyq.Delivery) error {
		if !accepted[d.Key] {
			logical++
		}
		return nil
	}
	b.expireLeases(id)
	b.run(c)
	b.await(id, notifyq.StatusSent)
	require.Equal(t, 1, logical)
}

// Row "A slow worker finishes after its job was reclaimed": its update is rejected; the new owner's result stands. The
// four ways of C36; late is what the slow worker's provider says, and new what the new owner's says.
func TestLateWorkerCannotOverwriteTheNewOwner(t *testing.T) {
	t.Parallel()
	refuse := notifyq.Permanent(errNo)
	for name, c := range map[string]struct {
		late, owner error
		before      bool // the late one returns while the owner is still at it
	}{
		"it succeeds while the owner works":       {late: nil, owner: refuse, before: true},
		"it fails while the owner works":          {late: refuse, owner: nil, before: true},
		"it succeeds after the owner has refused": {late: nil, owner: refuse},
		"it fails after the owner has sent":       {late: errNo, owner: nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorkerBundle(t)
			slow, late := deaf()
			owner, answer := deaf()
			id := b.schedule()
			cfg := b.config(slow)
			cfg.ID, cfg.BatchSize, cfg.Concurrency, cfg.RecordEvents = "slow", 1, 1, true
			b.start(cfg)
			slow.next(t)
			ocfg := b.config(owner)
			ocfg.ID, ocfg.RecordEvents = "owner", true
			b.start(ocfg)
			b.expireLeases(id)
			owner.next(t)

			if c.before {
				answerAll(t, late, 1, c.late)
				b.logs.awaitJob(t, "job.claim_lost", id)
				require.Equal(t, "owner", b.job(id).LockedBy)
				answerAll(t, answer, 1, c.owner)
			} else {
				answerAll(t, answer, 1, c.owner)
			}
			want := notifyq.StatusSent
			if c.owner != nil {
				want = notifyq.StatusFailed
			}
			job := b.await(id, want)
			if !c.before {
				answerAll(t, late, 1, c.late)
				b.logs.awaitJob(t, "job.claim_lost", id)
			}
			require.Equal(t, job, b.job(id), "nothing of it changes")
			require.Equal(t, 2, job.AttemptCount)
			require.Equal(t, "lease_expired", b.attempts(id)[0].Class, "the history tells what became of the late one")
			require.Len(t, b.events(), 1)
		})
	}
}

// The control of the row above: without the token the late worker overwrites the new owner's claim.
func TestNaiveCompletionOverwritesTheNewOwner(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.scheduleMany(2)
	late := b.crash(2)
	b.expireLeases(ids...)
	_, err := b.store.Recover(t.Context(), b.Pool, 10, false)
	require.NoError(t, err)
	owners := b.crash(2)

	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	tag, err := tx.Exec(t.Context(), b.sql(`update @notification_queue set status = 0, claim_token = null, locked_by = null,
		locked_at = null, leased_until = null where id = $1`), late[0].ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected(), "the naive statement takes the job from its owner")
	require.NoError(t, tx.Rollback(t.Context()))

	batch := &store.Batch{Worker: "late"}
	for _, c := range late {
		batch.Retried = append(batch.Retried, store.Retried{ID: c.ID, Token: c.token, Class: "transient"})
	}
	done, err := b.store.Record(t.Context(), b.Pool, batch)
	require.NoError(t, err)
	require.Empty(t, done, "the fenced one does not")
	batch = &store.Batch{Worker: "owner"}
	for _, c := range owners {
		batch.Sent = append(batch.Sent, store.Sent{ID: c.ID, Token: c.token})
	}
	done, err = b.store.Record(t.Context(), b.Pool, batch)
	require.NoError(t, err)
	require.ElementsMatch(t, ids, done)
}

// Row "Worker crashes between status change and webhook": the event is written with the status, or neither is.
func TestNoStatusWithoutItsEvent(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	mend := b.sabotage("outbox_events", "insert", "true", "53100")
	id := b.schedule()
	c := accepting()
	cfg := b.config(c)
	cfg.RecordEvents = true
	b.start(cfg)
	b.logs.await(t, "worker.record_failed")
	require.Equal(t, notifyq.StatusProcessing, b.job(id).Status)
	mend()
	b.await(id, notifyq.StatusSent)
	require.Len(t, b.events(), 1)
	require.Len(t, c.all(), 1)
}

// Row "Client cancels while a worker claims the same job": exactly one wins. (C41)
func TestCancelAndClaimHaveOneWinner(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	const jobs = 200
	c := accepting()
	for range 2 {
		b.run(c)
	}
	var mu sync.Mutex
	cancelled := make(map[uuid.UUID]bool)
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			for n := range jobs / 4 {
				s, err := b.client.Schedule(t.Context(), notifyq.Notification{
					IdempotencyKey: uuid.NewString(), Recipient: "u@example.test", Channel: "EMAIL", Payload: []byte(`{}`),
				})
				if err != nil {
					t.Errorf("client %d, job %d: %v", i, n, err)
					return
				}
				if _, err := b.client.Cancel(t.Context(), s.ID, notifyq.Operation{}); err == nil {
					mu.Lock()
					cancelled[s.ID] = true
					mu.Unlock()
				}
			}
		})
	}
	clients.Wait()
	b.awaitCount(notifyq.StatusSent, jobs-len(cancelled))
	times := c.times()
	require.Len(t, times, jobs-len(cancelled))
	for id := range cancelled {
		require.Zero(t, times[id], "what was cancelled is never delivered")
		require.Equal(t, notifyq.StatusCancelled, b.job(id).Status)
	}
}

// Row "A redriven job dead-letters again": a second event.
func TestRedrivenJobThatDiesAgainHasASecondEvent(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(withAttempts(1))
	cfg := b.config(failing(errNo))
	cfg.RecordEvents = true
	b.start(cfg)
	b.await(id, notifyq.StatusDeadLettered)
	_, err := b.client.Redrive(t.Context(), id, notifyq.Operation{})
	require.NoError(t, err)
	b.awaitJob(id, func(j notifyq.Job) bool { return j.Status == notifyq.StatusDeadLettered && j.RedriveCount == 1 })
	events := b.events()
	require.Len(t, events, 2)
	require.NotEqual(t, events[0].ID, events[1].ID)
	for i, e := range events {
		require.EqualValues(t, i, e.Round)
		require.EqualValues(t, 4, e.Status)
	}
}

// Row "Database unavailable": workers log worker.poll_failed and keep retrying. Restarts are in outage_test.go.
func TestClaimsThatFailAreTriedAgain(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	mend := b.sabotage("notification_queue", "update", "new.status = 1", "57014")
	id := b.schedule()
	b.run(accepting())
	entry := b.logs.await(t, "worker.poll_failed")
	require.Equal(t, "database error 57014", entry.attrs["error"])
	mend()
	b.logs.await(t, "worker.poll_recovered")
	require.Equal(t, 1, b.await(id, notifyq.StatusSent).AttemptCount)
}

// Row "Worker receives SIGTERM": running jobs finish; unstarted jobs are released at once. More in drain_test.go.
func TestStopFinishesWhatRunsAndReleasesTheRest(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	cfg := b.config(c)
	cfg.Concurrency, cfg.BatchSize = 2, 10
	ids := b.scheduleMany(6)
	w := b.start(cfg)
	running := []uuid.UUID{c.next(t).Key, c.next(t).Key}
	b.awaitCount(notifyq.StatusProcessing, len(ids))
	w.cancel()
	b.awaitCount(notifyq.StatusPending, len(ids)-len(running)) // while the others still run
	answerAll(t, answers, 2, nil)
	require.NoError(t, w.drain())
	require.Len(t, c.all(), 2)
	for _, id := range ids {
		job := b.job(id)
		if id == running[0] || id == running[1] {
			require.Equal(t, notifyq.StatusSent, job.Status)
			continue
		}
		require.Equal(t, notifyq.StatusPending, job.Status)
		require.Zero(t, job.AttemptCount)
		require.True(t, one[bool](b, `select next_attempt_at <= now() from @notification_queue where id = $1`, id))
		b.logs.awaitJob(t, "job.released", id)
	}
}
