package notifyq_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/store"
)

// C63. What each way to end a call means under the two policies.
func TestPolicyDecidesWhatFollowsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	answer := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	for name, c := range map[string]struct {
		class string
		first func(ctx context.Context) error
		known bool // that it was not accepted
	}{
		"ambiguous": {"ambiguous", answer(notifyq.Ambiguous(errNo)), false},
		"timeout":   {"timeout", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, false},
		"panic":     {"panic", func(context.Context) error { panic("oh") }, false},
		"exit":      {"panic", func(context.Context) error { runtime.Goexit(); return nil }, false},
		"transient": {"transient", answer(errNo), true},
		// The call was cut off, but the provider knows that nothing was written.
		"marked timeout": {"transient", func(ctx context.Context) error {
			<-ctx.Done()
			return notifyq.RetryAfter(ctx.Err(), time.Millisecond)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorkerBundle(t)
			park, retry := b.schedule(parked), b.schedule()
			p := newCourier(func(ctx context.Context, d notifyq.Delivery) error {
				if d.Attempt == 1 {
					return c.first(ctx)
				}
				return nil
			})
			cfg := b.config(p)
			cfg.RecordEvents = true
			cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: p, Timeout: 50 * time.Millisecond}
			b.start(cfg)
			require.Equal(t, 2, b.await(retry, notifyq.StatusSent).AttemptCount)
			require.Equal(t, c.class, b.failedAttempts(retry)[0].Class)
			if c.known {
				require.Equal(t, 2, b.await(park, notifyq.StatusSent).AttemptCount)
				return
			}
			job := b.await(park, notifyq.StatusDeadLettered)
			require.Equal(t, notifyq.ReasonAmbiguous, job.Reason)
			require.Equal(t, 1, job.AttemptCount)
			require.Equal(t, map[uuid.UUID]int{park: 1, retry: 2}, p.times())
			require.Equal(t, c.class, b.attempts(park)[0].Class)
			require.Len(t, b.events(), 2)
		})
	}
}

func TestAbandonedCallOfAParkedJobIsNotRepeated(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := deaf()
	id := b.schedule(parked)
	cfg := b.config(c)
	cfg.Lease = 2 * time.Second
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 20 * time.Millisecond}
	b.start(cfg)
	job := b.await(id, notifyq.StatusDeadLettered)
	require.Equal(t, notifyq.ReasonAmbiguous, job.Reason)
	answerAll(t, answers, 1, nil)
	require.Equal(t, job, b.job(id))
}

func TestPermanentRefusalIsKnownUnderEitherPolicy(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(parked)
	b.run(failing(notifyq.Permanent(errNo)))
	require.Equal(t, notifyq.ReasonRefused, b.await(id, notifyq.StatusFailed).Reason)
}

// A worker that dies may have begun the call or not. started_at, written before it, tells.
func TestRecoveryParksOnlyCallsThatHadBegun(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	begun, waiting, retried := b.schedule(parked), b.schedule(parked), b.schedule()
	claims := b.crash(3)
	require.Len(t, claims, 3)
	for _, c := range claims {
		if c.ID != waiting {
			done, err := b.store.Start(t.Context(), b.Pool, store.Claims{IDs: []uuid.UUID{c.ID}, Tokens: []uuid.UUID{c.token}}, time.Minute)
			require.NoError(t, err)
			require.Len(t, done.IDs, 1)
		}
	}
	b.expireLeases(begun, waiting, retried)
	c := accepting()
	cfg := b.config(c)
	cfg.RecordEvents = true
	b.start(cfg)
	job := b.await(begun, notifyq.StatusDeadLettered)
	require.Equal(t, notifyq.ReasonAmbiguous, job.Reason)
	require.Equal(t, notifyq.ReasonAmbiguous, b.logs.awaitJob(t, "job.dead_letter", begun).attrs["reason"])
	require.Equal(t, 2, b.await(waiting, notifyq.StatusSent).AttemptCount)
	require.Equal(t, 2, b.await(retried, notifyq.StatusSent).AttemptCount)
	require.Zero(t, c.times()[begun])
	require.Len(t, b.events(), 3)
}

func TestStartIsWrittenBeforeTheCallOfAParkedJob(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(parked)
	started := make(chan bool, 1)
	b.run(newCourier(func(ctx context.Context, d notifyq.Delivery) error {
		var at *time.Time
		err := b.Pool.QueryRow(ctx, b.sql(`select started_at from @notification_queue where id = $1`), d.Key).Scan(&at)
		started <- err == nil && at != nil
		return err
	}))
	require.True(t, <-started)
	b.await(id, notifyq.StatusSent)
}

// The mark is fenced like everything else: who has lost the claim does not start.
func TestParkedJobThatWasLostIsNotStarted(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(parked)
	old := b.crash(1)[0]
	b.expireLeases(id)
	_, err := b.store.Recover(t.Context(), b.Pool, 10, false)
	require.NoError(t, err)
	b.crash(1)
	done, err := b.store.Start(t.Context(), b.Pool, store.Claims{IDs: []uuid.UUID{id}, Tokens: []uuid.UUID{old.token}}, time.Minute)
	require.NoError(t, err)
	require.Empty(t, done)
	require.Zero(t, one[int64](b, `select count(*) from @notification_queue where started_at is not null`))
}
