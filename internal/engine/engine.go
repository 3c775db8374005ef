// Package engine is the machinery of a worker: it claims jobs, admits them under the rate limits, has them delivered,
// records what came of it, and keeps leases and tables in order. It knows no provider and no policy, which come in as
// functions, and no SQL, which is the store's.
//
// # A job's way
//
//	claimer ──▶ board (waiting) ──▶ starter ──▶ runner ──▶ recorder ──▶ gone from memory
//	                 ▲                 │                      │
//	                 └── keeper renews the leases of what waits and of what is not recorded yet
//
// The board holds every claimed job until it is recorded, and is the only state that goroutines share; its mutex is
// held for memory work only. The starter is passed by unless a start needs the database: a rate limit to ask, a lease
// to renew, a started_at to write.
//
// # Who may do what when
//
// A claim is worth its lease, measured from before the claim was sent on a clock that can't run slower than the
// database's: what was claimed and is younger than that can have no other owner, so starting needs no round trip. Every
// statement that ends a claim is fenced by its token all the same.
package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/notifyq/notifyq/internal/store"
)

// Config is what a worker needs. Every field is set and checked by the caller.
type Config struct {
	Store  *store.Store
	Pool   *pgxpool.Pool // the engine's own connections; two are enough
	Logger *slog.Logger
	ID     string

	Lanes       []LaneConfig
	Concurrency int
	BatchSize   int
	LowShare    float64

	PollInterval     time.Duration
	Lease            time.Duration
	RecoveryInterval time.Duration
	ShutdownTimeout  time.Duration
	Retention        time.Duration // 0 keeps finished jobs
	EventRetention   time.Duration // 0 keeps published events
	Events           bool

	// Deliver makes one attempt. It may panic, exit its goroutine or ignore ctx.
	Deliver func(ctx context.Context, job *Job) Result
	// Decide is the policy: what an attempt that was not accepted leads to.
	Decide func(job *Job, r Result) Decision
	// Recorded, if set, is called after events were written: there is something to publish.
	Recorded func()
	// Limits is nil where nothing is limited.
	Limits Limits
	// GivenUp is the cause of the context's end in a call that the drain does not wait for any longer.
	GivenUp error
	// Clean makes a provider's text storable.
	Clean func(text string) string
	// Random is uniform in [0, 1).
	Random func() float64
	// FirstPause and MaxPause bound the growing pauses of a provider that says it is misconfigured.
	FirstPause, MaxPause time.Duration
}

// LaneConfig is one channel.
type LaneConfig struct {
	Channel       string
	Timeout       time.Duration // of one delivery; less than the lease
	Concurrency   int
	RatePerSecond float64 // 0: no limit
}

// Result is what an attempt came to.
type Result struct {
	Class      Class
	ProviderID string
	Error      string // clean: valid UTF-8, no NUL, bounded
	RetryAfter time.Duration
}

// Class sorts results. The words are those of notification_attempts.class, but for ClassSent and ClassMisconfigured,
// which write none.
type Class string

// The classes.
const (
	ClassSent          Class = "sent"
	ClassTransient     Class = "transient"
	ClassPermanent     Class = "permanent"
	ClassAmbiguous     Class = "ambiguous"
	ClassMisconfigured Class = "misconfigured"
	ClassTimeout       Class = "timeout"
	ClassPanic         Class = "panic"
)

// Decision is what follows an attempt that was not accepted: back to wait for Delay, or the end in Status.
type Decision struct {
	Retry  bool
	Delay  time.Duration
	Status int16
	Reason string
	Event  string // the log event
}

// Engine runs one worker.
type Engine struct {
	cfg      Config
	log      *slog.Logger
	board    *board
	claimer  *claimer
	starter  *starter
	recorder *recorder
	keeper   *keeper
	counts   counters
	// deliveries is what provider calls run under: it outlives the stop and ends with the drain.
	deliveries context.Context
	// calls is what ends database calls when the time of the drain is over.
	calls context.Context
	// callTimeout bounds every database call but those of housekeeping.
	callTimeout time.Duration
	// aside is held during calls that nothing waits for, housekeeping above all, so that one of the two connections is
	// always left to claims and outcomes.
	aside *semaphore.Weighted
}

// New builds an engine; Run starts it.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg:         cfg,
		log:         cfg.Logger.With("workerId", cfg.ID),
		callTimeout: min(max(cfg.Lease/4, time.Second), 15*time.Second),
		aside:       semaphore.NewWeighted(1),
	}
	e.board = newBoard(cfg)
	e.claimer = newClaimer(e)
	e.starter = newStarter(e)
	e.recorder = newRecorder(e)
	e.keeper = newKeeper(e)
	return e
}

// Wake looks for due jobs now instead of at the next poll.
func (e *Engine) Wake() { e.board.wantMore() }

// Aside makes a call that nothing waits for, in its turn with housekeeping.
func (e *Engine) Aside(ctx context.Context, call func(ctx context.Context) error) error {
	if err := e.aside.Acquire(ctx, 1); err != nil {
		return err
	}
	defer e.aside.Release(1)
	return call(ctx)
}

// Run works until ctx ends and then drains: unstarted jobs go back at once, running ones get ShutdownTimeout, and what
// runs longer is left to its lease and returned. The recorder is the last to stop, so that no outcome is lost that was
// known in time; unrecorded tells how many could not be written all the same, with the database away.
func (e *Engine) Run(ctx context.Context) (stuck []uuid.UUID, unrecorded int) {
	deliveries, endDeliveries := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endDeliveries(nil)
	e.deliveries = deliveries
	calls, endCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer endCalls()
	e.calls = calls

	back, stopBack := context.WithCancel(context.WithoutCancel(ctx)) // what must outlive the deliveries
	defer stopBack()
	var behind, front, chores errgroup.Group
	run := func(g *errgroup.Group, ctx context.Context, loop func(context.Context)) {
		g.Go(func() error { loop(ctx); return nil })
	}
	run(&behind, back, e.recorder.Loop)
	run(&behind, back, e.keeper.loop)
	run(&behind, back, e.watch)
	run(&front, ctx, e.claimer.loop)
	run(&front, ctx, e.starter.loop)
	run(&chores, ctx, e.housekeep)
	run(&chores, ctx, e.prune)

	e.log.Info("worker.started", "channels", len(e.cfg.Lanes), "concurrency", e.cfg.Concurrency, "batchSize", e.cfg.BatchSize)
	<-ctx.Done()
	began := time.Now()
	deadline := began.Add(e.cfg.ShutdownTimeout)
	// A database that does not answer must not hold the process: a claim and two records could take 45 s.
	defer time.AfterFunc(e.cfg.ShutdownTimeout+recordGrace, endCalls).Stop()
	waiting, active := e.board.drain()
	e.log.Info("worker.draining", "waiting", waiting, "running", active)
	_ = front.Wait() // no claim or admission is in progress any more
	e.releaseWaiting()
	stuck = e.awaitRunning(deadline)
	endDeliveries(e.cfg.GivenUp)
	unrecorded = e.recorder.Drain(deadline.Add(recordGrace))
	_ = chores.Wait() // a recovery in progress is waited for, but nothing has waited for it
	stopBack()
	_ = behind.Wait()
	e.log.Info("worker.drained", "stuck", len(stuck), "unrecorded", unrecorded, "durationMs", time.Since(began).Milliseconds())
	return stuck, unrecorded
}

// releaseWaiting hands back what was claimed and not started.
func (e *Engine) releaseWaiting() {
	for _, j := range e.board.takeWaiting() {
		e.recorder.Add(outcome{job: j, kind: released, why: "shutdown"})
	}
}

// awaitRunning waits for the deliveries in progress, at most until deadline. Those still running are given up: what they
// return is ignored.
func (e *Engine) awaitRunning(deadline time.Time) []uuid.UUID {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-e.board.idle:
		return nil
	case <-timer.C:
	}
	var stuck []uuid.UUID
	for _, j := range e.board.runningJobs() {
		if j.settle() {
			stuck = append(stuck, j.ID)
			e.board.giveUp(j)
		}
	}
	<-e.board.idle
	return stuck
}

// recordGrace is how much longer than ShutdownTimeout a drain may take to write what is known.
const recordGrace = 2 * time.Second

// call is a context for one database call. It isn't ended by the stop, only by the end of the drain: a claim or a record
// whose answer is not awaited would leave its rows to their leases.
func (e *Engine) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return e.callWithin(ctx, e.callTimeout)
}

func (e *Engine) callWithin(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(e.calls, cancel)
	return call, func() { stop(); cancel() }
}
