// Package timing is how loops wait and measure: waits end with their context, repeated ones are spread, and what passed
// is measured on the clock that can't have run slower than the database's.
package timing

import (
	"context"
	"time"
)

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Jitter is d give or take a tenth, so that processes that started together do not poll together. random is in [0, 1).
func Jitter(d time.Duration, random float64) time.Duration {
	return d + time.Duration((random-0.5)*0.2*float64(d))
}

// Backoff is the wait after the nth failure of the database in a row: up to 5 s, half of it random.
func Backoff(n int, random float64) time.Duration {
	return BackoffTo(5*time.Second, n, random)
}

// BackoffTo is Backoff up to a limit.
func BackoffTo(limit time.Duration, n int, random float64) time.Duration {
	d := min(100*time.Millisecond<<min(max(n-1, 0), 20), limit)
	return d/2 + time.Duration(random*float64(d)/2)
}

// Elapsed is the larger of what the monotonic clock and the wall clock say has passed: the monotonic one may stand still
// while the machine sleeps, the wall clock may be set back.
func Elapsed(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// FullLook decides when a claim that goes on from a mark is to look from the beginning again, for what committed late:
// after one that came back short and at least every second, but for no more than a tenth of the time, since behind the
// mark lie all the entries that a held snapshot keeps.
type FullLook struct {
	last time.Time // when the last one ended
	took time.Duration
}

const (
	fullLookEvery = time.Second
	fullLookShare = 10
)

// Due tells whether the next claim is to look from the beginning. short tells that the last claim was.
func (f *FullLook) Due(now time.Time, short bool) bool {
	if !short && now.Sub(f.last) < fullLookEvery {
		return false
	}
	return now.Sub(f.last) >= (fullLookShare-1)*f.took
}

// Took notes such a look, which was sent at a time and has just ended.
func (f *FullLook) Took(sent time.Time) {
	f.last = time.Now()
	f.took = f.last.Sub(sent)
}
