package notifyq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/migrate"
)

// A pooler in transaction mode dictates the query mode, so that everything has to work in each.
func TestEveryQueryModeWorks(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			pool := b.newPool(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode })
			b.client = b.newClient(t, pool, notifyq.ClientConfig{})
			b.liveThroughEverything(t, pool)
		})
	}
}

// liveThroughEverything makes each call of the client and has a worker record each kind of outcome.
func (b *bundle) liveThroughEverything(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	ctx := t.Context()
	n := notifyq.Notification{
		IdempotencyKey: `o'k", {\x00} $1`, Recipient: `o'u"\ {,}@example.test`, Channel: notifyq.ChannelEmail, Tenant: `a'\"{}`,
		Payload: []byte(`{"mode":"ok","text":"'\\ \" {,} $1 -- é😀"}`), Priority: notifyq.PriorityLow, SendAt: time.Now().Add(-time.Hour),
		ExpiresAt: time.Now().Add(time.Hour), OnAmbiguous: notifyq.AmbiguousPark,
	}
	first := b.schedule(t, n)
	require.True(t, b.schedule(t, n).Replayed)
	job, err := b.client.ForTenant(n.Tenant).GetByKey(ctx, n.IdempotencyKey)
	require.NoError(t, err)
	require.Equal(t, first.Job, job)
	require.Equal(t, string(n.Payload), value[string](t, b, `select payload::text from @notifications`))
	page, err := b.client.List(ctx, notifyq.ListParams{
		Tenant: n.Tenant, Recipient: n.Recipient, Channel: n.Channel, Status: notifyq.StatusPending,
	})
	require.NoError(t, err)
	require.Equal(t, []notifyq.Job{job}, page.Jobs)

	answers, err := b.client.ScheduleMany(ctx, emails("many", 30))
	require.NoError(t, err)
	ids := make([]uuid.UUID, len(answers))
	for i, a := range answers {
		require.NoError(t, a.Err)
		ids[i] = a.ID
	}
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	inTx, err := b.client.ScheduleTx(ctx, tx, email("tx"))
	require.NoError(t, err)
	_, err = b.client.CancelTx(ctx, tx, ids[0], notifyq.Operation{Actor: "o'a", Reason: `\"`})
	require.NoError(t, err)
	event, err := b.client.PublishTx(ctx, tx, notifyq.Event{ID: uuid.New(), Topic: "t", Key: "k", Body: []byte("\x00'\\\xff")})
	require.NoError(t, err)
	_, err = b.client.PublishTx(ctx, tx, notifyq.Event{Topic: "t", Body: []byte("x")})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, []byte("\x00'\\\xff"), value[[]byte](t, b, `select body from @outbox_events where id = $1`, event))
	_, err = b.client.Cancel(ctx, ids[1], notifyq.Operation{})
	require.NoError(t, err)
	require.NoError(t, b.client.PauseChannel(ctx, notifyq.ChannelSMS, notifyq.Operation{}))
	require.NoError(t, b.client.ResumeChannel(ctx, notifyq.ChannelSMS, notifyq.Operation{}))

	tries := make(chan notifyq.Delivery, 1000)
	cfg := fastRetries()
	cfg.RecordEvents = true
	stop := b.startWorker(t, pool, cfg, provider(func(d notifyq.Delivery) error {
		tries <- d
		switch d.Key {
		case ids[2]:
			return notifyq.Permanent(fmt.Errorf("o'no \\ \x00"))
		case ids[3]:
			return fmt.Errorf("again")
		}
		return nil
	}))
	require.Equal(t, notifyq.StatusSent, b.await(t, first.ID, notifyq.StatusSent).Status)
	b.await(t, inTx.ID, notifyq.StatusSent)
	failed := b.await(t, ids[2], notifyq.StatusFailed)
	require.Equal(t, "o'no \\ \uFFFD", failed.LastError)
	b.await(t, ids[3], notifyq.StatusDeadLettered)
	for _, id := range ids[4:] {
		b.await(t, id, notifyq.StatusSent)
	}
	stop()
	close(tries)
	for d := range tries {
		if d.Key == first.ID {
			require.Equal(t, string(n.Payload), string(d.Payload))
			require.Equal(t, n.Recipient, d.Recipient)
		}
	}

	attempts, err := b.client.Attempts(ctx, ids[3])
	require.NoError(t, err)
	require.Len(t, attempts, notifyq.DefaultMaxAttempts)
	_, err = b.client.Redrive(ctx, ids[2], notifyq.Operation{})
	require.NoError(t, err)
	done, err := b.client.RedriveMany(ctx, notifyq.RedriveParams{Since: time.Now().Add(-time.Hour), Recipient: "u@example.test", PerSecond: 1})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{Retried: 1}, done)
	stats, err := b.client.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, map[notifyq.Status]int64{
		notifyq.StatusPending: 2, notifyq.StatusProcessing: 0, notifyq.StatusSent: 28, notifyq.StatusFailed: 0,
		notifyq.StatusDeadLettered: 0, notifyq.StatusCancelled: 2,
	}, stats.Jobs)
	erased, err := b.client.EraseRecipient(ctx, n.Recipient)
	require.NoError(t, err)
	require.Equal(t, notifyq.Erased{Erased: 1}, erased)
	for _, status := range append([]notifyq.Status{""}, everyStatus...) {
		_, _ = walk(t, b.client, notifyq.ListParams{Status: status, Limit: 7}, nil)
	}
}

// The schema's tables, and no look-alikes, whatever search_path says.
func TestSearchPathDoesNotMatter(t *testing.T) { // C69
	t.Parallel()
	for name, path := range map[string]func(decoy string) string{
		"foreign": func(decoy string) string { return decoy + ",public" },
		"empty":   func(string) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			decoy := "decoy_" + b.db.Schema
			b.exec(t, `create schema `+decoy)
			t.Cleanup(func() {
				_, err := b.db.Pool.Exec(contextAfter(t), `drop schema `+decoy+` cascade`)
				require.NoError(t, err)
			})
			tables := value[[]string](t, b, `select array_agg(relname::text) from pg_class
				where relnamespace = $1::regnamespace and relkind in ('r', 'v')`, b.db.Schema)
			for _, table := range tables {
				b.exec(t, fmt.Sprintf(`create table %s.%s (id uuid, version integer, status smallint, channel text)`, decoy, table))
			}
			pool := b.newPool(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["search_path"] = path(decoy) })
			b.client = b.newClient(t, pool, notifyq.ClientConfig{})
			b.liveThroughEverything(t, pool)
			for _, table := range tables {
				require.Zero(t, b.count(t, decoy+"."+table))
			}
		})
	}
}

func TestTwoSchemasInOneDatabaseAreApart(t *testing.T) { // C69
	t.Parallel()
	one, two := newBundle(t), newBundle(t)
	id := one.schedule(t, email("k")).ID
	_, err := two.client.Get(t.Context(), id)
	require.ErrorIs(t, err, notifyq.ErrNotFound)
	require.False(t, two.schedule(t, email("k")).Replayed)
}

func TestASchemaMayBeNamedLikeAKeyword(t *testing.T) {
	t.Parallel()
	pool := openPool(t, dbtest.NewDatabase(t), nil)
	const name = "order"
	sql, err := migrate.SQL(name)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), sql)
	require.NoError(t, err)
	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{Schema: name})
	require.NoError(t, err)
	id := uuid.Nil
	for _, key := range []string{"first", "second"} {
		scheduled, err := client.Schedule(t.Context(), email(key))
		require.NoError(t, err)
		id = scheduled.ID
	}
	calls := everyCall(client, id)
	for _, name := range []string{"Get", "Attempts", "List", "Stats", "PauseChannel", "ResumeChannel", "Cancel", "RedriveMany", "EraseRecipient"} {
		require.NoError(t, calls[name](t.Context()), name)
	}
}

func TestAMissingRightIsASchemaError(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	role := "role_" + b.db.Schema
	b.exec(t, `create role `+role)
	t.Cleanup(func() {
		_, err := b.db.Pool.Exec(contextAfter(t), `drop role `+role)
		require.NoError(t, err)
	})
	pool := b.newPool(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["role"] = role })
	for name, call := range everyCall(b.newClient(t, pool, notifyq.ClientConfig{}), uuid.New()) {
		err := call(t.Context())
		require.ErrorIs(t, err, notifyq.ErrSchema, name)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg, name)
		require.Equal(t, "42501", pg.Code, name)
	}
}
