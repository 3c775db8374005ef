package notifyq_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// elsewhere is the schema as another process sees it: another pool, another client, nothing shared in memory.
func (b *workerBundle) elsewhere() *workerBundle {
	b.t.Helper()
	return b.through(poolAt(b.t, b.URL))
}

// listening runs a worker that would poll an hour later, and waits until it hears.
func (b *workerBundle) listening(p notifyq.Provider, edit ...func(*notifyq.WorkerConfig)) *notifyq.Worker {
	b.t.Helper()
	cfg := b.config(p)
	cfg.PollInterval, cfg.RecoveryInterval = time.Hour, time.Hour
	for _, e := range edit {
		e(&cfg)
	}
	worker, err := notifyq.NewWorker(b.Pool, cfg)
	require.NoError(b.t, err)
	b.startRun(worker.Run)
	require.Eventually(b.t, func() bool { return worker.Stats().Listening }, patience, poll)
	return worker
}

// listeningRelay is the same of a relay.
func (b *workerBundle) listeningRelay(p notifyq.Publisher) *runningRelay {
	b.t.Helper()
	r := b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.PollInterval = time.Hour })
	require.Eventually(b.t, func() bool { return r.relay.Stats().Listening }, patience, poll)
	return r
}

// scheduleQuietly commits a job of which nobody is told.
func (b *workerBundle) scheduleQuietly() (id uuid.UUID) {
	b.t.Helper()
	require.NoError(b.t, pgx.BeginFunc(b.t.Context(), b.Pool, func(tx pgx.Tx) error {
		scheduled, err := b.client.ScheduleTx(b.t.Context(), tx, email(uuid.NewString()))
		id = scheduled.ID
		return err
	}))
	return id
}

func TestJobOfAnotherProcessStartsWithoutWaitingForAPoll(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	there := b.elsewhere()
	c := accepting()
	b.listening(c)
	for range 3 {
		b.await(there.schedule(), notifyq.StatusSent)
	}
	refused := newWorkerBundle(t) // another schema's worker is none of ours
	id := refused.scheduleQuietly()
	b.await(there.schedule(), notifyq.StatusSent)
	require.Equal(t, notifyq.StatusPending, refused.job(id).Status)
}

func TestWakeReachesOtherProcessesAfterACommitOfTheCaller(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	there := b.elsewhere()
	b.listening(accepting())
	for range 3 {
		id := there.scheduleQuietly()
		there.client.Wake()
		b.await(id, notifyq.StatusSent)
	}
}

func TestRedriveOfAnotherProcessStartsWithoutWaitingForAPoll(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	there := b.elsewhere()
	var healthy atomic.Bool
	b.listening(newCourier(func(context.Context, notifyq.Delivery) error {
		if healthy.Load() {
			return nil
		}
		return notifyq.Permanent(errNo)
	}))
	id := there.schedule()
	b.await(id, notifyq.StatusFailed)
	healthy.Store(true)
	_, err := there.client.Redrive(t.Context(), id, notifyq.Operation{})
	require.NoError(t, err)
	b.await(id, notifyq.StatusSent)
}

func TestEventOfAnotherProcessIsPublishedWithoutWaitingForAPoll(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	there := b.elsewhere()
	p := acknowledging()
	b.listeningRelay(p)
	for range 3 {
		var id uuid.UUID
		require.NoError(t, pgx.BeginFunc(t.Context(), there.Pool, func(tx pgx.Tx) (err error) {
			if id, err = there.client.PublishTx(t.Context(), tx, notifyq.Event{Topic: "t", Body: []byte("x")}); err != nil {
				return err
			}
			return there.client.WakeTx(t.Context(), tx)
		}))
		b.awaitPublished(id)
		ids := there.publish(1)
		there.client.Wake()
		b.awaitPublished(ids...)
	}
}

func TestEventsOfAWorkerReachARelayElsewhereWithoutWaitingForAPoll(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	there := b.elsewhere()
	p := acknowledging()
	b.listeningRelay(p)
	there.listening(failing(notifyq.Permanent(errNo)), func(cfg *notifyq.WorkerConfig) { cfg.RecordEvents = true })
	for range 3 {
		id := there.schedule()
		e := b.next(p)
		require.Equal(t, id.String(), e.Key)
		b.awaitPublished(e.ID)
	}
}

func TestListenerOfAWorkerServesItsRelayToo(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	there := b.elsewhere()
	p := acknowledging()
	worker := b.listening(accepting(), func(cfg *notifyq.WorkerConfig) { cfg.Publisher, cfg.Relay.PollInterval = p, time.Hour })
	require.True(t, worker.Stats().Relay.Listening)
	b.logs.await(t, "relay.started")
	for range 3 {
		ids := there.publish(1)
		there.client.Wake()
		b.awaitPublished(ids...)
	}
}

func TestTransactionThatIsRolledBackWakesNobody(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	conn, err := pgx.Connect(t.Context(), b.URL)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `listen notifyq`)
	require.NoError(t, err)
	wakeAnd := func(end error) error {
		return pgx.BeginFunc(t.Context(), b.Pool, func(tx pgx.Tx) error {
			_, err := b.client.ScheduleTx(t.Context(), tx, email("k"))
			return errors.Join(err, b.client.WakeTx(t.Context(), tx), b.client.WakeTx(t.Context(), tx), end)
		})
	}
	rollback := errors.New("roll it back")
	require.ErrorIs(t, wakeAnd(rollback), rollback)
	b.exec(`select pg_notify('notifyq', $1)`, b.Schema+" fence")
	require.NoError(t, wakeAnd(nil))
	b.exec(`select pg_notify('notifyq', $1)`, b.Schema+" end")
	require.Equal(t, []string{"fence", "jobs", "events", "end"}, b.heard(conn, "end"))
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	require.ErrorIs(t, b.client.WakeTx(t.Context(), tx), pgx.ErrTxClosed)
}

// heard lists what was told about the bundle's schema, up to a last kind.
func (b *workerBundle) heard(conn *pgx.Conn, last string) (kinds []string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		require.NoError(b.t, err)
		if kind, ours := strings.CutPrefix(n.Payload, b.Schema+" "); ours {
			if kinds = append(kinds, kind); kind == last {
				return kinds
			}
		}
	}
}

func TestJobScheduledWhileTheListenerWasLostIsFoundAtItsReturn(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	name := "lost-" + b.Schema
	here := b.through(poolAt(t, b.URL, "application_name", name))
	there := b.elsewhere()
	worker := here.listening(accepting())
	b.await(there.schedule(), notifyq.StatusSent) // its first looks are over
	for range 3 {
		id := there.scheduleQuietly()
		n := b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1 and query like 'listen %'`, name)
		require.EqualValues(t, 1, n)
		b.await(id, notifyq.StatusSent)
		require.Eventually(t, func() bool { return worker.Stats().Listening }, patience, poll)
		b.await(there.schedule(), notifyq.StatusSent)
	}
	require.Len(t, b.logs.matching("listener.lost", nil), len(b.logs.matching("listener.back", nil)))
	require.Equal(t, "database error 57P01", b.logs.await(t, "listener.lost").attrs["error"])
}

// muffled is a connection through a pooler that has the server's notifications for somebody else.
type muffled struct {
	net.Conn
	part, whole []byte // of messages
}

func (m *muffled) Read(p []byte) (int, error) {
	for len(m.whole) == 0 {
		chunk := make([]byte, 8192)
		n, err := m.Conn.Read(chunk)
		if m.part = append(m.part, chunk[:n]...); err != nil {
			return 0, err
		}
		for len(m.part) >= 5 {
			size := 1 + int(binary.BigEndian.Uint32(m.part[1:]))
			if len(m.part) < size {
				break
			}
			if m.part[0] != 'A' {
				m.whole = append(m.whole, m.part[:size]...)
			}
			m.part = bytes.Clone(m.part[size:])
		}
	}
	n := copy(p, m.whole)
	m.whole = m.whole[n:]
	return n, nil
}

func TestWorkerThatHearsNothingPolls(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	name := "deaf-" + b.Schema
	pool := openPool(t, b.URL, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["application_name"] = name
		cfg.ConnConfig.TLSConfig, cfg.ConnConfig.Fallbacks = nil, nil // it reads the messages, and nothing before them
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &muffled{Conn: conn}, err
		}
	})
	cfg := b.through(pool).config(accepting())
	cfg.Client = nil
	worker, err := notifyq.NewWorker(pool, cfg)
	require.NoError(t, err)
	b.startRun(worker.Run)
	b.await(b.schedule(), notifyq.StatusSent)
	b.logs.await(t, "listener.deaf")
	require.False(t, worker.Stats().Listening)
	require.Eventually(t, func() bool {
		return one[int](b, `select count(*)::int from pg_stat_activity where application_name = $1 and query like '%listen %'`, name) == 0
	}, patience, poll, "it keeps a connection that serves nothing")
	b.await(b.schedule(), notifyq.StatusSent)
	require.Len(t, b.logs.matching("listener.deaf", nil), 1)
	require.Empty(t, b.logs.matching("listener.lost", nil))
}

// claims counts the claims that go through a pool.
type claims struct{ n atomic.Int64 }

func (c *claims) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (c *claims) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *claims) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (c *claims) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
func (c *claims) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if strings.Contains(data.SQL, "skip locked") && strings.Contains(data.SQL, "next_attempt_at") {
		c.n.Add(1)
	}
}

func TestStormOfNotificationsLeadsToFewClaims(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var counted claims
	here := b.through(openPool(t, b.URL, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = &counted }))
	here.listening(accepting())
	b.await(b.elsewhere().schedule(), notifyq.StatusSent)
	before, began := counted.n.Load(), time.Now()
	require.Positive(t, before)
	b.exec(`do $$ begin for i in 1..10000 loop perform pg_notify('notifyq', '` + b.Schema + ` jobs'); commit; end loop; end $$`)
	b.await(b.elsewhere().schedule(), notifyq.StatusSent) // is not lost among them
	made := counted.n.Load() - before
	t.Logf("%d claims in %v", made, time.Since(began))
	require.Positive(t, made)
	require.LessOrEqual(t, made, int64(time.Since(began)/(10*time.Millisecond))+5)
}

// The connection to listen on is made as those of the pool, whose hooks bring credentials and settings.
func TestListenerConnectsAsThePoolDoes(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	name := "hooks-" + b.Schema
	var before, after atomic.Int64
	pool := openPool(t, b.URL, func(cfg *pgxpool.Config) {
		good := cfg.ConnConfig.User
		cfg.ConnConfig.User = "nobody_of_this_name"
		cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			before.Add(1)
			c.User = good
			return nil
		}
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			after.Add(1)
			_, err := conn.Exec(ctx, `set application_name = '`+name+`'`)
			return err
		}
		cfg.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { t.Error("it is not the pool's") }
	})
	here := b.through(pool)
	here.listening(accepting())
	require.Equal(t, 1, one[int](b, `select count(*)::int from pg_stat_activity where application_name = $1 and query like 'listen %'`, name))
	require.Equal(t, before.Load(), after.Load())
	b.await(b.elsewhere().schedule(), notifyq.StatusSent)
}

// A hook of the pool's that does not end must not keep Run.
func TestStopDoesNotWaitForAListenerThatConnects(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var left atomic.Int64
	left.Store(1)
	connecting, release := make(chan bool, 100), make(chan bool)
	pool := openPool(t, b.URL, func(cfg *pgxpool.Config) {
		cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if left.Add(-1) < 0 {
				connecting <- true
				<-release
			}
			return nil
		}
	})
	cfg := b.relayConfig(acknowledging())
	cfg.Client = nil
	r, err := notifyq.NewRelay(pool, cfg)
	require.NoError(t, err)
	w := b.startRun(r.Run)
	select {
	case <-connecting:
	case <-time.After(patience):
		require.FailNow(t, "nothing connects")
	}
	began := time.Now()
	_ = w.drain()
	close(release)
	t.Logf("it took %v", time.Since(began))
	require.Less(t, time.Since(began), patience)
}

func TestPollOnlyOpensNoConnectionToListenOn(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	name := "poll-" + b.Schema
	here := b.through(poolAt(t, b.URL, "application_name", name))
	listeners := func() int {
		return one[int](b, `select count(*)::int from pg_stat_activity where application_name = $1 and query like '%listen %'`, name)
	}
	cfg := here.config(accepting())
	cfg.Client, cfg.PollOnly, cfg.Publisher = nil, true, acknowledging()
	worker, err := notifyq.NewWorker(here.Pool, cfg)
	require.NoError(t, err)
	b.startRun(worker.Run)
	r := here.relay(acknowledging(), func(cfg *notifyq.RelayConfig) { cfg.PollOnly = true })
	for range 5 { // it is there as soon as the worker has claimed, in the other tests
		b.await(b.elsewhere().schedule(), notifyq.StatusSent)
		require.Zero(t, listeners())
	}
	require.False(t, worker.Stats().Listening)
	require.False(t, worker.Stats().Relay.Listening)
	require.False(t, r.relay.Stats().Listening)
	cfg.Relay.PollOnly = true
	_, err = notifyq.NewWorker(b.Pool, cfg)
	requireInvalid(t, err, "Relay")
}

// Transaction ids run out, and each is a record in the WAL: a worker that only waits takes none.
func TestListeningWorkerTakesNoTransactionIDs(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	b := workerBundleOn(t, server.New(t))
	b.exec(`alter system set autovacuum = off`) // which takes some too
	b.exec(`select pg_reload_conf()`)
	require.Eventually(t, func() bool { return one[string](b, `show autovacuum`) == "off" }, patience, poll)
	next := func() string { return one[string](b, `select pg_snapshot_xmax(pg_current_snapshot())::text`) }
	cfg := b.config(accepting())
	cfg.RecordEvents = true
	worker, err := notifyq.NewWorker(b.Pool, cfg)
	require.NoError(t, err)
	b.startRun(worker.Run)
	require.Eventually(t, func() bool { return worker.Stats().Listening }, patience, poll)
	before, polled := next(), worker.Stats().PolledAt
	require.Eventually(t, func() bool { return worker.Stats().PolledAt.Sub(polled) > 500*time.Millisecond }, patience, poll)
	require.Equal(t, before, next())
}
