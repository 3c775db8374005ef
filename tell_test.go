package notifyq

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/store"
)

// passer is a stranger who listens.
type passer struct {
	t      *testing.T
	db     *dbtest.DB
	conn   *pgx.Conn
	client *Client
}

func newPasser(t *testing.T) *passer {
	t.Helper()
	return passerOn(t, dbtest.New(t))
}

func passerOn(t *testing.T, db *dbtest.DB) *passer {
	t.Helper()
	p := &passer{t: t, db: db}
	var err error
	p.client, err = NewClient(p.db.Pool, ClientConfig{Schema: p.db.Schema})
	require.NoError(t, err)
	p.conn, err = pgx.Connect(t.Context(), p.db.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.conn.Close(context.WithoutCancel(t.Context())) })
	_, err = p.conn.Exec(t.Context(), `listen notifyq`)
	require.NoError(t, err)
	return p
}

// told lists what the client has told since the last call.
func (p *passer) told() (kinds []string) {
	p.t.Helper()
	p.client.wakers.others.Wait()
	p.client.relays.others.Wait()
	_, err := p.db.Pool.Exec(p.t.Context(), `select pg_notify('notifyq', $1)`, p.db.Schema+" fence")
	require.NoError(p.t, err)
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	for {
		n, err := p.conn.WaitForNotification(ctx)
		require.NoError(p.t, err)
		switch kind, ours := strings.CutPrefix(n.Payload, p.db.Schema+" "); {
		case ours && kind == "fence":
			return kinds
		case ours:
			kinds = append(kinds, kind)
		}
	}
}

func email(key string) Notification {
	return Notification{IdempotencyKey: key, Recipient: "u@example.test", Channel: ChannelEmail, Payload: []byte(`{}`)}
}

// What makes jobs or events due is told, once it is committed; nothing else is.
func TestTheClientTellsOtherProcessesOfWhatIsDue(t *testing.T) {
	t.Parallel()
	p := newPasser(t)
	c, ctx := p.client, t.Context()
	later := email("later")
	later.Delay = time.Hour
	var id uuid.UUID
	park := func() (event uuid.UUID, err error) {
		err = pgx.BeginFunc(ctx, p.db.Pool, func(tx pgx.Tx) (err error) {
			event, err = c.PublishTx(ctx, tx, Event{Topic: "t", Body: []byte("x")})
			return err
		})
		if err == nil {
			_, err = p.db.Pool.Exec(ctx, fmt.Sprintf(
				`update %s.outbox_events set parked_at = now(), parked_reason = 'exhausted', failure_count = 1 where id = $1`, p.db.Schema), event)
		}
		return event, err
	}
	kill := func() error {
		_, err := p.db.Pool.Exec(ctx, fmt.Sprintf(`with gone as (delete from %[1]s.notification_queue where id = $1 returning *)
			insert into %[1]s.notification_outcomes (id, tenant, status, finished_at, attempt_count, max_attempts, reason)
			select id, tenant, 4, now(), 0, max_attempts, 'exhausted' from gone`, p.db.Schema), id)
		return err
	}
	for _, step := range []struct {
		name string
		want []string
		do   func() error
	}{
		{"due now", []string{"jobs"}, func() error { s, err := c.Schedule(ctx, email("now")); id = s.ID; return err }},
		{"a replay", nil, func() error { _, err := c.Schedule(ctx, email("now")); return err }},
		{"due later", nil, func() error { _, err := c.Schedule(ctx, later); return err }},
		{"many", []string{"jobs"}, func() error { _, err := c.ScheduleMany(ctx, []Notification{later, email("many")}); return err }},
		{"a caller's transaction", nil, func() error {
			return pgx.BeginFunc(ctx, p.db.Pool, func(tx pgx.Tx) error { _, err := c.ScheduleTx(ctx, tx, email("tx")); return err })
		}},
		{"a resumption", []string{"jobs"}, func() error { return c.ResumeChannel(ctx, ChannelEmail, Operation{}) }},
		{"a redrive", []string{"jobs"}, func() error {
			if err := kill(); err != nil {
				return err
			}
			_, err := c.Redrive(ctx, id, Operation{})
			return err
		}},
		{"a bulk redrive of nothing", nil, func() error { _, err := c.RedriveMany(ctx, RedriveParams{}); return err }},
		{"a redrive of an event", []string{"events"}, func() error {
			event, err := park()
			if err != nil {
				return err
			}
			return c.RedriveEvent(ctx, event, Operation{})
		}},
		{"a bulk redrive of events", []string{"events"}, func() error {
			if _, err := park(); err != nil {
				return err
			}
			_, err := c.RedriveEvents(ctx, RedriveEventsParams{})
			return err
		}},
		{"a cancellation", nil, func() error { _, err := c.Cancel(ctx, id, Operation{}); return err }},
		{"reading", nil, func() error { _, err := c.Stats(ctx); return err }},
		{"Wake", []string{"events", "jobs"}, func() error { c.ForTenant("acme").Wake(); return nil }},
	} {
		require.NoError(t, step.do(), step.name)
		require.ElementsMatch(t, step.want, p.told(), step.name)
	}
	require.ErrorIs(t, c.ForTenant("\x00").WakeTx(ctx, nil), ErrInvalid)
}

func TestManyCallsShareANotification(t *testing.T) {
	t.Parallel()
	p := newPasser(t)
	began := time.Now()
	var calls sync.WaitGroup
	for i := range 500 {
		calls.Go(func() {
			if _, err := p.client.Schedule(t.Context(), email(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	p.client.wakers.others.Wait()
	most := int(time.Since(began)/(10*time.Millisecond)) + 1
	told := len(p.told())
	t.Logf("%d notifications of 500 calls", told)
	require.Positive(t, told)
	require.LessOrEqual(t, told, most)
}

// Neither a pooler's query mode nor what the role's transactions are like keeps anybody from telling.
func TestTellingWorksInEveryModeAndForEveryRole(t *testing.T) {
	t.Parallel()
	type change = func(cfg *pgxpool.Config)
	changes := map[string]change{
		"strict role": func(cfg *pgxpool.Config) {
			for _, name := range []string{"default_transaction_read_only", "default_transaction_deferrable"} {
				cfg.ConnConfig.RuntimeParams[name] = "on"
			}
			cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		},
	}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		changes[mode.String()] = func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode }
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPasser(t)
			cfg := p.db.Pool.Config()
			change(cfg)
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			p.client, err = NewClient(pool, ClientConfig{Schema: p.db.Schema})
			require.NoError(t, err)
			p.client.Wake()
			require.ElementsMatch(t, []string{"jobs", "events"}, p.told())
			require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return p.client.WakeTx(t.Context(), tx) }))
			require.ElementsMatch(t, []string{"jobs", "events"}, p.told())
		})
	}
}

// The lock of a NOTIFY is held until its commit is done. One that waited for a standby would hold up everybody on the server
// who notifies.
func TestTellingWaitsForNoStandby(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	p := passerOn(t, server.New(t))
	p.client.Wake()
	require.ElementsMatch(t, []string{"jobs", "events"}, p.told())
	_, err := p.db.Pool.Exec(t.Context(), `alter system set synchronous_standby_names = 'away'`)
	require.NoError(t, err)
	_, err = p.db.Pool.Exec(t.Context(), `select pg_reload_conf()`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // a commit does wait
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := p.db.Pool.Exec(ctx, `select lo_create(0)`)
		return err != nil
	}, 20*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, p.client.store.Notify(ctx, p.db.Pool, store.KindJobs))
	require.Equal(t, []string{"jobs"}, p.told())
}
