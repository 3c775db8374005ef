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
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// bundle is what nearly every test of the client needs: a schema of its own, a client on it, and what that logs.
type bundle struct {
	db     *dbtest.DB
	client *notifyq.Client
	logs   *logBook
}

func newBundle(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{db: dbtest.New(t), logs: &logBook{}}
	b.client = b.newClient(t, b.db.Pool, notifyq.ClientConfig{})
	return b
}

// newClient is another client on the bundle's schema.
func (b *bundle) newClient(t *testing.T, pool *pgxpool.Pool, cfg notifyq.ClientConfig) *notifyq.Client {
	t.Helper()
	cfg.Schema, cfg.Logger = b.db.Schema, b.logs.logger()
	client, err := notifyq.NewClient(pool, cfg)
	require.NoError(t, err)
	return client
}

// newPool opens another pool to the bundle's database.
func (b *bundle) newPool(t *testing.T, change func(cfg *pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return openPool(t, b.db.URL, change)
}

func openPool(t *testing.T, url string, change func(cfg *pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = 10
	if change != nil {
		change(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// email is the smallest valid notification.
func email(key string) notifyq.Notification {
	return notifyq.Notification{
		IdempotencyKey: key, Recipient: "u@example.test", Channel: notifyq.ChannelEmail, Payload: []byte(`{}`),
	}
}

// emails are n of them.
func emails(prefix string, n int) []notifyq.Notification {
	ns := make([]notifyq.Notification, n)
	for i := range ns {
		ns[i] = email(fmt.Sprintf("%s-%05d", prefix, i))
	}
	return ns
}

func (b *bundle) schedule(t *testing.T, n notifyq.Notification) notifyq.Scheduled {
	t.Helper()
	scheduled, err := b.client.Schedule(t.Context(), n)
	require.NoError(t, err)
	return scheduled
}

// scheduleAll stores ns, every one of which must be new, and returns their ids in order.
func (b *bundle) scheduleAll(t *testing.T, ns []notifyq.Notification) []uuid.UUID {
	t.Helper()
	answers, err := b.client.ScheduleMany(t.Context(), ns)
	require.NoError(t, err)
	ids := make([]uuid.UUID, len(answers))
	for i, a := range answers {
		require.NoError(t, a.Err)
		require.False(t, a.Replayed)
		ids[i] = a.ID
	}
	return ids
}

func (b *bundle) get(t *testing.T, id uuid.UUID) notifyq.Job {
	t.Helper()
	job, err := b.client.Get(t.Context(), id)
	require.NoError(t, err)
	return job
}

// sql fills the schema into a statement: '@' stands before a name of notifyq's.
func (b *bundle) sql(statement string) string {
	return string(bytes.ReplaceAll([]byte(statement), []byte("@"), []byte(b.db.Schema+".")))
}

func (b *bundle) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	_, err := b.db.Pool.Exec(t.Context(), b.sql(statement), args...)
	require.NoError(t, err)
}

func (b *bundle) count(t *testing.T, from string, args ...any) int {
	t.Helper()
	return value[int](t, b, "select count(*) from "+from, args...)
}

// value is the only value that a query returns.
func value[T any](t *testing.T, b *bundle, query string, args ...any) T {
	t.Helper()
	rows, err := b.db.Pool.Query(t.Context(), b.sql(query), args...)
	require.NoError(t, err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return v
}

// hold brings waiting jobs into a worker's hands, without a worker.
func (b *bundle) hold(t *testing.T, ids ...uuid.UUID) {
	t.Helper()
	b.exec(t, `update @notification_queue set status = 1, attempt_count = 1, claim_token = gen_random_uuid(), locked_by = 'w',
		locked_at = now(), leased_until = now() + interval '1 hour', first_attempt_at = now() where id = any($1)`, ids)
}

// letGo undoes hold.
func (b *bundle) letGo(t *testing.T, ids ...uuid.UUID) {
	t.Helper()
	b.exec(t, `update @notification_queue set status = 0, attempt_count = 0, claim_token = null, locked_by = null,
		locked_at = null, leased_until = null, first_attempt_at = null where id = any($1)`, ids)
}

// end brings live jobs to an end, without a worker.
func (b *bundle) end(t *testing.T, status notifyq.Status, reason string, ids ...uuid.UUID) {
	t.Helper()
	number := map[notifyq.Status]int{
		notifyq.StatusSent: 2, notifyq.StatusFailed: 3, notifyq.StatusDeadLettered: 4, notifyq.StatusCancelled: 5,
	}[status]
	attempts := 0
	if status == notifyq.StatusSent {
		attempts = 1
	}
	b.exec(t, `with gone as (delete from @notification_queue where id = any($1) returning *)
		insert into @notification_outcomes (id, tenant, status, finished_at, first_attempt_at, last_redriven_at, redrive_count,
			attempt_count, max_attempts, reconciliation_granted, reason, last_error, provider_id)
		select id, tenant, $2::smallint, clock_timestamp(), now(), last_redriven_at, redrive_count, $4::smallint, max_attempts,
			reconciliation_granted, nullif($3, ''), 'personal', 'provider-id' from gone`, ids, number, reason, attempts)
}

// inTx runs do in a transaction of its caller's and commits it.
func (b *bundle) inTx(t *testing.T, isolation pgx.TxIsoLevel, do func(tx pgx.Tx)) {
	t.Helper()
	tx, err := b.db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: isolation})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	do(tx)
	require.NoError(t, tx.Commit(t.Context()))
}

// requireInvalid wants an error that names the field and holds nothing of what was given.
func requireInvalid(t *testing.T, err error, field string) {
	t.Helper()
	require.ErrorIs(t, err, notifyq.ErrInvalid)
	var broken *notifyq.InvalidError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, field, broken.Field, "%v", err)
	require.NotEmpty(t, broken.Rule)
}

// together calls do n times at once and returns when all have returned.
func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	wg.Wait()
}

// startWorker runs a worker on the bundle's schema and returns what stops it and waits for its end.
func (b *bundle) startWorker(t *testing.T, pool *pgxpool.Pool, cfg notifyq.WorkerConfig, deliver notifyq.ProviderFunc) (stop func()) {
	t.Helper()
	cfg.Schema, cfg.Logger = b.db.Schema, b.logs.logger()
	if cfg.Client == nil {
		cfg.Client = b.client
	}
	if cfg.Providers == nil {
		cfg.Providers = map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelEmail: {Provider: deliver}}
	}
	worker, err := notifyq.NewWorker(pool, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// logBook keeps everything that is logged, at every level.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logBook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type counter = atomic.Int64

// everyCall is each call of the client that asks the database something.
func everyCall(c *notifyq.Client, id uuid.UUID) map[string]func(ctx context.Context) error {
	op := notifyq.Operation{}
	return map[string]func(ctx context.Context) error{
		"Schedule":       func(ctx context.Context) error { _, err := c.Schedule(ctx, email("every-call")); return err },
		"ScheduleMany":   func(ctx context.Context) error { _, err := c.ScheduleMany(ctx, emails("every", 2)); return err },
		"Get":            func(ctx context.Context) error { _, err := c.Get(ctx, id); return err },
		"GetByKey":       func(ctx context.Context) error { _, err := c.GetByKey(ctx, "every-call"); return err },
		"Attempts":       func(ctx context.Context) error { _, err := c.Attempts(ctx, id); return err },
		"List":           func(ctx context.Context) error { _, err := c.List(ctx, notifyq.ListParams{}); return err },
		"Cancel":         func(ctx context.Context) error { _, err := c.Cancel(ctx, id, op); return err },
		"Redrive":        func(ctx context.Context) error { _, err := c.Redrive(ctx, id, op); return err },
		"RedriveMany":    func(ctx context.Context) error { _, err := c.RedriveMany(ctx, notifyq.RedriveParams{}); return err },
		"PauseChannel":   func(ctx context.Context) error { return c.PauseChannel(ctx, "EMAIL", op) },
		"ResumeChannel":  func(ctx context.Context) error { return c.ResumeChannel(ctx, "EMAIL", op) },
		"EraseRecipient": func(ctx context.Context) error { _, err := c.EraseRecipient(ctx, "u@example.test"); return err },
		"Stats":          func(ctx context.Context) error { _, err := c.Stats(ctx); return err },
	}
}

// hookedPool is a pool that does something once, after the first statement that contains the given text.
func (b *bundle) hookedPool(t *testing.T, text string, do func()) *pgxpool.Pool {
	t.Helper()
	return b.newPool(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = &hook{text: text, do: sync.OnceFunc(do)} })
}

// hook is a tracer.
type hook struct {
	text string
	do   func()
}

type hookKey struct{}

func (h *hook) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, hookKey{}, strings.Contains(data.SQL, h.text))
}

func (h *hook) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if hit, _ := ctx.Value(hookKey{}).(bool); hit {
		h.do()
	}
}

func (h *hook) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	hit := slices.ContainsFunc(data.Batch.QueuedQueries, func(q *pgx.QueuedQuery) bool { return strings.Contains(q.SQL, h.text) })
	return context.WithValue(ctx, hookKey{}, hit)
}

func (h *hook) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (h *hook) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	if hit, _ := ctx.Value(hookKey{}).(bool); hit {
		h.do()
	}
}

// provider makes one of a function that has no use for a context.
func provider(deliver func(d notifyq.Delivery) error) notifyq.ProviderFunc {
	return func(_ context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
		return notifyq.Receipt{}, deliver(d)
	}
}

// fastRetries is a worker that neither waits for work nor with a retry.
func fastRetries() notifyq.WorkerConfig {
	return notifyq.WorkerConfig{
		PollInterval: 20 * time.Millisecond,
		Retry:        notifyq.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond},
	}
}

// await returns when the job has the status. There is no signal for what a worker records after its last call.
func (b *bundle) await(t *testing.T, id uuid.UUID, status notifyq.Status) notifyq.Job {
	t.Helper()
	var job notifyq.Job
	require.Eventually(t, func() bool {
		var err error
		job, err = b.client.Get(t.Context(), id)
		return err == nil && job.Status == status
	}, time.Minute, 5*time.Millisecond, "%v", status)
	return job
}

// awaitLock returns when a statement on the bundle's schema waits for a lock.
func (b *bundle) awaitLock(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waits bool
		err := b.db.Pool.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where wait_event_type = 'Lock' and strpos(query, $1) > 0)`, b.db.Schema).Scan(&waits)
		return err == nil && waits
	}, time.Minute, 5*time.Millisecond)
}

// contextAfter is for cleanups, when the test's own context has ended.
func contextAfter(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }
