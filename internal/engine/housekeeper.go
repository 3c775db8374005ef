package engine

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/store"
)

// Bounds of one step of housekeeping, and of what one run may do before the next worker's turn.
const (
	housekeepingBatch = 500
	pruneBatch        = 1000
	pruneSteps        = 200
	pruneEvery        = time.Minute
	pruneFromStart    = time.Hour
	// A step has to get through however many dead entries a held snapshot keeps in its way.
	housekeepingTimeout = 2 * time.Minute
)

// housekeep recovers expired claims and ends jobs whose time is over; prune, beside it, removes what is old. Every worker
// does it, on the database's clock, in small statements that pass over locked rows, so that nobody has to be the
// leader and workers that do it together share the work. It never is a queued job: the queue might be what is stuck.
func (e *Engine) housekeep(ctx context.Context) {
	wait := time.Duration(0)
	for {
		if sleep(ctx, wait); ctx.Err() != nil {
			return
		}
		wait = jitter(e.cfg.RecoveryInterval, e.cfg.Random())
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
		e.log.Warn("jobs.recovered", "requeued", requeued, "deadLettered", dead)
		e.board.wantMore()
	}
}

// expire ends waiting jobs whose time is over.
func (e *Engine) expire(ctx context.Context) {
	e.repeat(ctx, "worker.expiry_failed", func(ctx context.Context) (bool, error) {
		over, err := e.cfg.Store.Expire(ctx, e.cfg.Pool, housekeepingBatch, e.cfg.Events)
		for _, id := range over {
			e.log.Warn("job.fail", "jobId", id, "reason", "expired")
		}
		return len(over) == housekeepingBatch, err
	})
}

// repeat runs steps while there is more to do. A failure ends this run; the next one comes anyway.
func (e *Engine) repeat(ctx context.Context, failure string, step func(ctx context.Context) (more bool, err error)) {
	for ctx.Err() == nil {
		e.housekeeping.Lock()
		call, cancel := e.callWithin(ctx, housekeepingTimeout)
		more, err := step(call)
		cancel()
		e.housekeeping.Unlock()
		if err != nil {
			e.log.Warn(failure, "error", store.Describe(err))
			return
		}
		if !more {
			return
		}
	}
}

// prune removes old rows, a bounded number of steps at a time, and goes on at once while there are more.
func (e *Engine) prune(ctx context.Context) {
	var p pruner
	for {
		wait := jitter(pruneEvery, e.cfg.Random())
		if p.run(ctx, e) {
			wait = 0
		}
		if sleep(ctx, wait); ctx.Err() != nil {
			return
		}
	}
}

// pruner walks three tables by id, from where it was to where it may delete, and from the start again once an hour.
type pruner struct {
	start time.Time
	marks [3]uuid.UUID
}

type pruneStep func(ctx context.Context, pool *pgxpool.Pool, after uuid.UUID, keep time.Duration, limit int) (store.Pruned, error)

// run makes one pass and tells whether there was more to do than it did.
func (p *pruner) run(ctx context.Context, e *Engine) (more bool) {
	if now := time.Now(); now.Sub(p.start) > pruneFromStart {
		p.start, p.marks = now, [3]uuid.UUID{}
	}
	if e.cfg.Limits != nil {
		more = p.walk(ctx, e, 0, 2*e.limitWindow(), e.cfg.Store.PruneSlots) || more
	}
	if e.cfg.Retention > 0 {
		more = p.walk(ctx, e, 1, e.cfg.Retention, e.cfg.Store.PruneJobs) || more
	}
	if e.cfg.EventRetention > 0 {
		more = p.walk(ctx, e, 2, e.cfg.EventRetention, e.cfg.Store.PruneEvents) || more
	}
	return more
}

// walk goes on from the table's mark for a bounded number of steps.
func (p *pruner) walk(ctx context.Context, e *Engine, table int, keep time.Duration, step pruneStep) (more bool) {
	deleted, steps := 0, 0
	e.repeat(ctx, "worker.prune_failed", func(ctx context.Context) (bool, error) {
		done, err := step(ctx, e.cfg.Pool, p.marks[table], keep, pruneBatch)
		if err != nil {
			more = false
			return false, err
		}
		if done.Read > 0 {
			p.marks[table] = done.Last
		}
		deleted += done.Deleted
		steps++
		more = done.Read == pruneBatch
		return more && steps < pruneSteps, nil
	})
	if deleted > 0 {
		e.log.Info("housekeeping.pruned", "table", [...]string{"reservations", "jobs", "events"}[table], "rows", deleted)
	}
	return more
}

// limitWindow is the longest window of the limits.
func (e *Engine) limitWindow() time.Duration {
	var longest time.Duration
	for _, r := range e.cfg.Limits.Readings(uuid.Nil) {
		longest = max(longest, r.Window)
	}
	return longest
}
