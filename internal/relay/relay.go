// Package relay is the machinery that publishes the outbox: it claims due events, has them sent, records what came of
// it, and keeps an eye on their receivers. It knows no broker and no policy, which come in as functions, and no SQL, which
// is the store's.
//
// # An event's way
//
//	claimer ──▶ slots ──▶ sender (a goroutine each) ──▶ recorder ──▶ the slot is free
//	                          │                            │
//	                          └── watchdog                 └── keeper renews what can't be recorded
//
// An event is claimed only when there is a slot to send it from, and its send begins at once. The slot is taken until the
// end of the claim is written, so memory is bounded by slots and, since bodies can be large, by bytes.
//
// # Who may do what when
//
// A claim is worth its lease, measured from before the claim was sent on a clock that can't run slower than the
// database's. A send gets its Timeout, or what is left of the lease if that is less, so nobody else sends the event
// meanwhile; if too little is left, the event goes back unsent. Every statement that ends a claim is fenced by its token
// all the same, and no transaction is open during a send.
//
// What is not acknowledged stays in the outbox. What is acknowledged and can't be recorded, since the process died or its
// lease ran out, is sent again under the same id.
package relay

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/notifyq/notifyq/internal/pruning"
	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Config is what a relay needs. Every field is set and checked by the caller.
type Config struct {
	Store  *store.Store
	Pool   *pgxpool.Pool // the relay's own connections
	Logger *slog.Logger
	ID     string

	Concurrency     int
	PollInterval    time.Duration
	Timeout         time.Duration // of one send, shorter than the lease
	Lease           time.Duration
	SampleInterval  time.Duration
	ShutdownTimeout time.Duration
	Retention       time.Duration // 0 keeps published events
	MaxAttempts     int           // 0: no limit

	// Publish makes one attempt and waits for the acknowledgement. It may panic, exit its goroutine or ignore ctx.
	Publish func(ctx context.Context, e *Event) Result
	// Endpoint tells where an event goes; nil where there is nothing to tell. It may panic, exit its goroutine or block.
	Endpoint func(e *Event) Endpoint
	// Only is the endpoint of a publisher that has but one; its Name is empty otherwise.
	Only Endpoint
	// Delay is the backoff after the nth failure, its random part included.
	Delay func(failures int) time.Duration
	// GivenUp is the cause of the context's end in a send that the drain does not wait for any longer.
	GivenUp error
	// Clean makes a publisher's text storable.
	Clean func(text string) string
	// Random is uniform in [0, 1).
	Random func() float64
	// Thresholds are the failure counts that telemetry tells apart.
	Thresholds []int32
	// MaxPause bounds the pauses of a publisher that is unavailable.
	MaxPause time.Duration
}

// Result is what an attempt came to.
type Result struct {
	Class      Class
	Error      string // clean: valid UTF-8, no NUL, bounded
	RetryAfter time.Duration
}

// Class sorts results.
type Class string

// The classes.
const (
	Accepted    Class = "accepted"
	NotSent     Class = "not_sent"
	Rejected    Class = "rejected"
	Refused     Class = "refused" // no repetition can help
	Unknown     Class = "unknown"
	Unavailable Class = "unavailable" // not the event's fault; nothing was sent
	Gone        Class = "gone"        // the receiver wants no more
	Panicked    Class = "panic"
)

// Relay publishes the outbox.
type Relay struct {
	cfg       Config
	log       *slog.Logger
	slots     *slots
	claimer   *claimer
	recorder  *recorder
	endpoints *endpoints
	counts    counters
	sample    atomic.Pointer[Sample]
	// aside is held during calls that nothing waits for, so that one of the two connections is always left to claims and
	// write-backs.
	aside *semaphore.Weighted
	// sends is what the publisher's calls run under: it outlives the stop and ends with the drain.
	sends context.Context
	// calls is what ends database calls when the time of the drain is over.
	calls context.Context
}

// New builds a relay; Run starts it.
func New(cfg Config) *Relay {
	r := &Relay{cfg: cfg, log: cfg.Logger.With("relayId", cfg.ID), aside: semaphore.NewWeighted(1)}
	r.slots = newSlots(cfg.Concurrency)
	r.claimer = &claimer{r: r, short: true, bookings: make(chan time.Time, 64)}
	r.recorder = newRecorder(r)
	r.endpoints = newEndpoints(r)
	return r
}

// Wake looks for due events now instead of at the next poll.
func (r *Relay) Wake() { r.slots.wantMore() }

// Aside makes a call that nothing waits for, in its turn with the chores.
func (r *Relay) Aside(ctx context.Context, call func(ctx context.Context) error) error {
	if err := r.aside.Acquire(ctx, 1); err != nil {
		return err
	}
	defer r.aside.Release(1)
	return call(ctx)
}

// recordGrace is how much longer than ShutdownTimeout a drain may take to write what is known.
const recordGrace = 2 * time.Second

// Run works until ctx ends and then drains: what has not started goes back at once, a claim that returns during the stop
// included; what is being sent gets ShutdownTimeout. What is still unacknowledged then is handed back without a failure
// counted, and told as stuck; unrecorded is what could not be written, with the database away.
func (r *Relay) Run(ctx context.Context) (stuck, unrecorded int) {
	sends, endSends := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endSends(nil)
	calls, endCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer endCalls()
	r.sends, r.calls = sends, calls
	back, stopBack := context.WithCancel(context.WithoutCancel(ctx)) // what must outlive the sends
	defer stopBack()
	var behind, front, chores errgroup.Group
	run := func(g *errgroup.Group, ctx context.Context, loop func(context.Context)) {
		g.Go(func() error { loop(ctx); return nil })
	}
	run(&behind, back, r.recorder.Loop)
	run(&behind, back, r.keep)
	run(&behind, back, r.watch)
	run(&front, ctx, r.claimer.loop)
	run(&chores, ctx, r.sampleLoop)
	run(&chores, ctx, r.endpoints.loop)
	run(&chores, ctx, r.prune)

	r.log.Info("relay.started", "concurrency", r.cfg.Concurrency)
	<-ctx.Done()
	r.slots.shutDown()
	began := time.Now()
	deadline := began.Add(r.cfg.ShutdownTimeout)
	// A database that does not answer must not hold the process.
	defer time.AfterFunc(r.cfg.ShutdownTimeout+recordGrace, endCalls).Stop()
	r.log.Info("relay.draining", "sending", r.slots.running())
	_ = front.Wait() // no claim is in progress any more
	stuck = r.awaitSends(deadline)
	endSends(r.cfg.GivenUp)
	unrecorded = r.recorder.Drain(deadline.Add(recordGrace))
	_ = chores.Wait()
	// What the last sends told of the receivers.
	if err := r.endpoints.report(calls); err != nil {
		r.log.Warn("relay.endpoints_failed", "error", store.Describe(err))
	}
	stopBack()
	_ = behind.Wait()
	r.log.Info("relay.drained", "handedBack", stuck, "unrecorded", unrecorded, "durationMs", time.Since(began).Milliseconds())
	return stuck, unrecorded
}

// awaitSends waits for the ends of what is held, at most until deadline, and hands back the rest. What its sends return
// after that is ignored.
func (r *Relay) awaitSends(deadline time.Time) (stuck int) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-r.slots.idle():
		return 0
	case <-timer.C:
	}
	for _, e := range r.slots.unsettled() {
		if e.settle() {
			stuck++
			r.leave(e)
			r.end(release(e, 0, "shutdown"))
		}
	}
	<-r.slots.idle()
	return stuck
}

// call is a context for one database call. It isn't ended by the stop, only by the end of the drain: a claim or a record
// whose answer is not awaited would leave its rows to their leases.
func (r *Relay) call(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := min(max(r.cfg.Lease/4, time.Second), 15*time.Second)
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(r.calls, cancel)
	return call, func() { stop(); cancel() }
}

// choreTimeout bounds a call of a chore, which has to get past the dead entries that a held snapshot keeps.
const choreTimeout = 10 * time.Second

// chore makes a call that nothing waits for: it ends with ctx.
func (r *Relay) chore(ctx context.Context, call func(ctx context.Context) error) error {
	return r.Aside(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, choreTimeout)
		defer cancel()
		return call(ctx)
	})
}

func (r *Relay) prune(ctx context.Context) {
	if r.cfg.Retention == 0 {
		return
	}
	pruning.Loop(ctx, pruning.Config{
		Tables: pruning.Events(r.cfg.Store, r.cfg.Pool, r.cfg.Retention), Logger: r.log, Random: r.cfg.Random, Call: r.chore,
	})
}

// keepEvery is how often leases are looked at.
func (r *Relay) keepEvery() time.Duration {
	return min(max(r.cfg.Lease/8, 20*time.Millisecond), 10*time.Second)
}

// renewBatch bounds one renewal.
const renewBatch = 500

// keep renews the leases of what is held for longer than half of them: while the outcome can't be recorded, above all.
func (r *Relay) keep(ctx context.Context) {
	for {
		if timing.Sleep(ctx, r.keepEvery()); ctx.Err() != nil {
			return
		}
		due := r.slots.old(time.Now())
		for len(due) > 0 && ctx.Err() == nil {
			n := min(renewBatch, len(due))
			if err := r.renew(ctx, due[:n]); err != nil {
				r.log.Warn("relay.renew_failed", "events", len(due), "error", store.Describe(err))
				break
			}
			due = due[n:]
		}
	}
}

func (r *Relay) renew(ctx context.Context, events []*Event) error {
	var claims store.Claims
	held := make(map[store.Claim]*Event, len(events))
	for _, e := range events {
		claims.Add(e.ID, e.token)
		held[store.Claim{ID: e.ID, Token: e.token}] = e
	}
	ctx, cancel := r.call(ctx)
	defer cancel()
	sent := time.Now()
	done, err := r.cfg.Store.RenewEvents(ctx, r.cfg.Pool, claims, r.cfg.Lease)
	if err != nil {
		return err
	}
	for i := range done.Len() {
		r.slots.renewed(held[store.Claim{ID: done.IDs[i], Token: done.Tokens[i]}], sent)
	}
	return nil
}
