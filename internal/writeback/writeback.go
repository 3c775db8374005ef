// Package writeback writes what became known in memory back to the database. Batches form by themselves: what has
// arrived is written as soon as the write before has returned, never after a timer, so one outcome a second is written at
// once and 40,000 a second share their commits.
//
// What can't be written is kept and tried again until the database is back. A batch that fails for one row, its values or
// somebody's lock on it, is narrowed down to that row, which is then put aside: it holds up no other.
package writeback

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Held are the ids of a batch whose claims were still held when it was written.
type Held map[uuid.UUID]struct{}

// Config is what a Writer of T does.
type Config[T any] struct {
	// Write writes a batch in one transaction.
	Write func(ctx context.Context, batch []T) (Held, error)
	// Done takes a batch off the caller's hands. uncertain tells that an earlier try may have committed, so that a claim
	// that is gone is no news.
	Done func(batch []T, held Held, uncertain bool)
	// Strip removes what came from outside, for the row that the database can't store. It tells whether there was any.
	Strip func(item *T) bool
	// Refused takes a row off the caller's hands that can't be stored even so: it is given up.
	Refused func(item *T, cause error)
	// Waiting tells of a failure, before the wait that follows it; Answered that the database has answered, and how often
	// it had failed before.
	Waiting  func(items int, cause error, wait time.Duration)
	Answered func(items, failures int)
	// Random is uniform in [0, 1).
	Random func() float64
}

// asideFor is how long a row is put aside.
const asideFor = time.Second

// batchSize bounds one write. What a transaction costs beside its rows is about a millisecond, mostly its flush.
const batchSize = 2000

// Writer is the queue in front of the database. Loop empties it.
type Writer[T any] struct {
	cfg     Config[T]
	mu      sync.Mutex
	queue   []T
	late    []T // put aside, and to be tried again now
	pending int // queued, aside and being written
	empty   chan struct{}
	signal  chan struct{}
}

// New makes a Writer.
func New[T any](cfg Config[T]) *Writer[T] {
	return &Writer[T]{cfg: cfg, signal: make(chan struct{}, 1)}
}

// Add queues an item.
func (w *Writer[T]) Add(item T) {
	w.mu.Lock()
	w.queue = append(w.queue, item)
	w.pending++
	w.mu.Unlock()
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

func (w *Writer[T]) take() []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.queue), batchSize)
	batch := make([]T, n)
	copy(batch, w.queue)
	rest := copy(w.queue, w.queue[n:])
	clear(w.queue[rest:])
	w.queue = w.queue[:rest]
	return batch
}

func (w *Writer[T]) takeLate() []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	late := w.late
	w.late = nil
	return late
}

// aside tries an item again later.
func (w *Writer[T]) aside(item T) {
	time.AfterFunc(asideFor, func() {
		w.mu.Lock()
		w.late = append(w.late, item)
		w.mu.Unlock()
		select {
		case w.signal <- struct{}{}:
		default:
		}
	})
}

// Loop writes until ctx ends.
func (w *Writer[T]) Loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.signal:
		}
		for batch := w.take(); len(batch) > 0 && ctx.Err() == nil; batch = w.take() {
			w.write(ctx, batch, false)
		}
		for _, item := range w.takeLate() {
			w.write(ctx, []T{item}, true)
		}
	}
}

// Drain waits until everything is written, at most until deadline, and tells how many items are left.
func (w *Writer[T]) Drain(deadline time.Time) int {
	w.mu.Lock()
	if w.pending == 0 {
		w.mu.Unlock()
		return 0
	}
	w.empty = make(chan struct{})
	empty := w.empty
	w.mu.Unlock()
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending
}

// gone notes that so many items are off its hands.
func (w *Writer[T]) gone(items int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending -= items
	if w.pending == 0 && w.empty != nil {
		close(w.empty)
		w.empty = nil
	}
}

// write writes a batch, again and again while the database is away.
func (w *Writer[T]) write(ctx context.Context, batch []T, uncertain bool) {
	for failures := 0; ; {
		held, err := w.cfg.Write(ctx, batch)
		uncertain = uncertain || (err != nil && store.InPart(err))
		switch {
		case err == nil:
			w.cfg.Answered(len(batch), failures)
			w.cfg.Done(batch, held, uncertain)
			w.gone(len(batch))
			return
		case store.IsRowError(err):
			w.cfg.Answered(len(batch), 0)
			w.narrow(ctx, batch, uncertain, err)
			return
		case store.MayRepeat(err) && failures < 3:
			failures++
			continue
		}
		failures++
		wait := timing.Backoff(failures, w.cfg.Random())
		w.cfg.Waiting(len(batch), err, wait)
		if timing.Sleep(ctx, wait); ctx.Err() != nil {
			return
		}
		if timedOut(err) && len(batch) > 1 {
			w.narrow(ctx, batch, uncertain, err)
			return
		}
	}
}

// timedOut tells that a write took too long, for which its size may be to blame.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || store.Code(err) == "57014"
}

// narrow goes on with the halves of a batch, down to the row that is to blame. One that the database can't store goes
// without its texts: they are the only part of it that came from outside.
func (w *Writer[T]) narrow(ctx context.Context, batch []T, uncertain bool, cause error) {
	switch {
	case len(batch) > 1:
		half := len(batch) / 2
		w.write(ctx, batch[:half], uncertain)
		w.write(ctx, batch[half:], uncertain)
	case !store.IsDataError(cause):
		w.aside(batch[0])
	case w.cfg.Strip(&batch[0]):
		w.write(ctx, batch, uncertain)
	default:
		w.cfg.Refused(&batch[0], cause)
		w.gone(1)
	}
}
