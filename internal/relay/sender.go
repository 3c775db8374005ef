package relay

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/notifyq/notifyq/internal/timing"
)

// abandonGrace is how long a send may run on after its context has ended before it is given up.
func (r *Relay) abandonGrace() time.Duration {
	return min((r.cfg.Lease-r.cfg.Timeout)/4, time.Second)
}

// send makes one attempt, or hands the event back if it may not start. A panic becomes a result, and so does a goroutine
// that is exited.
func (r *Relay) send(e *Event) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			r.log.Error("publisher.panicked", "eventId", e.ID, "panicType", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			r.conclude(e, Result{Class: Panicked, Error: r.cfg.Clean(fmt.Sprintf("the publisher panicked: %v", p))})
			return
		}
		r.log.Error("publisher.exited", "eventId", e.ID)
		r.conclude(e, Result{Class: Panicked, Error: "the publisher ended its goroutine"})
	}()
	if r.start(e) {
		r.conclude(e, r.attempt(e))
	}
	returned = true
}

// start tells whether the event may be sent; otherwise it is turned away.
func (r *Relay) start(e *Event) bool {
	if why := r.slots.begin(e, time.Now(), r.cfg.Timeout, r.abandonGrace()); why != "" {
		r.turnAway(e, release(e, 0, why))
		return false
	}
	ep, ok := r.place(e)
	if !ok {
		return false
	}
	if r.slots.isShut() { // finding the endpoint took its time
		r.leave(e)
		r.turnAway(e, release(e, 0, "shutdown"))
		return false
	}
	if limit := r.limit(ep); limit > 0 && int(e.Failures) >= limit { // its last claim ran out
		r.leave(e)
		r.turnAway(e, outcome{event: e, kind: failed, parked: "exhausted", unsent: true})
		return false
	}
	return true
}

// place finds the endpoint of an event and a place at it.
//
//nolint:contextcheck // a send outlives the stop: it runs under r.sends
func (r *Relay) place(e *Event) (*endpoint, bool) {
	if r.cfg.Endpoint == nil {
		return nil, true
	}
	info := r.cfg.Endpoint(e)
	if info.Name == "" {
		return nil, true
	}
	ep, err := r.endpoints.find(r.sends, info)
	if err != nil || ep == nil {
		r.turnAway(e, release(e, time.Second, "endpoint unknown"))
		return nil, false
	}
	wait, ok := ep.enter(time.Now())
	switch {
	case ok:
		r.slots.goesTo(e, ep)
		return ep, true
	case wait == 0:
		r.turnAway(e, hold(e, ep))
	default:
		r.turnAway(e, release(e, wait, "endpoint busy"))
	}
	return nil, false
}

// leave gives back the place at the endpoint, once.
func (r *Relay) leave(e *Event) {
	if ep := r.slots.endpointOf(e); ep != nil && e.left.CompareAndSwap(false, true) {
		ep.leave(e.startedAt, time.Now())
	}
}

// limit is after how many failures an event for ep is parked; 0 is never.
func (r *Relay) limit(ep *endpoint) int {
	if ep != nil && ep.info.MaxAttempts > 0 {
		return ep.info.MaxAttempts
	}
	return r.cfg.MaxAttempts
}

// attempt calls the publisher.
//
//nolint:contextcheck // a send outlives the stop: it runs under r.sends
func (r *Relay) attempt(e *Event) Result {
	ctx, cancel := context.WithDeadline(r.sends, e.deadline)
	defer cancel()
	return r.cfg.Publish(ctx, e)
}

// conclude turns a result into the end of the claim. If somebody else has settled the event meanwhile, the result is late
// and worth nothing: an event that was acknowledged after all is sent again under the same id.
func (r *Relay) conclude(e *Event, result Result) {
	r.leave(e)
	if e.settle() {
		r.judge(e, result)
		return
	}
	if e.lost.Load() {
		r.slots.abandoned(-1)
	}
}

// abandon gives up a send that ignores its context. Its goroutine can't be stopped, only counted.
func (r *Relay) abandon(e *Event, now time.Time) {
	e.lost.Store(true)
	r.slots.abandoned(1)
	if !e.settle() { // it has just returned
		r.slots.abandoned(-1)
		return
	}
	r.leave(e)
	r.log.Error("publisher.stuck", "eventId", e.ID, "durationMs", timing.Elapsed(e.startedAt, now).Milliseconds())
	r.judge(e, Result{Class: Unknown, Error: "the publisher did not return in time"})
}

// maxRetryAfter bounds what a receiver may ask for.
const maxRetryAfter = 24 * time.Hour

// judge decides what follows. The event is settled.
func (r *Relay) judge(e *Event, result Result) {
	ep := r.slots.endpointOf(e)
	if result.Class == Unavailable {
		r.unavailable(e)
		return
	}
	if answered := result.Class == Accepted || result.Class == Rejected || result.Class == Gone; answered && r.slots.available(e.startedAt) {
		r.log.Info("relay.publisher_available")
	}
	if ep != nil {
		ep.saw(result, time.Now())
	}
	switch {
	case result.Class == Accepted:
		r.end(outcome{event: e, kind: published})
	case result.Class == Gone && ep != nil:
		r.gone(e, ep)
	default:
		r.end(r.failure(e, ep, result))
	}
}

// failure counts it, and decides whether the event waits or is parked.
func (r *Relay) failure(e *Event, ep *endpoint, result Result) outcome {
	failures, limit := int(e.Failures)+1, r.limit(ep)
	o := outcome{event: e, kind: failed, result: result}
	switch {
	case result.Class == Refused:
		o.parked = "refused"
	case limit > 0 && failures >= limit:
		o.parked = "exhausted"
	default:
		o.delay = max(r.cfg.Delay(failures), min(result.RetryAfter, maxRetryAfter))
	}
	return o
}

// end hands on how a claim is to end.
func (r *Relay) end(o outcome) {
	r.recorder.Add(o)
	r.slots.ended(o.event)
}

// unavailable pauses the relay and hands the event back.
func (r *Relay) unavailable(e *Event) {
	if pause := r.slots.unavailable(time.Now(), r.cfg.MaxPause, r.cfg.Random()); pause > 0 {
		r.log.Warn("relay.publisher_unavailable", "eventId", e.ID, "pauseMs", pause.Milliseconds())
		signal(r.slots.kick) // so that the claimer waits for the end of the pause
	}
	r.end(release(e, 0, "publisher unavailable"))
}

// gone disables the endpoint before the event is held for it.
//
//nolint:contextcheck // a send outlives the stop: it runs under r.sends
func (r *Relay) gone(e *Event, ep *endpoint) {
	if err := r.endpoints.reportOne(r.sends, ep); err != nil {
		r.end(release(e, time.Second, "endpoint gone"))
		return
	}
	r.end(hold(e, ep))
}

// hold keeps an event for an endpoint that is disabled.
func hold(e *Event, ep *endpoint) outcome {
	return outcome{event: e, kind: released, disabled: ep.info.key(), delay: time.Second, why: "endpoint disabled"}
}

// release hands an event back without a failure.
func release(e *Event, delay time.Duration, why string) outcome {
	return outcome{event: e, kind: released, delay: delay, why: why}
}

// turnAway ends the claim of an event that was not sent, unless the drain has.
func (r *Relay) turnAway(e *Event, o outcome) {
	if e.settle() {
		r.end(o)
	}
}

// watchEvery is how often the watchdog looks.
const watchEvery = 50 * time.Millisecond

// watch gives up sends that run on after their context has ended. Their goroutines can't be stopped. While nothing is
// being sent it sleeps.
func (r *Relay) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.slots.busy:
		}
		for r.slots.running() > 0 && ctx.Err() == nil {
			timing.Sleep(ctx, watchEvery)
			now := time.Now()
			for _, e := range r.slots.overdue(now, r.abandonGrace()) {
				r.abandon(e, now)
			}
		}
	}
}
