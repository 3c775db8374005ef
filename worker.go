package notifyq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/engine"
	"github.com/notifyq/notifyq/internal/notify"
	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/store"
)

// ErrDrainTimeout is what Worker.Run returns when deliveries were still running, or outcomes still unwritten, at the end
// of ShutdownTimeout. Their claims run out by themselves, and the jobs are delivered again under the same keys. It is also
// what Relay.Run returns when events were unacknowledged then: they are sent again under the same ids.
var ErrDrainTimeout = errors.New("not drained in time")

// ProviderConfig is how one channel is delivered.
type ProviderConfig struct {
	Provider Provider
	// Timeout bounds one delivery. Default 10 s; it must be at least 100 ms shorter than the worker's Lease, since a call
	// that outlived its lease could be made twice at once.
	Timeout time.Duration
	// Concurrency is how many deliveries of this channel run at once. Default and at most the worker's.
	Concurrency int
	// RatePerSecond spaces the starts of this channel in this worker. Zero means no limit.
	RatePerSecond float64
}

// WorkerConfig needs Providers; every other field has a default.
type WorkerConfig struct {
	// Providers by channel. A channel that is not among them is left to other workers.
	Providers map[Channel]ProviderConfig
	// Schema holds notifyq's tables. Default "notifyq".
	Schema string
	// ID names the worker in logs and rows, for people; claims go by a fresh token each. Default host, process id and a
	// random part. At most 255 bytes.
	ID string
	// Logger gets the events. Default slog.Default(). No payload, recipient, key or provider's error text is ever logged.
	Logger *slog.Logger
	// Client, if set, wakes this worker when it schedules something that is due, without the way through the database.
	Client *Client
	// PollOnly saves the connection on which the worker hears what other processes have scheduled: it finds that by polling
	// then. Set it where LISTEN can't work, behind a pooler in transaction mode; a worker finds that out by itself too, and
	// tries again every ten minutes.
	PollOnly bool

	// Concurrency is how many deliveries run at once, over all channels. One of them is set aside for each channel, so that
	// a provider that hangs holds up only itself; with fewer than channels there is nothing to set aside. Default 10, or
	// the BatchSize if that is smaller; at most 10,000.
	Concurrency int
	// BatchSize is how many jobs the worker holds at most: waiting, running and not yet recorded. Half of it is set aside
	// in equal parts for the channels. Default 100; at least the Concurrency, at most 10,000. Throughput grows with both,
	// and with BatchSize the time that an urgent job may wait for a place.
	BatchSize int
	// PollInterval is how often an idle worker looks for due jobs. Default 1 s; at least 10 ms.
	PollInterval time.Duration
	// Lease is how long a claim is worth: after it, another worker takes over what this one has not recorded. It is
	// renewed for jobs that wait. Default 5 min; at least 1 s.
	Lease time.Duration
	// RecoveryInterval is how often expired claims are looked for and other housekeeping is done. Default 30 s; at least
	// 100 ms.
	RecoveryInterval time.Duration
	// ShutdownTimeout is what running deliveries get at a stop. Default 10 s. Writing outcomes may take two seconds more;
	// give the process 5 s more than this before it is killed.
	ShutdownTimeout time.Duration
	// Retry is the backoff. Default 1 s doubled up to 5 min.
	Retry RetryPolicy
	// RateLimits hold per recipient, over all workers. Default none.
	RateLimits []RateLimit
	// LowPriorityShare is the part of what is claimed that lower priorities may take before higher ones, 0 to 0.9. At the
	// default, 0, priority is strict, and an endless stream of high priority holds the others up for as long as it lasts.
	LowPriorityShare float64
	// RecordEvents writes an event with every SENT, FAILED and DEAD_LETTERED, for a relay to publish. Off by default, so
	// that nothing piles up where nothing is published. All workers on a schema should agree: any of them may be the one
	// that recovers or expires a job.
	RecordEvents bool
	// Publisher, if set, makes the worker run a relay beside it, and record events. It takes two connections more.
	Publisher Publisher
	// Relay is how that relay works. Its Publisher, Schema, ID, Logger, Client, PollOnly, EventRetention and, unless it is
	// set, ShutdownTimeout are the worker's, and may not be set here.
	Relay RelayConfig
	// Retention removes jobs that finished longer ago. Default 0, which keeps them; at least 1 min.
	Retention time.Duration
	// EventRetention removes events that were published longer ago. Default 0, which keeps them; at least 1 min.
	EventRetention time.Duration

	// firstPause replaces the first pause of a misconfigured provider in tests.
	firstPause time.Duration
}

// LeaseMargin is what a Lease must have beside the Timeout of each provider: time to be claimed or renewed in.
const LeaseMargin = 100 * time.Millisecond

// Pauses of a provider that answers Misconfigured: the first, and the longest they grow to.
const (
	firstProviderPause = 5 * time.Second
	maxProviderPause   = 5 * time.Minute
)

// Worker claims due jobs, delivers them and records what came of it. Any number may run on one database.
type Worker struct {
	cfg      WorkerConfig
	pool     *pgxpool.Pool
	store    *store.Store
	log      *slog.Logger
	relay    *Relay                          // nil without a Publisher
	engine   atomic.Pointer[engine.Engine]   // nil before Run
	listener atomic.Pointer[notify.Listener] // nil before Run, and with PollOnly
	stopped  atomic.Bool
	started  atomic.Bool
}

// NewWorker checks the configuration; it does not touch the database. The worker takes only the address and the
// credentials from pool and opens three connections of its own, so that a busy pool can't hold up a lease: two to work
// with and, unless it is PollOnly, one to listen on.
func NewWorker(pool *pgxpool.Pool, cfg WorkerConfig) (*Worker, error) {
	if pool == nil {
		return nil, invalid("pool", "must not be nil")
	}
	cfg, err := cfg.withDefaults()
	if err == nil {
		err = cfg.validate()
	}
	if err != nil {
		return nil, err
	}
	w := &Worker{cfg: cfg, pool: pool, store: newStore(cfg.Schema), log: cfg.Logger.With("workerId", cfg.ID)}
	if cfg.Publisher != nil {
		if w.relay, err = cfg.newRelay(pool); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// newRelay is the relay that runs beside the worker.
func (cfg *WorkerConfig) newRelay(pool *pgxpool.Pool) (*Relay, error) {
	r := cfg.Relay
	if r.Publisher != nil || r.Schema != "" || r.ID != "" || r.Logger != nil || r.Client != nil || r.PollOnly || r.EventRetention != 0 {
		return nil, invalid("Relay", "must not set Publisher, Schema, ID, Logger, Client, PollOnly or EventRetention: they are the worker's")
	}
	r.Publisher, r.Schema, r.ID, r.Logger, r.Client = cfg.Publisher, cfg.Schema, cfg.ID, cfg.Logger, cfg.Client
	r.PollOnly = true // the worker listens for both
	r.ShutdownTimeout = cmp.Or(r.ShutdownTimeout, cfg.ShutdownTimeout)
	made, err := NewRelay(pool, r)
	if err != nil {
		return nil, fmt.Errorf("Relay: %w", err)
	}
	return made, nil
}

func (cfg WorkerConfig) withDefaults() (WorkerConfig, error) {
	cfg.Schema = cmp.Or(cfg.Schema, DefaultSchema)
	cfg.ID = cmp.Or(cfg.ID, defaultID())
	if cfg.Concurrency == 0 {
		cfg.Concurrency = 10
		if cfg.BatchSize > 0 {
			cfg.Concurrency = min(10, cfg.BatchSize)
		}
	}
	cfg.BatchSize = cmp.Or(cfg.BatchSize, max(100, cfg.Concurrency))
	cfg.PollInterval = cmp.Or(cfg.PollInterval, time.Second)
	cfg.Lease = cmp.Or(cfg.Lease, 5*time.Minute)
	cfg.RecoveryInterval = cmp.Or(cfg.RecoveryInterval, 30*time.Second)
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, 10*time.Second)
	cfg.Retry = cfg.Retry.withDefaults()
	cfg.firstPause = cmp.Or(cfg.firstPause, firstProviderPause)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Concurrency < 1 {
		return cfg, invalid("Concurrency", "must be between 1 and 10,000")
	}
	providers := make(map[Channel]ProviderConfig, len(cfg.Providers))
	for channel, p := range cfg.Providers {
		p.Timeout = cmp.Or(p.Timeout, 10*time.Second)
		p.Concurrency = cmp.Or(p.Concurrency, cfg.Concurrency)
		providers[channel] = p
	}
	cfg.Providers = providers
	cfg.RateLimits = slices.Clone(cfg.RateLimits)
	cfg.RecordEvents = cfg.RecordEvents || cfg.Publisher != nil
	return cfg, nil
}

// defaultID is unique among processes and among the workers of one, and says where to look.
func defaultID() string {
	host, err := os.Hostname()
	if err != nil || checkText("ID", host, 200) != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d-%08x", host, os.Getpid(), rand.Uint32())
}

func (cfg *WorkerConfig) validate() error {
	const day = 24 * time.Hour
	if !schema.ValidName(cfg.Schema) {
		return invalid("Schema", schemaRule)
	}
	switch {
	case cfg.Concurrency > 10_000:
		return invalid("Concurrency", "must be between 1 and 10,000")
	case cfg.BatchSize < cfg.Concurrency || cfg.BatchSize > 10_000:
		return invalid("BatchSize", fmt.Sprintf("must be between the Concurrency (%d) and 10,000", cfg.Concurrency))
	case !(cfg.LowPriorityShare >= 0 && cfg.LowPriorityShare <= 0.9):
		return invalid("LowPriorityShare", "must be between 0 and 0.9")
	case cfg.Retention != 0 && cfg.Retention < time.Minute:
		return invalid("Retention", "must be 0 or at least 1m")
	case cfg.EventRetention != 0 && cfg.EventRetention < time.Minute:
		return invalid("EventRetention", "must be 0 or at least 1m")
	case cfg.Client != nil && cfg.Client.cfg.Schema != cfg.Schema:
		return invalid("Client", "must work on the worker's schema")
	case cfg.Publisher == nil && cfg.Relay != RelayConfig{}:
		return invalid("Relay", "must not be set without a Publisher")
	}
	err := errors.Join(
		checkName("ID", cfg.ID, 255),
		checkDuration("PollInterval", cfg.PollInterval, 10*time.Millisecond, time.Hour),
		checkDuration("Lease", cfg.Lease, time.Second, day),
		checkDuration("RecoveryInterval", cfg.RecoveryInterval, 100*time.Millisecond, day),
		checkDuration("ShutdownTimeout", cfg.ShutdownTimeout, 0, time.Hour),
		cfg.Retry.validate(),
		cfg.validateProviders(),
	)
	for i, limit := range cfg.RateLimits {
		err = errors.Join(err, limit.validate(i))
	}
	return err
}

func (cfg *WorkerConfig) validateProviders() error {
	if len(cfg.Providers) == 0 {
		return invalid("Providers", "must name at least one channel")
	}
	for channel, p := range cfg.Providers {
		field := func(name string) string { return fmt.Sprintf("Providers[%s].%s", channel, name) }
		if err := checkChannel("Providers", channel); err != nil {
			return err
		}
		switch {
		case p.Provider == nil:
			return invalid(field("Provider"), "must not be nil")
		case p.Timeout < time.Millisecond || p.Timeout > cfg.Lease-LeaseMargin:
			return invalid(field("Timeout"), fmt.Sprintf("must be at least 1ms and %v shorter than the Lease (%v)", LeaseMargin, cfg.Lease))
		case p.Concurrency < 1 || p.Concurrency > cfg.Concurrency:
			return invalid(field("Concurrency"), fmt.Sprintf("must be between 1 and the worker's (%d)", cfg.Concurrency))
		case p.RatePerSecond != 0 && !(p.RatePerSecond >= 0.001 && p.RatePerSecond <= 1e6):
			return invalid(field("RatePerSecond"), "must be 0 or between 0.001 and 1,000,000")
		}
	}
	return nil
}

// Run works until ctx ends, and then drains: nothing more is claimed, unstarted jobs go back at once with their attempts
// refunded, running deliveries get ShutdownTimeout under a context that the stop does not cancel. It returns nil after a
// clean drain and ErrDrainTimeout otherwise; by then nothing of it runs any more but calls whose providers ignore their
// context.
//
// A database that is away is waited for, at the start too. ErrSchema means that waiting can't help: the schema is
// missing or too old, or the role may not use it. A worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	if !w.started.CompareAndSwap(false, true) {
		return invalid("Worker", "must be run only once")
	}
	own, err := ownPool(ctx, w.pool, 2)
	if err != nil {
		return err
	}
	defer closeWithin(own, time.Second)
	if err := awaitSchema(ctx, own, w.cfg.Schema, w.log, "worker.database_away"); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it started
		}
		return err
	}
	if w.relay == nil {
		return w.work(ctx, own)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var relayed error
	var beside sync.WaitGroup
	beside.Go(func() {
		defer stop() // a relay that can't run is told by the end of the worker
		relayed = w.relay.Run(ctx)
	})
	err = w.work(ctx, own)
	beside.Wait()
	return errors.Join(err, relayed)
}

// work runs the engine until it has drained.
func (w *Worker) work(ctx context.Context, own *pgxpool.Pool) error {
	tell := teller(w.aside, w.store, own)
	events := notify.NewNotifier(store.KindEvents, w.log, tell)
	e := engine.New(w.engineConfig(own, events))
	w.engine.Store(e)
	defer context.AfterFunc(ctx, func() { w.stopped.Store(true) })()
	if w.cfg.Client != nil {
		defer w.cfg.Client.wakers.add(e.Wake)()
	}
	if !w.cfg.PollOnly {
		defer w.listen(ctx, own, tell)()
	}
	defer within(time.Second, events.Wait) // the drain records events too
	stuck, unrecorded := e.Run(ctx)
	if len(stuck) == 0 && unrecorded == 0 {
		return nil
	}
	names := make([]string, 0, 10)
	for _, id := range stuck[:min(len(stuck), 10)] {
		names = append(names, id.String())
	}
	return fmt.Errorf("%w: %d deliveries still running (%s), %d outcomes not recorded", ErrDrainTimeout, len(stuck), strings.Join(names, ", "), unrecorded)
}

// aside makes a call that must not take the connections of leases and outcomes.
func (w *Worker) aside(ctx context.Context, call func(ctx context.Context) error) error {
	return w.engine.Load().Aside(ctx, call)
}

// listen wakes the worker and its relay for what other processes tell.
func (w *Worker) listen(ctx context.Context, own *pgxpool.Pool, tell func(ctx context.Context, kind string) error) (wait func()) {
	wake := map[string]func(){store.KindJobs: w.engine.Load().Wake}
	if w.relay != nil {
		wake[store.KindEvents] = w.relay.wake
	}
	l, wait := listen(ctx, notify.Config{
		Store: w.store, Logger: w.log, Connect: connectLike(own), Send: tell, Wake: wake,
	})
	w.listener.Store(l)
	return wait
}

func (w *Worker) engineConfig(own *pgxpool.Pool, events *notify.Pulse) engine.Config {
	cfg := engine.Config{
		Store: w.store, Pool: own, Logger: w.cfg.Logger, ID: w.cfg.ID,
		Concurrency: w.cfg.Concurrency, BatchSize: w.cfg.BatchSize, LowShare: w.cfg.LowPriorityShare,
		PollInterval: w.cfg.PollInterval, Lease: w.cfg.Lease, RecoveryInterval: w.cfg.RecoveryInterval,
		ShutdownTimeout: w.cfg.ShutdownTimeout, Retention: w.cfg.Retention, EventRetention: w.cfg.EventRetention,
		Events: w.cfg.RecordEvents, Deliver: w.deliver, Decide: w.decide, Limits: newLimits(w.cfg.RateLimits),
		GivenUp: ErrLeaseLost, Clean: cleanError, Random: rand.Float64, FirstPause: w.cfg.firstPause, MaxPause: max(maxProviderPause, w.cfg.firstPause),
	}
	cfg.Recorded = events.Beat
	if w.relay != nil {
		cfg.Recorded = w.relay.wake
	}
	for channel, p := range w.cfg.Providers {
		cfg.Lanes = append(cfg.Lanes, engine.LaneConfig{
			Channel: string(channel), Timeout: p.Timeout, Concurrency: p.Concurrency, RatePerSecond: p.RatePerSecond,
		})
	}
	slices.SortFunc(cfg.Lanes, func(a, b engine.LaneConfig) int { return cmp.Compare(a.Channel, b.Channel) })
	return cfg
}

// deliver makes one attempt with the channel's provider.
func (w *Worker) deliver(ctx context.Context, j *engine.Job) engine.Result {
	receipt, err := w.cfg.Providers[Channel(j.Channel)].Provider.Deliver(ctx, Delivery{
		Key: j.ID, Attempt: int(j.AttemptCount), FirstAttemptAt: j.FirstAttemptAt.UTC(), Tenant: j.Tenant,
		Recipient: j.Recipient, Channel: Channel(j.Channel), Payload: j.Payload,
		TraceContext: j.TraceContext,
	})
	if err == nil {
		return engine.Result{Class: engine.ClassSent, ProviderID: cut(cleanError(receipt.ProviderID), 255)}
	}
	r := engine.Result{Class: engine.Class(classOf(err)), Error: cleanError(err.Error())}
	var marked *deliveryError
	if !errors.As(err, &marked) && ctx.Err() != nil {
		r.Class = engine.ClassTimeout // whether the request went out, nobody said
	}
	r.RetryAfter, _ = RetryDelay(err)
	return r
}

// decide is the retry policy: see nextStatus and RetryPolicy.
func (w *Worker) decide(j *engine.Job, r engine.Result) engine.Decision {
	unknown := r.Class == engine.ClassAmbiguous || r.Class == engine.ClassTimeout || r.Class == engine.ClassPanic
	if unknown && j.Park {
		return ended(StatusDeadLettered, ReasonAmbiguous)
	}
	switch next := nextStatus(r.Class == engine.ClassPermanent, int(j.AttemptCount), int(j.MaxAttempts)); next {
	case StatusFailed:
		return ended(next, ReasonRefused)
	case StatusDeadLettered:
		return ended(next, ReasonExhausted)
	default:
		delay := w.cfg.Retry.Delay(int(j.AttemptCount), rand.Float64())
		return engine.Decision{Retry: true, Delay: max(delay, min(r.RetryAfter, maxRetryAfter))}
	}
}

// maxRetryAfter bounds what a provider may ask for.
const maxRetryAfter = 24 * time.Hour

func ended(s Status, reason string) engine.Decision {
	number, _ := s.number()
	event := "job.dead_letter"
	if s == StatusFailed {
		event = "job.fail"
	}
	return engine.Decision{Status: number, Reason: reason, Event: event}
}

// WorkerStats is what a worker has done since it started, and what it holds.
type WorkerStats struct {
	Claimed, Sent, Retried int64
	Failed, DeadLettered   int64
	Released               int64 // handed back with the attempt refunded: at a stop, or with the provider misconfigured
	Deferred               int64 // sent back by a rate limit
	LeaseLost              int64 // what was told too late: another worker had the job
	Recovered              int64 // expired claims of other workers
	// Waiting jobs are claimed and not started; Unrecorded ones have an outcome that is not written yet.
	Waiting, Running, Unrecorded int
	// PolledAt is when the worker last looked for due jobs, or had no room for any. One that is alive and has its database
	// keeps it within a poll interval and the time of a claim. Zero before the first.
	PolledAt time.Time
	// Draining tells that the worker has been told to stop.
	Draining bool
	// Listening tells that the worker hears what other processes have scheduled, as far as it knows. Without it, it polls.
	Listening bool
	// Relay is that of the worker's relay; zero without a Publisher.
	Relay RelayStats
}

// Stats reads counters. It does not ask the database.
func (w *Worker) Stats() WorkerStats {
	stats := WorkerStats{Draining: w.stopped.Load()}
	if l := w.listener.Load(); l != nil {
		stats.Listening = l.Listening()
	}
	if w.relay != nil {
		stats.Relay = w.relay.Stats()
		stats.Relay.Listening = stats.Listening
	}
	e := w.engine.Load()
	if e == nil {
		return stats
	}
	c := e.Counts()
	stats.Claimed, stats.Sent, stats.Retried, stats.Failed, stats.DeadLettered = c.Claimed, c.Sent, c.Retried, c.Failed, c.DeadLettered
	stats.Released, stats.Deferred, stats.LeaseLost, stats.Recovered = c.Released, c.Deferred, c.LeaseLost, c.Recovered
	stats.Waiting, stats.Running, stats.Unrecorded, stats.PolledAt = c.Waiting, c.Running, c.Unrecorded, c.PolledAt
	return stats
}
