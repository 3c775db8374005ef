package relay

import (
	"sync"
	"time"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Endpoint is a receiver that can fail, be slow and be disabled on its own.
type Endpoint struct {
	Name, Target string
	Concurrency  int // 0: no limit of its own
	MaxAttempts  int // 0: the relay's
	DisableAfter time.Duration
}

func (e Endpoint) key() store.EndpointKey { return store.EndpointKey{Name: e.Name, Target: e.Target} }

// endpoint is what one relay knows of a receiver.
type endpoint struct {
	info Endpoint

	mu     sync.Mutex
	known  store.Endpoint
	active int
	took   time.Duration // a moving average of a send
	booked time.Time     // until when there are events for every place
	until  time.Time     // it asked to wait

	// since the last report
	succeeded bool
	failures  int64
	failing   time.Time
	gone      bool
}

// longestBooking bounds how far ahead events are sent away. A backlog beyond it is claimed again that often; and a receiver
// that becomes quick waits that long, at most, for what was sent away while it was slow.
const longestBooking = 5 * time.Minute

// enter takes a place for a send. Without one it tells how long to wait: until the places that are taken and the events
// that were sent away before this one will have had their turn. A disabled receiver has no places, and no such time.
func (e *endpoint) enter(now time.Time) (wait time.Duration, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.known.DisabledAt.IsZero():
		return 0, false
	case !now.Before(e.until) && (e.info.Concurrency == 0 || e.active < e.info.Concurrency):
		e.active++
		return 0, true
	}
	for _, least := range []time.Time{now, e.until} {
		if e.booked.Before(least) {
			e.booked = least
		}
	}
	e.booked = e.booked.Add(max(e.took/time.Duration(max(e.info.Concurrency, 1)), time.Millisecond))
	if e.booked.Sub(now) > longestBooking {
		e.booked = now.Add(longestBooking)
	}
	return e.booked.Sub(now), false
}

func (e *endpoint) leave(started, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active--
	e.took += (now.Sub(started) - e.took) / 8
}

// saw notes how a send went. What is the fault of the event or of the publisher is not the receiver's. Who asks to wait
// asks for all its events.
func (e *endpoint) saw(result Result, now time.Time) {
	if result.Class == Refused || result.Class == Panicked {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if result.Class == Accepted {
		e.succeeded, e.failures, e.failing = true, 0, time.Time{}
		return
	}
	if asked := now.Add(min(result.RetryAfter, longestBooking)); result.RetryAfter > 0 && asked.After(e.until) {
		e.until = asked
	}
	if e.failures == 0 {
		e.failing = now
	}
	e.failures++
	e.gone = e.gone || result.Class == Gone
}

// news takes what was seen since the last report, if it changes anything.
func (e *endpoint) news(now time.Time) (store.EndpointReport, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := store.EndpointReport{
		EndpointKey: e.info.key(), Succeeded: e.succeeded, Failures: e.failures, Gone: e.gone, DisableAfter: e.info.DisableAfter,
	}
	if e.failures > 0 {
		seen.FailingFor = timing.Elapsed(e.failing, now)
	}
	recovered := e.succeeded && !e.known.FailingSince.IsZero()
	if e.failures == 0 && !recovered && !e.gone {
		e.succeeded = false
		return seen, false
	}
	e.succeeded, e.failures, e.failing, e.gone = false, 0, time.Time{}, false
	return seen, true
}

// unreported puts back what could not be written.
func (e *endpoint) unreported(seen store.EndpointReport) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = e.gone || seen.Gone
	if e.succeeded { // later than what was seen
		return
	}
	e.succeeded = seen.Succeeded
	e.failures += seen.Failures
	if seen.Failures > 0 {
		e.failing = time.Now().Add(-seen.FailingFor)
	}
}

// learn takes in what is known and returns what was known before.
func (e *endpoint) learn(now store.Endpoint) (before store.Endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before = e.known
	e.known = now
	return before
}

// settledDown tells that it has been enabled for long enough for its operator's redrive to be over.
func (e *endpoint) settledDown(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known.DisabledAt.IsZero() && now.Sub(e.known.EnabledAt) > time.Minute
}
