package notifyq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// Section 17: each event tells which worker, job and attempt, and how long it took.
func TestEventsOfAJobAreLoggedWithTheirAttributes(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var sent, refused, dead uuid.UUID
	c := newCourier(nil)
	c.answer = func(_ context.Context, d notifyq.Delivery) error {
		switch d.Key {
		case refused:
			return notifyq.Permanent(errNo)
		case dead:
			return errNo
		default:
			return nil
		}
	}
	ids := b.scheduleMany(3, withAttempts(2))
	sent, refused, dead = ids[0], ids[1], ids[2]
	cfg := b.config(c)
	cfg.ID = "the-worker"
	w := b.start(cfg)
	for _, e := range []struct {
		event   string
		id      uuid.UUID
		attempt int
		level   slog.Level
	}{
		{"job.sent", sent, 1, slog.LevelDebug}, // at 40,000 a second it would be the load
		{"job.fail", refused, 1, slog.LevelWarn},
		{"job.retry", dead, 1, slog.LevelInfo},
		{"job.dead_letter", dead, 2, slog.LevelWarn},
	} {
		entry := b.logs.awaitJob(t, e.event, e.id)
		require.Equal(t, e.level, entry.level, e.event)
		require.EqualValues(t, e.attempt, entry.attrs["attempt"], e.event)
		require.Equal(t, "the-worker", entry.attrs["workerId"], e.event)
		require.Contains(t, entry.attrs, "durationMs", e.event)
		require.Len(t, b.logs.matching(e.event, nil), 1)
	}
	require.NoError(t, w.stop())
	for _, event := range []string{"worker.started", "worker.draining", "worker.drained"} {
		require.Equal(t, "the-worker", b.logs.await(t, event).attrs["workerId"], event)
	}
	require.Contains(t, b.logs.await(t, "worker.drained").attrs, "durationMs")
}

func TestRecoveryAndLossAreLogged(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	cfg := b.config(c)
	cfg.ID, cfg.Concurrency, cfg.BatchSize = "late", 1, 1
	id := b.schedule(withAttempts(1))
	b.start(cfg)
	c.next(t)
	b.expireLeases(id)
	recovered := b.logs.await(t, "jobs.recovered")
	require.EqualValues(t, 1, recovered.attrs["requeued"])
	require.EqualValues(t, 0, recovered.attrs["deadLettered"])
	answerAll(t, answers, 1, nil)
	lost := b.logs.awaitJob(t, "job.claim_lost", id)
	require.Equal(t, "late", lost.attrs["workerId"])
	require.EqualValues(t, 1, lost.attrs["attempt"])
	c.next(t)
	b.expireLeases(id)
	dead := b.logs.awaitJob(t, "job.dead_letter", id)
	require.Equal(t, notifyq.ReasonLeaseExpired, dead.attrs["reason"])
	require.EqualValues(t, 2, dead.attrs["attempt"])
	answerAll(t, answers, 1, nil)
}

// C118
func TestLogsHoldNothingPersonal(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	const canary = "canary"
	hidden := func(s string) error { return errors.New(canary + s) }
	modes := map[string]func(ctx context.Context) error{
		"ok":            func(context.Context) error { return nil },
		"transient":     func(context.Context) error { return hidden("transient") },
		"permanent":     func(context.Context) error { return notifyq.Permanent(hidden("permanent")) },
		"ambiguous":     func(context.Context) error { return notifyq.Ambiguous(hidden("ambiguous")) },
		"misconfigured": func(context.Context) error { return notifyq.Misconfigured(hidden("misconfigured")) },
		"panic":         func(context.Context) error { panic(canary + "-panic") },
		"panic-error":   func(context.Context) error { panic(fmt.Errorf("wrapped: %w", hidden("panic"))) },
		"exit":          func(context.Context) error { runtime.Goexit(); return nil },
		"timeout":       func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("%s: %w", canary, ctx.Err()) },
	}
	jobs := make(map[uuid.UUID]string)
	for mode := range modes {
		id := b.schedule(withAttempts(2), func(n *notifyq.Notification) {
			n.IdempotencyKey, n.Recipient = canary+"-key-"+mode, canary+"@example.test"
			n.Payload, n.Tenant = []byte(`{"`+canary+`":"`+canary+`"}`), "tenant"
		})
		jobs[id] = mode
	}
	release := make(chan struct{})
	stuck := b.schedule(func(n *notifyq.Notification) { n.Recipient = canary + "@example.test" })
	p := notifyq.ProviderFunc(func(ctx context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
		switch {
		case d.Key == stuck && d.Attempt == 1:
			<-release
		case jobs[d.Key] == "misconfigured" && len(b.logs.matching("provider.misconfigured", nil)) > 0:
		case d.Key != stuck:
			return notifyq.Receipt{ProviderID: canary}, modes[jobs[d.Key]](ctx)
		}
		return notifyq.Receipt{ProviderID: canary}, nil
	})
	// Database errors quote the row.
	mend := []func(){
		b.sabotage("notification_outcomes", "insert", "new.status = 2", "53100"),
		b.sabotage("notification_attempts", "insert", "new.class = 'permanent' and new.error is not null", "22001"),
		b.sabotage("notification_queue", "update", "new.status = 1 and new.attempt_count = 1", "57014"),
	}
	cfg := b.config(p).WithFirstPause(20 * time.Millisecond)
	cfg.Lease = 5 * time.Second
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: p, Timeout: 50 * time.Millisecond}
	w := b.start(cfg)
	b.logs.await(t, "worker.poll_failed")
	mend[2]()
	b.logs.await(t, "worker.record_failed")
	mend[0]()
	for id := range jobs {
		b.awaitJob(id, func(j notifyq.Job) bool { return j.Status.Terminal() })
	}
	b.logs.awaitJob(t, "provider.stuck", stuck)
	close(release)
	b.await(stuck, notifyq.StatusSent)
	require.NoError(t, w.stop())
	for _, event := range []string{"provider.panicked", "provider.exited", "provider.stuck", "provider.misconfigured", "job.sent"} {
		require.NotEmpty(t, b.logs.matching(event, nil), event)
	}
	require.NotContains(t, b.logs.written(), canary)
}

func TestUnreachableDatabaseIsLoggedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	cfg := b.config(accepting())
	cfg.Client = nil
	pool := poolAt(t, "postgres://canary-user:canary-password@127.0.0.1:1/none?connect_timeout=1")
	worker, err := notifyq.NewWorker(pool, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	b.logs.await(t, "worker.database_away")
	cancel()
	require.NoError(t, <-done)
	require.NotContains(t, b.logs.written(), "canary")
}
