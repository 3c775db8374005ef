package notifyq_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// misconfiguredUntil refuses until it is mended.
func misconfiguredUntil(mended *atomic.Bool) *courier {
	return newCourier(func(context.Context, notifyq.Delivery) error {
		if mended.Load() {
			return nil
		}
		return notifyq.Misconfigured(errNo)
	})
}

func TestMisconfiguredProviderIsPausedForLongerAndLonger(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var mended atomic.Bool
	c := misconfiguredUntil(&mended)
	cfg := b.config(c).WithFirstPause(40 * time.Millisecond)
	cfg.Concurrency = 4
	ids := b.scheduleMany(10, withAttempts(1))
	b.start(cfg)
	const pauses = 4
	require.Eventually(t, func() bool { return len(b.logs.matching("provider.misconfigured", nil)) >= pauses }, patience, poll)
	calls := len(c.all())
	mended.Store(true)
	b.awaitCount(notifyq.StatusSent, len(ids)) // it comes back by itself

	full := 40 * time.Millisecond
	for i, e := range b.logs.matching("provider.misconfigured", nil)[:pauses] {
		pause := time.Duration(e.attrs["pauseMs"].(int64)) * time.Millisecond
		require.GreaterOrEqual(t, pause, full/2-time.Millisecond, "pause %d", i)
		require.LessOrEqual(t, pause, full, "pause %d", i)
		full *= 2
	}
	require.LessOrEqual(t, calls, 4+pauses, "after the first, one job at a time tries it")
	for _, id := range ids {
		require.Equal(t, 1, b.job(id).AttemptCount, "nobody's attempts are used up")
		require.Empty(t, b.failedAttempts(id))
	}
}

// Nothing else tells an operator what to mend: the provider's words are in no log.
func TestJobTellsWhyItsProviderIsMisconfigured(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	cfg := b.config(c).WithFirstPause(time.Hour)
	cfg.Concurrency = 1
	ids := b.scheduleMany(3, withAttempts(1))
	b.exec(`update @notification_queue set last_error = 'as before' where id <> $1`, ids[0])
	b.start(cfg)
	require.Equal(t, ids[0], c.next(t).Key)
	const why = "401: the key was revoked"
	answerAll(t, answers, 1, notifyq.Misconfigured(errors.New(why+"\x00"+strings.Repeat("!", 5000))))
	job := b.await(ids[0], notifyq.StatusPending)
	require.True(t, strings.HasPrefix(job.LastError, why), job.LastError)
	require.Len(t, job.LastError, 2048)
	require.NotContains(t, job.LastError, "\x00")
	require.Zero(t, job.AttemptCount, "it is refunded as before")
	require.Empty(t, b.attempts(ids[0]))
	for _, id := range ids[1:] {
		job := b.await(id, notifyq.StatusPending)
		require.Equal(t, "as before", job.LastError, "what may name a recipient is not put on another's job")
		require.Zero(t, job.AttemptCount)
	}
	require.NotContains(t, b.logs.written(), "revoked")
}

// A release that is nobody's fault says nothing, so what was known of the job stays.
func TestOrdinaryReleaseLeavesTheLastErrorAlone(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	cfg := b.config(c)
	cfg.Concurrency = 1
	b.schedule()
	waiting := b.schedule()
	b.exec(`update @notification_queue set last_error = 'as before' where id = $1`, waiting)
	w := b.start(cfg)
	c.next(t)
	b.await(waiting, notifyq.StatusProcessing)
	w.cancel()
	job := b.await(waiting, notifyq.StatusPending)
	require.Equal(t, "as before", job.LastError)
	require.Zero(t, job.AttemptCount)
	answerAll(t, answers, 1, nil)
	require.NoError(t, w.drain())
}

func TestMisconfiguredProviderKeepsNoJobsFromOtherWorkers(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var mended atomic.Bool
	cfg := b.config(misconfiguredUntil(&mended)).WithFirstPause(time.Hour)
	cfg.Concurrency = 1
	ids := b.scheduleMany(10)
	b.start(cfg)
	b.logs.await(t, "provider.misconfigured")
	healthy := accepting()
	b.run(healthy)
	b.awaitCount(notifyq.StatusSent, len(ids))
	requireOnce(t, healthy, ids)
}

func TestMisconfiguredChannelDoesNotPauseAnother(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var mended atomic.Bool
	cfg := b.config(accepting()).WithFirstPause(time.Hour)
	cfg.Providers["SMS"] = notifyq.ProviderConfig{Provider: misconfiguredUntil(&mended)}
	sms := b.schedule(onChannel("SMS"))
	b.start(cfg)
	b.logs.await(t, "provider.misconfigured")
	email := b.scheduleMany(20)
	b.awaitCount(notifyq.StatusSent, len(email))
	job := b.await(sms, notifyq.StatusPending)
	require.Zero(t, job.AttemptCount)
}

// A probe that comes to anything else, if only an ordinary failure, ends the doubt: the channel runs as before.
func TestChannelRunsAsBeforeOnceAProbeGetsThrough(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{"accepted": nil, "failed": errNo} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorkerBundle(t)
			c, answers := held()
			cfg := b.config(c).WithFirstPause(20 * time.Millisecond)
			cfg.Concurrency = 3
			first := b.schedule()
			b.start(cfg)
			require.Equal(t, first, c.next(t).Key)
			answerAll(t, answers, 1, notifyq.Misconfigured(errNo))
			b.logs.await(t, "provider.misconfigured")
			b.scheduleMany(10)
			c.next(t)
			answerAll(t, answers, 1, answer)
			for range 3 { // at once
				c.next(t)
			}
			close(answers)
			b.awaitCount(notifyq.StatusSent, 11)
			require.Len(t, b.logs.matching("provider.misconfigured", nil), 1)
		})
	}
}
