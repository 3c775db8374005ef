package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
)

// recorder writes outcomes. Batches form by themselves: it writes what has arrived as soon as the write before has
// returned, never after a timer, so one job a second is recorded at once and 40,000 a second share their commits.
//
// What it can't write it keeps, with the leases renewed and claiming stopped, until the database is back.
type recorder struct {
	e       *Engine
	mu      sync.Mutex
	queue   []outcome
	pending int // queued and being written
	empty   chan struct{}
	signal  chan struct{}
}

// recordBatch bounds one write. Twice as many made the planner leave the index once; see store.pinned.
const recordBatch = 1000

// outcome is how one claim is to end.
type outcome struct {
	job      *Job
	kind     kind
	result   Result
	decision Decision
	ended    time.Time
	why      string // of a release
}

type kind uint8

const (
	sent kind = iota
	retried
	finished // FAILED or DEAD_LETTERED
	overdue  // its own time was over before the call
	released // handed back, attempt refunded
)

func newRecorder(e *Engine) *recorder {
	return &recorder{e: e, signal: make(chan struct{}, 1)}
}

func (r *recorder) add(o outcome) {
	r.mu.Lock()
	r.queue = append(r.queue, o)
	r.pending++
	r.mu.Unlock()
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

func (r *recorder) take() []outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.queue), recordBatch)
	batch := make([]outcome, n)
	copy(batch, r.queue)
	rest := copy(r.queue, r.queue[n:])
	clear(r.queue[rest:])
	r.queue = r.queue[:rest]
	return batch
}

func (r *recorder) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.signal:
		}
		for batch := r.take(); len(batch) > 0 && ctx.Err() == nil; batch = r.take() {
			r.write(ctx, batch, false)
		}
	}
}

// drain waits until everything is written, at most until deadline, and tells how many outcomes are left.
func (r *recorder) drain(deadline time.Time) int {
	r.mu.Lock()
	if r.pending == 0 {
		r.mu.Unlock()
		return 0
	}
	r.empty = make(chan struct{})
	empty := r.empty
	r.mu.Unlock()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending
}

func (r *recorder) written(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending -= n
	if r.pending == 0 && r.empty != nil {
		close(r.empty)
		r.empty = nil
	}
}

// write records a batch, again and again while the database is away. uncertain tells that an earlier try may have
// committed.
func (r *recorder) write(ctx context.Context, batch []outcome, uncertain bool) {
	for failures := 0; ; {
		held, err := r.record(ctx, batch)
		switch {
		case err == nil:
			if failures > 0 {
				r.e.log.Info("worker.record_recovered", "jobs", len(batch))
			}
			r.e.board.stall(false)
			r.conclude(batch, held, uncertain)
			return
		case store.IsDataError(err):
			r.e.board.stall(false) // the database answers
			r.split(ctx, batch, uncertain, err)
			return
		case store.MayRepeat(err) && failures < 3:
			failures++
			continue
		}
		failures++
		uncertain = uncertain || store.Code(err) == ""
		if r.rest(ctx, len(batch), failures, err); ctx.Err() != nil {
			return
		}
		if timedOut(err) && len(batch) > 1 {
			r.halve(ctx, batch, uncertain)
			return
		}
	}
}

// rest stops claiming, has the leases of what can't be recorded renewed, and waits a while.
func (r *recorder) rest(ctx context.Context, jobs, failures int, err error) {
	r.e.board.stall(true)
	r.e.keeper.hurry()
	wait := backoff(failures, r.e.cfg.Random())
	r.e.log.Warn("worker.record_failed", "jobs", jobs, "error", store.Describe(err), "retryInMs", wait.Milliseconds())
	sleep(ctx, wait)
}

// timedOut tells that a write took too long, for which its size may be to blame.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || store.Code(err) == "57014"
}

func (r *recorder) halve(ctx context.Context, batch []outcome, uncertain bool) {
	half := len(batch) / 2
	r.write(ctx, batch[:half], uncertain)
	r.write(ctx, batch[half:], uncertain)
}

// split narrows a batch down to the row that the database can't store, which then goes without its texts: they are the
// only part of it that came from outside.
func (r *recorder) split(ctx context.Context, batch []outcome, uncertain bool, cause error) {
	if len(batch) > 1 {
		r.halve(ctx, batch, uncertain)
		return
	}
	o := &batch[0]
	if o.result.Error == "" && o.result.ProviderID == "" {
		r.e.log.Error("worker.record_refused", "jobId", o.job.ID, "error", store.Describe(cause))
		r.conclude(batch, nil, true)
		return
	}
	o.result.Error, o.result.ProviderID = "", ""
	r.write(ctx, batch, uncertain)
}

func (r *recorder) record(ctx context.Context, batch []outcome) (map[uuid.UUID]struct{}, error) {
	now := time.Now()
	b := store.Batch{Worker: r.e.cfg.ID, Events: r.e.cfg.Events}
	for i := range batch {
		o := &batch[i]
		id, token := o.job.ID, o.job.Token
		ago, lasted := elapsed(o.job.startedAt, now), elapsed(o.job.startedAt, o.ended)
		switch o.kind {
		case sent:
			b.Sent = append(b.Sent, store.Sent{ID: id, Token: token, ProviderID: o.result.ProviderID})
		case retried:
			b.Retried = append(b.Retried, store.Retried{
				ID: id, Token: token, Delay: o.decision.Delay,
				Error: o.result.Error, Class: string(o.result.Class), StartedAgo: ago, Lasted: lasted,
			})
		case finished:
			b.Ended = append(b.Ended, store.Ended{
				ID: id, Token: token, Status: o.decision.Status, Reason: o.decision.Reason,
				Error: o.result.Error, Class: string(o.result.Class), StartedAgo: ago, Lasted: lasted,
			})
		case overdue:
			b.Ended = append(b.Ended, store.Ended{ID: id, Token: token, Status: statusFailed, Reason: "expired"})
		case released:
			b.Released.Add(id, token)
		}
	}
	ctx, cancel := r.e.call(ctx)
	defer cancel()
	done, err := r.e.cfg.Store.Record(ctx, r.e.cfg.Pool, &b)
	if err != nil {
		return nil, err
	}
	held := make(map[uuid.UUID]struct{}, len(done))
	for _, id := range done {
		held[id] = struct{}{}
	}
	return held, nil
}

// statusFailed is the number of FAILED.
const statusFailed = 3

// conclude takes a written batch off the board and tells of it. Where an earlier try may have committed, a claim that is
// gone is no news.
func (r *recorder) conclude(batch []outcome, held map[uuid.UUID]struct{}, uncertain bool) {
	r.e.board.recorded(batch)
	r.written(len(batch))
	debug := r.e.log.Enabled(r.e.calls, slog.LevelDebug)
	for i := range batch {
		o := &batch[i]
		if _, ok := held[o.job.ID]; !ok {
			if !uncertain {
				r.e.log.Warn("job.claim_lost", "jobId", o.job.ID, "attempt", o.job.AttemptCount)
			}
			continue
		}
		if o.kind != sent || debug {
			r.tell(o)
		}
	}
}

func (r *recorder) tell(o *outcome) {
	log := r.e.log.With("jobId", o.job.ID, "attempt", o.job.AttemptCount, "channel", o.job.Channel)
	lasted := o.ended.Sub(o.job.startedAt).Milliseconds()
	switch o.kind {
	case sent:
		log.Debug("job.sent", "durationMs", lasted)
	case retried:
		log.Info("job.retry", "durationMs", lasted, "class", o.result.Class, "delayMs", o.decision.Delay.Milliseconds())
	case finished:
		log.Warn(o.decision.Event, "durationMs", lasted, "class", o.result.Class, "reason", o.decision.Reason)
	case overdue:
		log.Warn("job.fail", "reason", "expired")
	case released:
		log.Info("job.released", "why", o.why)
	}
}
