package engine

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/pruning"
	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Bounds of one step of housekeeping, and of what one run may do before the next worker's turn.
const (
	housekeepingBatch = 500
	// A step has to get through however many dead entries a held snapshot keeps in its way.
	housekeepingTimeout = 2 * time.Minute
)

// housekeep recovers expired claims and ends jobs whose time is over; prune, beside it, removes what is old. Every worker
// does it, on the database's clock, in small statements that pass over locked rows, so that nobody has to be the
// leader and workers that do it together share the work. It never is a queued job: the queue might be what is stuck.
func (e *Engine) housekeep(ctx context.Context) {
	wait := time.Duration(0)
	for {
		if timing.Sleep(ctx, wait); ctx.Err() != nil {
			return
		}
		wait = timing.Jitter(e.cfg.RecoveryInterval, e.cfg.Random())
		e.recover(ctx)
		e.expire(ctx)
	}
}

// recover ends expired claims.
func (e *Engine) recover(ctx context.Context) {
	var requeued, dead int
	e.repeat(ctx, "worker.recovery_failed", func(ctx context.Context) (bool, error) {
		r, err := e.cfg.Store.Recover(ctx, e.cfg.Pool, housekeepingBatch, e.cfg.Events)
		requeued, dead = requeued+len(r.Requeued), dead+len(r.DeadLettered)
		for _, d := range r.DeadLettered {
			e.log.Warn("job.dead_letter", "jobId", d.ID, "attempt", d.Attempt, "reason", d.Reason)
		}
		return len(r.Requeued)+len(r.DeadLettered) == housekeepingBatch, err
	})
	if requeued+dead > 0 {
		e.counts.recovered.Add(int64(requeued + dead))
		e.counts.deadLettered.Add(int64(dead))
		e.log.Warn("jobs.recovered", "requeued", requeued, "deadLettered", dead)
		e.board.wantMore()
	}
}

// expire ends waiting jobs whose time is over.
func (e *Engine) expire(ctx context.Context) {
	e.repeat(ctx, "worker.expiry_failed", func(ctx context.Context) (bool, error) {
		over, err := e.cfg.Store.Expire(ctx, e.cfg.Pool, housekeepingBatch, e.cfg.Events)
		e.counts.failed.Add(int64(len(over)))
		for _, id := range over {
			e.log.Warn("job.fail", "jobId", id, "reason", "expired")
		}
		return len(over) == housekeepingBatch, err
	})
}

// repeat runs steps while there is more to do. A failure ends this run; the next one comes anyway.
func (e *Engine) repeat(ctx context.Context, failure string, step func(ctx context.Context) (more bool, err error)) {
	for ctx.Err() == nil {
		var more bool
		err := e.chore(ctx, func(ctx context.Context) (err error) {
			more, err = step(ctx)
			return err
		})
		if err != nil {
			e.log.Warn(failure, "error", store.Describe(err))
			return
		}
		if !more {
			return
		}
	}
}

// prune removes old rows.
func (e *Engine) prune(ctx context.Context) {
	var tables []pruning.Table
	if e.cfg.Limits != nil {
		tables = append(tables, pruning.Of("reservations", e.cfg.Pool, 2*e.limitWindow(), e.cfg.Store.PruneSlots))
	}
	if e.cfg.Retention > 0 {
		tables = append(tables, pruning.Of("jobs", e.cfg.Pool, e.cfg.Retention, e.cfg.Store.PruneJobs))
	}
	if e.cfg.EventRetention > 0 {
		tables = append(tables, pruning.Events(e.cfg.Store, e.cfg.Pool, e.cfg.EventRetention)...)
	}
	pruning.Loop(ctx, pruning.Config{Tables: tables, Call: e.chore, Logger: e.log, Random: e.cfg.Random})
}

// chore makes one call of housekeeping.
func (e *Engine) chore(ctx context.Context, call func(ctx context.Context) error) error {
	return e.Aside(context.WithoutCancel(ctx), func(ctx context.Context) error {
		ctx, cancel := e.callWithin(ctx, housekeepingTimeout)
		defer cancel()
		return call(ctx)
	})
}

// limitWindow is the longest window of the limits.
func (e *Engine) limitWindow() time.Duration {
	var longest time.Duration
	for _, r := range e.cfg.Limits.Readings(uuid.Nil) {
		longest = max(longest, r.Window)
	}
	return longest
}
