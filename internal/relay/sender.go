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

// send makes one attempt, or hands the event back if it may not start.
func (r *Relay) send(e *Event) {
	if e.endpoint != nil {
		switch delay, ok := e.endpoint.enter(time.Now()); {
		case !ok && delay == 0:
			r.hold(e)
			return
		case !ok:
			r.release(e, delay, "endpoint busy")
			return
		}
	}
	if why := r.slots.begin(e, time.Now(), r.cfg.Timeout, r.abandonGrace()); why != "" {
		r.left(e)
		r.release(e, 0, why)
		return
	}
	r.conclude(e, r.attempt(e))
}

// left notes that e does not go to its endpoint any more.
func (r *Relay) left(e *Event) {
	if e.endpoint != nil {
		e.endpoint.leave(e.startedAt, time.Now())
	}
}

// attempt calls the publisher. A panic becomes a result, and so does a goroutine that is exited.
//
//nolint:contextcheck // a send outlives the stop: it runs under r.sends
func (r *Relay) attempt(e *Event) (result Result) {
	ctx, cancel := context.WithDeadline(r.sends, e.deadline)
	returned := false
	defer func() {
		cancel()
		if returned {
			return
		}
		if p := recover(); p != nil {
			r.log.Error("publisher.panicked", "eventId", e.ID, "panicType", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			result = Result{Class: Panicked, Error: r.cfg.Clean(fmt.Sprintf("the publisher panicked: %v", p))}
			return
		}
		r.log.Error("publisher.exited", "eventId", e.ID)
		r.conclude(e, Result{Class: Panicked, Error: "the publisher ended its goroutine"})
	}()
	result = r.cfg.Publish(ctx, e)
	returned = true
	return result
}

// conclude turns a result into the end of the claim. If somebody else has settled the event meanwhile, the result is late
// and worth nothing: an event that was acknowledged after all is sent again under the same id.
func (r *Relay) conclude(e *Event, result Result) {
	if !e.settle() {
		return
	}
	r.left(e)
	r.judge(e, result)
}

// maxRetryAfter bounds what a receiver may ask for.
const maxRetryAfter = 24 * time.Hour

// judge decides what follows.
func (r *Relay) judge(e *Event, result Result) {
	if result.Class == Unavailable {
		r.unavailable(e)
		return
	}
	if r.slots.available() {
		r.log.Info("relay.publisher_available")
	}
	if e.endpoint != nil {
		e.endpoint.saw(result, time.Now())
	}
	if result.Class == Gone && e.endpoint != nil {
		r.gone(e)
		return
	}
	if result.Class == Accepted {
		r.end(outcome{event: e, kind: published})
		return
	}
	r.end(r.failure(e, result))
}

// failure counts it, and decides whether the event waits or is parked.
func (r *Relay) failure(e *Event, result Result) outcome {
	failures := int(e.Failures) + 1
	limit := r.cfg.MaxAttempts
	if e.endpoint != nil && e.endpoint.info.MaxAttempts > 0 {
		limit = e.endpoint.info.MaxAttempts
	}
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
	r.release(e, 0, "publisher unavailable")
}

// gone disables the endpoint before the event is held for it.
//
//nolint:contextcheck // a send outlives the stop: it runs under r.sends
func (r *Relay) gone(e *Event) {
	if err := r.endpoints.reportOne(r.sends, e.endpoint); err != nil {
		r.release(e, time.Second, "endpoint gone")
		return
	}
	r.hold(e)
}

// hold keeps an event for an endpoint that is disabled.
func (r *Relay) hold(e *Event) {
	r.end(outcome{event: e, kind: released, disabled: e.endpoint.info.Name, delay: time.Second, why: "endpoint disabled"})
}

// release hands an event back without a failure.
func (r *Relay) release(e *Event, delay time.Duration, why string) {
	r.end(outcome{event: e, kind: released, delay: delay, why: why})
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
				r.log.Error("publisher.stuck", "eventId", e.ID, "durationMs", timing.Elapsed(e.startedAt, now).Milliseconds())
				r.conclude(e, Result{Class: Unknown, Error: "the publisher did not return in time"})
			}
		}
	}
}
