// Package pruning removes rows that have been kept long enough, in small steps.
package pruning

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Bounds of one step, and of what one pass does before the next process's turn.
const (
	batch     = 1000
	steps     = 200
	every     = time.Minute
	fromStart = time.Hour
)

// Table is walked by id, from where the last walk was to where rows may be deleted, and from the start again once an hour:
// a row may have ended long after its id was made.
type Table struct {
	Name string // for the log
	// Step deletes what it may among at most limit rows behind after.
	Step func(ctx context.Context, after uuid.UUID, limit int) (store.Pruned, error)
}

// Events are the tables of published events.
func Events(s *store.Store, pool *pgxpool.Pool, keep time.Duration) []Table {
	var from time.Time
	own := func(ctx context.Context, after uuid.UUID, limit int) (done store.Pruned, err error) {
		if after == uuid.Nil {
			from = time.Time{} // a walk from the start
		}
		done.Deleted, from, err = s.PruneOwnEvents(ctx, pool, from, keep, limit)
		done.Read, done.Last = done.Deleted, uuid.Max
		return done, err
	}
	return []Table{Of("events", pool, keep, s.PruneEvents), {Name: "own events", Step: own}}
}

// Of makes a Table of one of the store's statements.
func Of(name string, pool *pgxpool.Pool, keep time.Duration, step storeStep) Table {
	return Table{Name: name, Step: func(ctx context.Context, after uuid.UUID, limit int) (store.Pruned, error) {
		return step(ctx, pool, after, keep, limit)
	}}
}

type storeStep func(ctx context.Context, pool *pgxpool.Pool, after uuid.UUID, keep time.Duration, limit int) (store.Pruned, error)

// Config says what to prune, and how.
type Config struct {
	Tables []Table
	// Call makes one call of the database, within its own limits.
	Call   func(ctx context.Context, call func(ctx context.Context) error) error
	Logger *slog.Logger
	Random func() float64
}

// Loop prunes until ctx ends, a bounded number of steps at a time, and goes on at once while there are more.
func Loop(ctx context.Context, cfg Config) {
	p := pruner{cfg: cfg}
	for len(cfg.Tables) > 0 {
		wait := timing.Jitter(every, cfg.Random())
		if p.pass(ctx) {
			wait = 0
		}
		if timing.Sleep(ctx, wait); ctx.Err() != nil {
			return
		}
	}
}

type pruner struct {
	cfg   Config
	start time.Time
	marks []uuid.UUID
}

// pass goes over all tables once and tells whether there was more to do than it did.
func (p *pruner) pass(ctx context.Context) (more bool) {
	if now := time.Now(); now.Sub(p.start) > fromStart {
		p.start, p.marks = now, make([]uuid.UUID, len(p.cfg.Tables))
	}
	for i := range p.cfg.Tables {
		more = p.walk(ctx, i) || more
	}
	return more
}

// walk goes on from the table's mark for a bounded number of steps. A failure ends it; the next one comes anyway.
func (p *pruner) walk(ctx context.Context, i int) (more bool) {
	deleted := 0
	defer func() {
		if deleted > 0 {
			p.cfg.Logger.Info("housekeeping.pruned", "table", p.cfg.Tables[i].Name, "rows", deleted)
		}
	}()
	for range steps {
		if ctx.Err() != nil {
			return false
		}
		var done store.Pruned
		err := p.cfg.Call(ctx, func(ctx context.Context) (err error) {
			done, err = p.cfg.Tables[i].Step(ctx, p.marks[i], batch)
			return err
		})
		if err != nil {
			p.cfg.Logger.Warn("housekeeping.prune_failed", "table", p.cfg.Tables[i].Name, "error", store.Describe(err))
			return false
		}
		if done.Read > 0 {
			p.marks[i] = done.Last
		}
		deleted += done.Deleted
		if done.Read < batch {
			return false
		}
	}
	return true
}
