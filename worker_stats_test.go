package notifyq_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestWorkerCountsWhatItDid(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	answers := map[string]error{`"permanent"`: notifyq.Permanent(errNo), `"never"`: errNo}
	hold := make(chan struct{})
	p := newCourier(func(ctx context.Context, d notifyq.Delivery) error {
		if string(d.Payload) == `"hold"` {
			<-hold
		}
		return answers[string(d.Payload)]
	})
	payload := func(text string) func(*notifyq.Notification) {
		return func(n *notifyq.Notification) { n.Payload = []byte(`"` + text + `"`) }
	}
	b.schedule()
	b.schedule(payload("permanent"))
	b.schedule(payload("never"), withAttempts(3))
	cfg := b.config(p)
	cfg.RateLimits = []notifyq.RateLimit{{Max: 100, Window: time.Hour}}
	worker, err := notifyq.NewWorker(b.Pool, cfg)
	require.NoError(t, err)
	require.Zero(t, worker.Stats())
	w := b.startRun(worker.Run)
	b.awaitCount(notifyq.StatusSent, 1)
	b.awaitCount(notifyq.StatusFailed, 1)
	b.awaitCount(notifyq.StatusDeadLettered, 1)
	b.schedule(payload("hold"))
	require.Eventually(t, func() bool { return worker.Stats().Running == 1 }, patience, poll)
	stats := worker.Stats()
	require.False(t, stats.Draining)
	require.WithinDuration(t, time.Now(), stats.PolledAt, time.Minute)
	w.cancel()
	require.Eventually(t, func() bool { return worker.Stats().Draining }, patience, poll)
	close(hold)
	require.NoError(t, w.stop())
	stats = worker.Stats()
	stats.PolledAt = time.Time{}
	require.Equal(t, notifyq.WorkerStats{Claimed: 6, Sent: 2, Retried: 2, Failed: 1, DeadLettered: 1, Draining: true}, stats)
}
