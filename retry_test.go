package notifyq_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestRetryDelayIsSpreadEvenlyOverTheUpperHalf(t *testing.T) {
	t.Parallel()
	p := notifyq.RetryPolicy{BaseDelay: time.Second, MaxDelay: time.Minute}
	const samples, buckets = 10_000, 10
	var counts [buckets]int
	for range samples {
		d := p.Delay(3, rand.Float64())
		require.GreaterOrEqual(t, d, 2*time.Second)
		require.Less(t, d, 4*time.Second)
		counts[int((d-2*time.Second)*buckets/(2*time.Second))]++
	}
	for i, n := range counts {
		require.InDelta(t, samples/buckets, n, 200, "tenth %d", i) // 6.7 standard deviations
	}
}

func TestRetryDelayDoublesUpToTheCap(t *testing.T) {
	t.Parallel()
	p := notifyq.RetryPolicy{BaseDelay: time.Second, MaxDelay: 10 * time.Second}
	for attempt, full := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 8, 5: 10, 6: 10} {
		require.Equal(t, full*time.Second/2, p.Delay(attempt, 0), "attempt %d", attempt)
		require.Equal(t, full*time.Second*3/4, p.Delay(attempt, 0.5), "attempt %d", attempt)
	}
}

// C51: base·2^attempt overflows before a cap that is applied afterwards.
func TestRetryDelayNeverOverflows(t *testing.T) {
	t.Parallel()
	const almostOne = 1 - 1.0/(1<<53)
	for _, p := range []notifyq.RetryPolicy{
		{BaseDelay: time.Millisecond, MaxDelay: 24 * time.Hour},
		{BaseDelay: time.Second, MaxDelay: 5 * time.Minute},
		{BaseDelay: 24 * time.Hour, MaxDelay: 24 * time.Hour},
	} {
		for attempt := 30; attempt <= notifyq.MaxAttemptsLimit; attempt++ {
			for _, random := range []float64{0, 0.5, almostOne} {
				d := p.Delay(attempt, random)
				require.GreaterOrEqual(t, d, p.MaxDelay/2, "attempt %d", attempt)
				require.LessOrEqual(t, d, p.MaxDelay, "attempt %d", attempt)
			}
		}
	}
}

// C51, through the worker: late attempts wait within the cap, and two that fail together do not return together.
func TestLateAttemptsWaitForAtMostTheCap(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.scheduleMany(9, withAttempts(1000), func(n *notifyq.Notification) { n.Delay = time.Hour })
	for i, attempts := range []int{29, 32, 33, 61, 62, 63, 99, 998, 998} {
		b.exec(`insert into @notification_attempts (id, redrive_count, number, started_at, ended_at, class, worker)
			select $1, 0, g, now(), now(), 'transient', 'w' from generate_series(1, $2) g`, ids[i], attempts)
		b.exec(`update @notification_queue set attempt_count = $2, first_attempt_at = now(), next_attempt_at = now() where id = $1`,
			ids[i], attempts)
	}
	cfg := b.config(failing(errors.New("busy")))
	cfg.Retry = notifyq.RetryPolicy{BaseDelay: time.Second, MaxDelay: 5 * time.Minute}
	b.start(cfg)
	waits := make(map[time.Duration]bool)
	for _, id := range ids {
		job := b.awaitJob(id, func(j notifyq.Job) bool { return j.LastError == "busy" })
		require.Equal(t, notifyq.StatusPending, job.Status)
		wait := job.NextAttemptAt.Sub(job.UpdatedAt)
		require.GreaterOrEqual(t, wait, 150*time.Second)
		require.LessOrEqual(t, wait, 300*time.Second)
		waits[wait] = true
	}
	require.Len(t, waits, len(ids), "every wait is another one")
}

func TestWhatAnAttemptLeadsTo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		permanent         bool
		attempt, attempts int
		want              notifyq.Status
	}{
		{false, 1, 4, notifyq.StatusPending},
		{false, 3, 4, notifyq.StatusPending},
		{false, 4, 4, notifyq.StatusDeadLettered},
		{false, 1, 1, notifyq.StatusDeadLettered},
		{false, 5, 4, notifyq.StatusDeadLettered},
		{true, 1, 4, notifyq.StatusFailed},
		{true, 4, 4, notifyq.StatusFailed},
	} {
		require.Equal(t, c.want, notifyq.NextStatus(c.permanent, c.attempt, c.attempts), "%+v", c)
	}
}

func TestProviderErrorsKeepTheirMark(t *testing.T) {
	t.Parallel()
	base := errors.New("base")
	marks := map[string]error{
		"permanent": notifyq.Permanent(base), "transient": notifyq.RetryAfter(base, time.Minute),
		"ambiguous": notifyq.Ambiguous(base), "misconfigured": notifyq.Misconfigured(base), "none": base,
	}
	for name, err := range marks {
		for _, err := range []error{err, fmt.Errorf("wrapped: %w", err), errors.Join(context.Canceled, err)} {
			require.ErrorIs(t, err, base)
			require.Equal(t, name == "permanent", notifyq.IsPermanent(err), name)
			require.Equal(t, name == "ambiguous", notifyq.IsAmbiguous(err), name)
			require.Equal(t, name == "misconfigured", notifyq.IsMisconfigured(err), name)
			require.Equal(t, name == "transient" || name == "none", notifyq.IsTransient(err), name)
			d, ok := notifyq.RetryDelay(err)
			require.Equal(t, name == "transient", ok, name)
			require.Equal(t, name == "transient", d == time.Minute, name)
		}
	}
	require.True(t, notifyq.IsPermanent(notifyq.Permanent(notifyq.Ambiguous(base))), "the outer mark counts")
}

func TestMarkingNoErrorStaysNoError(t *testing.T) {
	t.Parallel()
	require.NoError(t, notifyq.Permanent(nil))
	require.NoError(t, notifyq.RetryAfter(nil, time.Minute))
	require.NoError(t, notifyq.Ambiguous(nil))
	require.NoError(t, notifyq.Misconfigured(nil))
	require.False(t, notifyq.IsTransient(nil))
}
