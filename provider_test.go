package notifyq_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// explosive is an error that can't even be printed.
type explosive struct{}

func (explosive) Error() string { panic("no text") }

// typed is an error type whose nil pointer some code returns.
type typed struct{ text string }

func (e *typed) Error() string { return e.text }

// Each misbehaves in its first attempt.
func TestProviderThatMisbehavesCostsAnAttemptAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		class string
		first func() error
	}{
		"panics":                         {"panic", func() error { panic("oh") }},
		"panics with nil":                {"panic", func() error { panic(nil) }}, //nolint:govet // that is the case
		"panics with an error":           {"panic", func() error { panic(errNo) }},
		"panics with what can't print":   {"panic", func() error { panic(explosive{}) }},
		"dereferences nil":               {"panic", func() error { var p *typed; return errors.New(p.text) }},
		"ends its goroutine":             {"panic", func() error { runtime.Goexit(); return nil }},
		"panics while a panic is raised": {"panic", func() error { defer func() { panic("second") }(); panic("first") }},
		"returns what can't print":       {"panic", func() error { return explosive{} }},
		"returns a typed nil":            {"panic", func() error { return (*typed)(nil) }},
		"returns a marked typed nil":     {"panic", func() error { return notifyq.Permanent((*typed)(nil)) }},
		"returns an empty text":          {"transient", func() error { return errors.New("") }},
		"claims a deadline of its own":   {"transient", func() error { return context.DeadlineExceeded }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorkerBundle(t)
			ids := b.scheduleMany(2, withAttempts(2))
			cfg := b.config(newCourier(func(_ context.Context, d notifyq.Delivery) error {
				if d.Attempt == 1 && d.Key == ids[0] {
					return c.first()
				}
				return nil
			}))
			cfg.Concurrency = 1 // a lost slot would be the end
			b.start(cfg)
			job := b.await(ids[0], notifyq.StatusSent)
			require.Equal(t, 2, job.AttemptCount)
			require.Equal(t, c.class, b.failedAttempts(ids[0])[0].Class)
			require.Equal(t, 1, b.await(ids[1], notifyq.StatusSent).AttemptCount)
		})
	}
}

func TestTextsOfAProviderAreMadeStorable(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("é", 1<<19)
	hostile := "a\x00b\xff\xfec" + huge
	for name, answer := range map[string]func() (notifyq.Receipt, error){
		"error": func() (notifyq.Receipt, error) { return notifyq.Receipt{}, errors.New(hostile) },
		"panic": func() (notifyq.Receipt, error) { panic(hostile) },
		"id":    func() (notifyq.Receipt, error) { return notifyq.Receipt{ProviderID: hostile}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorkerBundle(t)
			id := b.schedule(withAttempts(1))
			b.run(notifyq.ProviderFunc(func(context.Context, notifyq.Delivery) (notifyq.Receipt, error) { return answer() }))
			job := b.awaitJob(id, func(j notifyq.Job) bool { return j.Status.Terminal() })
			text, limit := job.LastError, 2048
			if name == "id" {
				text, limit = job.ProviderID, 255
			}
			require.Contains(t, text, "a\uFFFDb\uFFFDc")
			require.True(t, utf8.ValidString(text))
			require.LessOrEqual(t, len(text), limit)
			require.Greater(t, len(text), limit-4)
			for _, a := range b.failedAttempts(id) {
				require.Equal(t, text, a.Error)
			}
		})
	}
}

// C59, C36: the row moves on after the timeout and a grace, the slot is given to another, and what the call says late is
// worth nothing.
func TestDeafProviderIsAbandoned(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.scheduleMany(3)
	late := make(chan error)
	c := newCourier(nil)
	c.answer = func(_ context.Context, d notifyq.Delivery) error {
		if d.Key == ids[0] && d.Attempt == 1 {
			return <-late
		}
		return nil
	}
	cfg := b.config(c)
	cfg.Concurrency, cfg.Lease = 1, 2*time.Second
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 50 * time.Millisecond}
	b.start(cfg)
	entry := b.logs.awaitJob(t, "provider.stuck", ids[0])
	require.EqualValues(t, "EMAIL", entry.attrs["channel"])
	for _, id := range ids {
		b.await(id, notifyq.StatusSent)
	}
	job := b.job(ids[0])
	require.Equal(t, 2, job.AttemptCount)
	require.Equal(t, "timeout", b.failedAttempts(ids[0])[0].Class)
	answerAll(t, late, 1, notifyq.Permanent(errNo))
	b.await(b.schedule(), notifyq.StatusSent)
	require.Equal(t, job, b.job(ids[0]))
}

// C48, C59: a channel whose provider never returns stops taking jobs, keeps none, and takes part again when its calls
// come back. The other channel does not notice.
func TestChannelThatLosesItsCallsIsLeftAloneAndKeepsNoJobs(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	const runLimit, abandoned = 1, 4
	c, answers := deaf()
	cfg := b.config(c)
	cfg.Concurrency, cfg.Lease = 2, 2*time.Second // each channel leaves the other one slot
	cfg.Retry = notifyq.RetryPolicy{BaseDelay: time.Hour, MaxDelay: time.Hour}
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 20 * time.Millisecond, Concurrency: runLimit}
	cfg.Providers["SMS"] = notifyq.ProviderConfig{Provider: accepting(), Timeout: time.Second}
	ids := b.scheduleMany(8)
	b.start(cfg)
	for range abandoned {
		c.next(t)
	}
	require.Eventually(t, func() bool { return len(b.logs.matching("provider.stuck", nil)) == abandoned }, patience, poll)
	b.await(b.schedule(onChannel("SMS")), notifyq.StatusSent)
	require.Eventually(t, func() bool {
		return one[int64](b, `select count(*) from @notification_queue where status = 1`) == 0
	}, patience, poll, "what waits must not wait for it")
	require.Len(t, c.all(), abandoned)

	for range abandoned {
		answerAll(t, answers, 1, errNo) // the lost calls come back
	}
	go func() {
		for range len(ids) - abandoned {
			answers <- nil
		}
	}()
	b.awaitCount(notifyq.StatusSent, len(ids)-abandoned+1)
}

func TestChannelRunsNoMoreAtOnceThanItMay(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var now, most atomic.Int64
	c := newCourier(func(context.Context, notifyq.Delivery) error {
		n := now.Add(1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		runtime.Gosched()
		now.Add(-1)
		return nil
	})
	cfg := b.config(c)
	cfg.Concurrency = 8
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Concurrency: 3}
	b.scheduleMany(300)
	b.start(cfg)
	b.awaitCount(notifyq.StatusSent, 300)
	require.LessOrEqual(t, most.Load(), int64(3))
	require.Greater(t, most.Load(), int64(1), "or the test shows nothing")
}

func TestChannelStartsNoFasterThanItsRate(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c := accepting()
	cfg := b.config(c)
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, RatePerSecond: 20}
	ids := b.scheduleMany(6)
	began := time.Now()
	b.start(cfg)
	for range ids {
		c.next(t)
	}
	require.GreaterOrEqual(t, time.Since(began), 5*50*time.Millisecond)
	b.awaitCount(notifyq.StatusSent, len(ids))
	requireOnce(t, c, ids)
}

func TestKeyIsTheJobsIDInEveryAttempt(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(withAttempts(4))
	c := failing(notifyq.Ambiguous(errNo))
	b.run(c)
	b.await(id, notifyq.StatusDeadLettered)
	require.Equal(t, map[uuid.UUID]int{id: 4}, c.times())
}
