package notifyq_test

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// recipientLock is the advisory lock under which a recipient of the empty tenant is admitted.
func recipientLock(recipient string) int64 {
	sum := sha256.Sum256(append(make([]byte, 8), recipient...))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// A process that is frozen in the middle of an admission holds the locks of its recipients. It holds up nobody else.
func TestFrozenAdmissionHoldsUpOnlyItsRecipients(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	frozen, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = frozen.Exec(t.Context(), `select pg_advisory_xact_lock($1)`, recipientLock("frozen@example.test"))
	require.NoError(t, err)

	c := accepting()
	cfg := b.config(c)
	cfg.RateLimits = []notifyq.RateLimit{{Max: 100, Window: time.Minute}}
	to := func(recipient string) func(*notifyq.Notification) {
		return func(n *notifyq.Notification) { n.Recipient = recipient }
	}
	held := b.scheduleMany(5, to("frozen@example.test"))
	others := b.scheduleMany(50, to("free@example.test"))
	b.start(cfg)
	b.awaitCount(notifyq.StatusSent, len(others))
	requireOnce(t, c, others)
	b.logs.await(t, "worker.recipients_busy")
	require.NoError(t, frozen.Rollback(t.Context()))
	b.awaitCount(notifyq.StatusSent, len(others)+len(held))
	requireOnce(t, c, append(others, held...))
	for _, id := range held {
		require.Equal(t, 1, b.job(id).AttemptCount, "waiting used no attempt")
	}
}

// What the limit sends back leaves places, which are filled at once and not a batch a poll: others wait behind it.
func TestBacklogOverItsLimitIsPutAsideWithoutWaitingForPolls(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c := accepting()
	cfg := b.config(c)
	cfg.RateLimits = []notifyq.RateLimit{{Max: 2, Window: time.Hour}}
	cfg.PollInterval, cfg.PollOnly, cfg.BatchSize, cfg.Concurrency = time.Hour, true, 20, 2
	b.scheduleMany(200, func(n *notifyq.Notification) { n.Recipient = "hot@example.test" })
	behind := b.schedule(func(n *notifyq.Notification) { n.Recipient = "other@example.test" })
	b.start(cfg)
	b.await(behind, notifyq.StatusSent)
	b.awaitCount(notifyq.StatusSent, 3)
}
