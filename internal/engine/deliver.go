package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/notifyq/notifyq/internal/timing"
)

// abandonGrace is how long a call may run on after its context has ended before it is given up. It is well inside the
// margin that every start keeps of its lease.
func (e *Engine) abandonGrace(l *lane) time.Duration {
	return startMargin(e.cfg.Lease, l.Timeout) / 2
}

// runFrom delivers j and then whatever comes next, until there is nothing to start.
func (e *Engine) runFrom(j *Job) {
	for j != nil {
		j = e.runOne(j)
	}
}

// runOne makes one attempt and returns the next job to run, if any.
func (e *Engine) runOne(j *Job) *Job {
	if j.expired(time.Now()) {
		if !j.settle() {
			return nil
		}
		e.recorder.Add(outcome{job: j, kind: overdue})
		return e.following(j)
	}
	return e.conclude(j, e.attempt(j))
}

// conclude hands a result on. If somebody else has settled the job meanwhile, the result is late and worth nothing, and
// so is the goroutine: its slot has gone to another.
func (e *Engine) conclude(j *Job, r Result) *Job {
	if !j.settle() {
		e.board.back(j)
		return nil
	}
	j.Payload = nil
	e.judge(j, r)
	return e.following(j)
}

// following gives back j's slot and takes the next job that may start without the starter.
func (e *Engine) following(j *Job) *Job {
	next, direct := e.board.finish(j, time.Now())
	for next != nil && !direct {
		e.starter.add(next)
		next, direct = e.board.next(time.Now())
	}
	return next
}

// attempt calls the provider. A panic becomes a result; a provider that exits the goroutine takes the runner with it, so
// the result is concluded from the deferred call and another runner goes on.
//
//nolint:contextcheck // a delivery outlives whoever starts it: it runs under e.deliveries
func (e *Engine) attempt(j *Job) (r Result) {
	ctx := newDeliveryContext(e.deliveries, j.deadline)
	returned := false
	defer func() {
		ctx.end()
		if returned {
			return
		}
		if p := recover(); p != nil {
			e.log.Error("provider.panicked", "jobId", j.ID, "channel", j.Channel, "panicType", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			r = Result{Class: ClassPanic, Error: e.cfg.Clean(fmt.Sprintf("the provider panicked: %v", p))}
			return
		}
		e.log.Error("provider.exited", "jobId", j.ID, "channel", j.Channel)
		if next := e.conclude(j, Result{Class: ClassPanic, Error: "the provider ended its goroutine"}); next != nil {
			go e.runFrom(next)
		}
	}()
	r = e.cfg.Deliver(ctx, j)
	returned = true
	return r
}

// judge turns a result into an outcome.
func (e *Engine) judge(j *Job, r Result) {
	now := time.Now()
	o := outcome{job: j, result: r, ended: now}
	switch r.Class {
	case ClassSent:
		o.kind = sent
	case ClassMisconfigured:
		e.misconfigured(j)
		o.kind, o.why = released, "provider misconfigured"
	default:
		o.decision = e.cfg.Decide(j, r)
		o.kind = finished
		if o.decision.Retry {
			o.kind = retried
		}
	}
	if r.Class != ClassMisconfigured {
		e.board.healthy(j)
	}
	e.recorder.Add(o)
}

// misconfigured leaves the channel's provider alone for a while and hands back what waits for it. The error is kept with j
// alone: it may name j's recipient.
func (e *Engine) misconfigured(j *Job) {
	waiting, d := e.board.misconfigured(j.lane, time.Now(), e.cfg.Random())
	if d > 0 {
		e.log.Error("provider.misconfigured", "jobId", j.ID, "channel", j.Channel, "pauseMs", d.Milliseconds())
		e.board.nudge()
	}
	e.handBack(waiting, "provider misconfigured")
}

// handBack releases jobs that waited and hold no slot.
func (e *Engine) handBack(jobs []*Job, why string) {
	for _, j := range jobs {
		e.recorder.Add(outcome{job: j, kind: released, why: why})
	}
}

// watchEvery is how often the watchdog looks.
const watchEvery = 50 * time.Millisecond

// watch gives up calls that run on after their context has ended. Their goroutines can't be stopped, only counted. While
// nothing runs it sleeps.
func (e *Engine) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.board.busy:
		}
		for e.board.anyActive() && ctx.Err() == nil {
			timing.Sleep(ctx, watchEvery)
			e.giveUpOverdue()
		}
	}
}

func (e *Engine) giveUpOverdue() {
	now := time.Now()
	for _, j := range e.board.overdue(now, e.abandonGrace) {
		if !j.settle() {
			continue
		}
		e.log.Error("provider.stuck", "jobId", j.ID, "channel", j.Channel, "attempt", j.AttemptCount,
			"durationMs", timing.Elapsed(j.startedAt, now).Milliseconds())
		e.judge(j, Result{Class: ClassTimeout, Error: "the provider did not return in time"})
		e.handBack(e.board.abandon(j), "provider stuck")
		e.startRunners()
	}
}
