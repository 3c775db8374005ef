package notify_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/notify"
)

// patience bounds every wait for something that has to happen. No test measures it.
const patience = 20 * time.Second

func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, what)
		panic("unreachable")
	}
}

// What is asked for while it is being done may not have been seen by that: it is done once more, and only once.
func TestPulseDoesOnceMoreWhatWasAskedForMeanwhile(t *testing.T) {
	t.Parallel()
	began, goOn := make(chan bool), make(chan bool)
	p := notify.NewPulse(func() { began <- true; <-goOn })
	p.Beat()
	await(t, began, "it does not begin at once")
	for range 10_000 {
		p.Beat()
	}
	goOn <- true
	await(t, began, "what was asked for meanwhile is not done")
	goOn <- true
	p.Wait() // or it would be waiting for somebody to see a third begin

	p.Beat()
	await(t, began, "it has stopped for good")
	goOn <- true
	p.Wait()
}

func TestPulseKeepsItsPaceHoweverOftenItIsAsked(t *testing.T) {
	t.Parallel()
	var done atomic.Int64
	p := notify.NewPulse(func() { done.Add(1) })
	began := time.Now()
	for time.Since(began) < 100*time.Millisecond {
		p.Beat()
	}
	p.Wait()
	require.Positive(t, done.Load())
	require.LessOrEqual(t, done.Load(), int64(time.Since(began)/(10*time.Millisecond))+1)
}

func TestFailedNotifyIsLoggedForDebuggingOnly(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p := notify.NewNotifier("jobs", logger, func(ctx context.Context, kind string) error {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("it may take for ever")
		}
		return errors.New("canary")
	})
	p.Beat()
	p.Wait()
	require.Contains(t, log.String(), `"level":"DEBUG","msg":"notify.failed","kind":"jobs","error":"database connection failed`)
	require.NotContains(t, log.String(), "canary")
}
