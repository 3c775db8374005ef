package notifyq_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/store"
)

// patience bounds every wait for something that has to happen. No test measures it.
const patience = 20 * time.Second

// poll is how often a wait looks where nothing gives a signal.
const poll = 5 * time.Millisecond

// workerBundle is what a test of the worker needs: a schema, a client on it, and the log of every worker it starts.
type workerBundle struct {
	*dbtest.DB
	t      testing.TB
	client *notifyq.Client
	store  *store.Store
	logs   *logRecord
	keys   atomic.Int64
}

func newWorkerBundle(t testing.TB) *workerBundle {
	t.Helper()
	return workerBundleOn(t, dbtest.New(t))
}

func workerBundleOn(t testing.TB, db *dbtest.DB) *workerBundle {
	t.Helper()
	b := &workerBundle{DB: db, t: t, logs: newLogRecord()}
	var err error
	b.client, err = notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema, Logger: b.logs.logger()})
	require.NoError(t, err)
	b.store = store.New(db.Schema, store.Guards{Cancel: []int16{0}, Redrive: []int16{3, 4}})
	return b
}

// config is a worker of channel EMAIL whose lease never runs out in a test, unless the test says so.
func (b *workerBundle) config(p notifyq.Provider) notifyq.WorkerConfig {
	return notifyq.WorkerConfig{
		Schema: b.Schema, Client: b.client, Logger: b.logs.logger(),
		Providers:        map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelEmail: {Provider: p}},
		PollInterval:     20 * time.Millisecond,
		Lease:            time.Minute,
		RecoveryInterval: 100 * time.Millisecond,
		ShutdownTimeout:  patience,
		Retry:            notifyq.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond},
	}
}

// runningWorker is a Run in progress.
type runningWorker struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	asked  bool
}

// start runs a worker until the test is over, which then fails if it did not drain cleanly.
func (b *workerBundle) start(cfg notifyq.WorkerConfig) *runningWorker {
	b.t.Helper()
	worker, err := notifyq.NewWorker(b.Pool, cfg)
	require.NoError(b.t, err)
	return b.startRun(worker.Run)
}

// startRun is start for anything that runs until its context ends.
func (b *workerBundle) startRun(run func(ctx context.Context) error) *runningWorker {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	w := &runningWorker{t: b.t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.err = run(ctx)
	}()
	b.t.Cleanup(func() {
		if err := w.stop(); !w.asked && err != nil {
			b.t.Errorf("it did not drain: %v", err)
		}
	})
	return w
}

// run is start with the default configuration.
func (b *workerBundle) run(p notifyq.Provider) *runningWorker {
	b.t.Helper()
	return b.start(b.config(p))
}

func (w *runningWorker) stop() error {
	w.cancel()
	select {
	case <-w.done:
		return w.err
	case <-time.After(patience + 10*time.Second):
		w.t.Errorf("Run does not return")
		return nil
	}
}

// drain stops the worker and returns what Run returned, for the test to judge.
func (w *runningWorker) drain() error {
	w.asked = true
	return w.stop()
}

// schedule stores one notification, due now, changed by edit.
func (b *workerBundle) schedule(edit ...func(*notifyq.Notification)) uuid.UUID {
	b.t.Helper()
	return b.scheduleMany(1, edit...)[0]
}

func (b *workerBundle) scheduleMany(n int, edit ...func(*notifyq.Notification)) []uuid.UUID {
	b.t.Helper()
	many := make([]notifyq.Notification, n)
	for i := range many {
		many[i] = notifyq.Notification{
			IdempotencyKey: fmt.Sprintf("key-%d", b.keys.Add(1)), Recipient: "u@example.test",
			Channel: notifyq.ChannelEmail, Payload: []byte(`{}`),
		}
		for _, e := range edit {
			e(&many[i])
		}
	}
	scheduled, err := b.client.ScheduleMany(b.t.Context(), many)
	require.NoError(b.t, err)
	ids := make([]uuid.UUID, n)
	for i, s := range scheduled {
		require.NoError(b.t, s.Err)
		ids[i] = s.ID
	}
	return ids
}

func withAttempts(n int) func(*notifyq.Notification) {
	return func(x *notifyq.Notification) { x.MaxAttempts = n }
}

func withPriority(p notifyq.Priority) func(*notifyq.Notification) {
	return func(x *notifyq.Notification) { x.Priority = p }
}

func onChannel(c notifyq.Channel) func(*notifyq.Notification) {
	return func(x *notifyq.Notification) { x.Channel = c }
}

func parked(x *notifyq.Notification) { x.OnAmbiguous = notifyq.AmbiguousPark }

func (b *workerBundle) job(id uuid.UUID) notifyq.Job {
	b.t.Helper()
	job, err := b.client.Get(b.t.Context(), id)
	require.NoError(b.t, err)
	return job
}

func (b *workerBundle) attempts(id uuid.UUID) []notifyq.Attempt {
	b.t.Helper()
	attempts, err := b.client.Attempts(b.t.Context(), id)
	require.NoError(b.t, err)
	return attempts
}

// failedAttempts leaves out the attempt that ended in SENT.
func (b *workerBundle) failedAttempts(id uuid.UUID) []notifyq.Attempt {
	b.t.Helper()
	return slices.DeleteFunc(b.attempts(id), func(a notifyq.Attempt) bool { return a.Class == "sent" })
}

// await waits until the job is in the given state, and returns it.
func (b *workerBundle) await(id uuid.UUID, status notifyq.Status) notifyq.Job {
	b.t.Helper()
	return b.awaitJob(id, func(j notifyq.Job) bool { return j.Status == status })
}

func (b *workerBundle) awaitJob(id uuid.UUID, ok func(notifyq.Job) bool) notifyq.Job {
	b.t.Helper()
	var job notifyq.Job
	require.Eventually(b.t, func() bool {
		j, err := b.client.Get(b.t.Context(), id)
		job = j
		return err == nil && ok(j)
	}, patience, poll, "job %s", id)
	return job
}

// awaitCount waits until so many jobs are in the given state.
func (b *workerBundle) awaitCount(status notifyq.Status, n int) {
	b.t.Helper()
	var last int64
	require.Eventually(b.t, func() bool {
		stats, err := b.client.Stats(b.t.Context())
		last = stats.Jobs[status]
		return err == nil && last == int64(n)
	}, patience, poll, "%d jobs %s", n, status)
}

// sql fills in the schema: '@' stands before a name of notifyq's.
func (b *workerBundle) sql(text string) string { return strings.ReplaceAll(text, "@", b.Schema+".") }

// exec runs one statement and tells how many rows it touched.
func (b *workerBundle) exec(text string, args ...any) int64 {
	b.t.Helper()
	tag, err := b.Pool.Exec(b.t.Context(), b.sql(text), args...)
	require.NoError(b.t, err)
	return tag.RowsAffected()
}

// one reads a single value.
func one[T any](b *workerBundle, text string, args ...any) T {
	b.t.Helper()
	rows, err := b.Pool.Query(b.t.Context(), b.sql(text), args...)
	require.NoError(b.t, err)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(b.t, err)
	return value
}

// expireLeases lets the claims of jobs run out.
func (b *workerBundle) expireLeases(ids ...uuid.UUID) {
	b.t.Helper()
	n := b.exec(`update @notification_queue set leased_until = now() - interval '1 second' where id = any($1) and status = 1`, ids)
	require.EqualValues(b.t, len(ids), n, "every one of them must be claimed")
}

// crashedClaim is a claim whose worker is gone.
type crashedClaim struct {
	store.Claimed
	token uuid.UUID
}

// crash claims up to n jobs of EMAIL as a worker that dies with them. Their leases are live.
func (b *workerBundle) crash(n int) []crashedClaim {
	b.t.Helper()
	token := uuid.New()
	var probes []store.Probe
	for p := int16(3); p >= 1; p-- {
		probes = append(probes, store.Probe{Priority: p, Limit: n})
	}
	lease := store.Lease{Worker: "crashed", Token: token, For: time.Minute}
	jobs, err := b.store.Claim(b.t.Context(), b.Pool, lease, store.Lane{Channel: "EMAIL", Limit: n, Probes: probes})
	require.NoError(b.t, err)
	claims := make([]crashedClaim, len(jobs))
	for i := range jobs {
		claims[i] = crashedClaim{jobs[i], token}
	}
	return claims
}

// sabotage lets an operation on a table fail with a SQLSTATE for rows that meet a condition, until mend.
func (b *workerBundle) sabotage(table, operation, condition, code string) (mend func()) {
	b.t.Helper()
	name := fmt.Sprintf("sabotage_%d", b.keys.Add(1))
	b.exec(fmt.Sprintf(`create function @%s() returns trigger language plpgsql as
		$$begin raise exception 'canary-detail' using errcode = '%s'; end$$`, name, code))
	b.exec(fmt.Sprintf(`create trigger %s before %s on @%s for each row when (%s) execute function @%s()`,
		name, operation, table, condition, name))
	return func() {
		b.t.Helper()
		b.exec(fmt.Sprintf(`drop trigger %s on @%s`, name, table))
	}
}

// event is one row of the outbox as the specification describes it.
type event struct {
	ID     uuid.UUID
	Job    uuid.UUID
	Status int16
	Round  int32
	Body   string
}

func (b *workerBundle) events() []event {
	b.t.Helper()
	rows, err := b.Pool.Query(b.t.Context(), b.sql(`
		select id, job_id, status, redrive_count, convert_from(body, 'UTF8') from @outbox_events order by job_id, redrive_count`))
	require.NoError(b.t, err)
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[event])
	require.NoError(b.t, err)
	return events
}

// courier is a provider that remembers its calls and answers as it was told.
type courier struct {
	answer  func(ctx context.Context, d notifyq.Delivery) error
	started chan notifyq.Delivery

	mu    sync.Mutex
	calls []notifyq.Delivery
}

func newCourier(answer func(ctx context.Context, d notifyq.Delivery) error) *courier {
	return &courier{answer: answer, started: make(chan notifyq.Delivery, 10_000)}
}

// accepting accepts everything.
func accepting() *courier {
	return newCourier(func(context.Context, notifyq.Delivery) error { return nil })
}

// failing answers the same every time.
func failing(err error) *courier {
	return newCourier(func(context.Context, notifyq.Delivery) error { return err })
}

// held answers with what is sent into the channel, or with the end of its context.
func held() (c *courier, answers chan error) {
	answers = make(chan error)
	return newCourier(func(ctx context.Context, _ notifyq.Delivery) error {
		select {
		case err := <-answers:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}), answers
}

// deaf ignores its context and returns only when it gets an answer. The test must give as many as there were calls.
func deaf() (c *courier, answers chan error) {
	answers = make(chan error)
	return newCourier(func(context.Context, notifyq.Delivery) error { return <-answers }), answers
}

// Deliver implements Provider.
func (c *courier) Deliver(ctx context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	c.mu.Lock()
	c.calls = append(c.calls, d)
	c.mu.Unlock()
	c.started <- d
	if err := c.answer(ctx, d); err != nil {
		return notifyq.Receipt{}, err
	}
	return notifyq.Receipt{ProviderID: "p-" + d.Key.String()}, nil
}

// next waits for the next call.
func (c *courier) next(t testing.TB) notifyq.Delivery {
	t.Helper()
	select {
	case d := <-c.started:
		return d
	case <-time.After(patience):
		require.FailNow(t, "the provider is not called")
		return notifyq.Delivery{}
	}
}

func (c *courier) all() []notifyq.Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.calls)
}

// times tells how often each job was handed over.
func (c *courier) times() map[uuid.UUID]int {
	times := make(map[uuid.UUID]int)
	for _, d := range c.all() {
		times[d.Key]++
	}
	return times
}

func requireOnce(t testing.TB, c *courier, ids []uuid.UUID) {
	t.Helper()
	times := c.times()
	require.Len(t, times, len(ids))
	for _, id := range ids {
		require.Equal(t, 1, times[id], "deliveries of %s", id)
	}
}

// answerAll gives n answers.
func answerAll(t testing.TB, answers chan<- error, n int, err error) {
	t.Helper()
	for range n {
		select {
		case answers <- err:
		case <-time.After(patience):
			require.FailNow(t, "nobody waits for an answer")
		}
	}
}

// logRecord keeps what was logged and lets a test wait for it.
type logRecord struct {
	mu      sync.Mutex
	entries []logEntry
	text    bytes.Buffer
	json    slog.Handler
	added   chan struct{} // closed with every entry
}

type logEntry struct {
	level slog.Level
	event string
	attrs map[string]any
}

func newLogRecord() *logRecord {
	l := &logRecord{added: make(chan struct{})}
	l.json = slog.NewJSONHandler(&l.text, &slog.HandlerOptions{Level: slog.LevelDebug})
	return l
}

func (l *logRecord) logger() *slog.Logger { return slog.New(&bookHandler{book: l}) }

// matching lists the entries of an event, in order.
func (l *logRecord) matching(event string, ok func(logEntry) bool) []logEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []logEntry
	for _, e := range l.entries {
		if e.event == event && (ok == nil || ok(e)) {
			found = append(found, e)
		}
	}
	return found
}

// await waits for the first entry of an event.
func (l *logRecord) await(t testing.TB, event string) logEntry {
	t.Helper()
	return l.awaitMatch(t, event, nil)
}

// awaitJob waits for the first entry of an event about a job.
func (l *logRecord) awaitJob(t testing.TB, event string, id uuid.UUID) logEntry {
	t.Helper()
	return l.awaitMatch(t, event, func(e logEntry) bool { return e.attrs["jobId"] == id })
}

func (l *logRecord) awaitMatch(t testing.TB, event string, ok func(logEntry) bool) logEntry {
	t.Helper()
	deadline := time.After(patience)
	for {
		l.mu.Lock()
		added := l.added
		l.mu.Unlock()
		if found := l.matching(event, ok); len(found) > 0 {
			return found[0]
		}
		select {
		case <-added:
		case <-deadline:
			require.FailNow(t, "not logged: "+event)
		}
	}
}

// written is everything as JSON lines.
func (l *logRecord) written() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

type bookHandler struct {
	book  *logRecord
	attrs []slog.Attr
}

func (h *bookHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *bookHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &bookHandler{book: h.book, attrs: append(slices.Clone(h.attrs), attrs...)}
}

func (h *bookHandler) WithGroup(string) slog.Handler { return h }

func (h *bookHandler) Handle(ctx context.Context, r slog.Record) error {
	e := logEntry{level: r.Level, event: r.Message, attrs: make(map[string]any)}
	for _, a := range h.attrs {
		e.attrs[a.Key] = a.Value.Resolve().Any()
	}
	r.Attrs(func(a slog.Attr) bool {
		e.attrs[a.Key] = a.Value.Resolve().Any()
		return true
	})
	h.book.mu.Lock()
	defer h.book.mu.Unlock()
	h.book.entries = append(h.book.entries, e)
	close(h.book.added)
	h.book.added = make(chan struct{})
	return h.book.json.WithAttrs(h.attrs).Handle(ctx, r)
}
