package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Event is one claimed event in memory.
type Event struct {
	store.ClaimedEvent

	token     uuid.UUID
	size      int
	leaseFrom time.Time // before the claim or the last renewal was sent; under the lock of the slots
	lease     time.Duration
	endpoint  *endpoint // where it goes; nil: nowhere in particular, or not known yet; under the lock of the slots
	startedAt time.Time
	deadline  time.Time // zero: it has not started; under the lock of the slots
	ending    bool      // the recorder knows how it ends; under the lock of the slots
	settled   atomic.Bool
	left      atomic.Bool // its place at the endpoint is free
	lost      atomic.Bool // its send was abandoned
}

// settle tells the one caller that may say how the send ended: its sender, the watchdog that abandons it, or the drain
// that gives up on it.
func (e *Event) settle() bool { return e.settled.CompareAndSwap(false, true) }

// maxHeldBytes bounds the bodies in memory, but for the last one that a claim takes.
const maxHeldBytes = 64 << 20

// slots hold every claimed event until its claim has ended, and are the only state that goroutines share. The lock covers
// memory work only.
type slots struct {
	mu     sync.Mutex
	size   int
	held   map[*Event]struct{}
	bytes  int
	active int           // of them, those whose end the recorder does not know yet
	shut   bool          // nothing may start any more
	done   chan struct{} // closed when none is active, while somebody waits for that
	kick   chan struct{} // one slot: there may be reason to claim
	busy   chan struct{} // one slot: something is being sent

	want    bool      // somebody asked to look
	more    bool      // the last claim left something
	claimed time.Time // when it ended
	lost    int       // sends that were abandoned and have not returned

	pauses   int // in a row
	pausedAt time.Time
	until    time.Time
}

func newSlots(size int) *slots {
	return &slots{size: size, held: make(map[*Event]struct{}, size), kick: make(chan struct{}, 1), busy: make(chan struct{}, 1)}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *slots) wantMore() {
	s.mu.Lock()
	s.want = true
	s.mu.Unlock()
	signal(s.kick)
}

// linger is how long half of the slots are waited for: the others may have been taken by sends that hang.
const linger = 10 * time.Millisecond

// room tells how many events to claim now, and how many bytes; or, where it is 0 only for a while, when to ask again. There
// is none without a reason to claim. While there is a backlog, half of the slots are waited for, so that claims are worth
// their round trip. While the publisher is unavailable, one event at a time tries whether it is back. Sends that were
// abandoned cost slots once there are more of them than slots, or they would be without bound.
func (s *slots) room(now time.Time) (events, bytes int, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.size - len(s.held) - max(s.lost-s.size, 0)
	if now.Before(s.until) || free <= 0 || s.bytes >= maxHeldBytes {
		return 0, 0, s.until
	}
	if s.pauses > 0 {
		if len(s.held) > 0 {
			return 0, 0, time.Time{}
		}
		free = 1
	}
	switch lingers := s.claimed.Add(linger); {
	case s.want:
	case !s.more:
		return 0, 0, time.Time{}
	case 2*free < s.size && now.Before(lingers):
		return 0, 0, lingers
	}
	s.want = false
	return free, maxHeldBytes - s.bytes, time.Time{}
}

// put takes in what a claim brought.
func (s *slots) put(events []*Event, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more = more
	s.active += len(events)
	s.claimed = time.Now()
	for _, e := range events {
		s.held[e] = struct{}{}
		s.bytes += e.size
	}
}

// shutDown lets nothing start any more.
func (s *slots) shutDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = true
}

func (s *slots) isShut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shut
}

// begin notes that a send starts, or tells why it may not.
func (s *slots) begin(e *Event, now time.Time, timeout, grace time.Duration) (why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := e.lease - timing.Elapsed(e.leaseFrom, now) - 2*grace
	switch {
	case s.shut:
		return "shutdown"
	case left < timeout/2:
		return "lease too short"
	}
	e.startedAt, e.deadline = now, now.Add(min(left, timeout))
	signal(s.busy)
	return ""
}

// goesTo notes that e has a place at an endpoint.
func (s *slots) goesTo(e *Event, ep *endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.endpoint = ep
}

func (s *slots) endpointOf(e *Event) *endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.endpoint
}

// ended notes that the recorder knows how e ends.
func (s *slots) ended(e *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ending = true
	if s.active--; s.active == 0 && s.done != nil {
		close(s.done)
		s.done = nil
	}
}

// free gives the slots of events back whose claims have ended.
func (s *slots) free(events []*Event) {
	s.mu.Lock()
	for _, e := range events {
		delete(s.held, e)
		s.bytes -= e.size
	}
	look := s.want || s.more
	s.mu.Unlock()
	if look {
		signal(s.kick)
	}
}

// idle is closed when the recorder knows the end of all that is held.
func (s *slots) idle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if s.done == nil {
		s.done = make(chan struct{})
	}
	return s.done
}

func (s *slots) running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}

func (s *slots) pick(ok func(e *Event) bool) []*Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*Event
	for e := range s.held {
		if ok(e) {
			found = append(found, e)
		}
	}
	return found
}

// unsettled lists what has not ended yet.
func (s *slots) unsettled() []*Event { return s.pick(func(e *Event) bool { return !e.ending }) }

// abandoned counts a send that was given up, or, with a negative number, one that has returned after all.
func (s *slots) abandoned(n int) {
	s.mu.Lock()
	s.lost += n
	s.mu.Unlock()
	if n < 0 {
		signal(s.kick)
	}
}

// overdue lists sends that run on after their context has ended.
func (s *slots) overdue(now time.Time, grace time.Duration) []*Event {
	return s.pick(func(e *Event) bool {
		return !e.ending && !e.deadline.IsZero() && timing.Elapsed(e.startedAt, now) > e.deadline.Sub(e.startedAt)+grace
	})
}

// old lists what has less than half of its lease left.
func (s *slots) old(now time.Time) []*Event {
	return s.pick(func(e *Event) bool { return timing.Elapsed(e.leaseFrom, now) > e.lease/2 })
}

func (s *slots) renewed(e *Event, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.leaseFrom = sent
}

// unavailable pauses claiming and tells for how long, or 0 if it is paused already.
func (s *slots) unavailable(now time.Time, longest time.Duration, random float64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		return 0
	}
	if s.pauses++; s.pauses == 1 {
		s.pausedAt = now
	}
	pause := timing.BackoffTo(longest, s.pauses, random)
	s.until, s.want = now.Add(pause), true
	return pause
}

// available ends the pauses, if a send that started after the first of them got an answer, and tells whether it did.
func (s *slots) available(started time.Time) bool {
	s.mu.Lock()
	if s.pauses == 0 || started.Before(s.pausedAt) {
		s.mu.Unlock()
		return false
	}
	s.pauses, s.until = 0, time.Time{}
	s.mu.Unlock()
	s.wantMore()
	return true
}
