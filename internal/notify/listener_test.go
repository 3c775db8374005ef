package notify_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/notify"
	"github.com/notifyq/notifyq/internal/store"
)

// ear is a listener under test, with what it logs and whom it wakes.
type ear struct {
	*dbtest.DB
	t     *testing.T
	cfg   notify.Config
	l     *notify.Listener
	store *store.Store
	jobs  chan bool // a wake each
	wakes atomic.Int64
	stop  func()

	mu     sync.Mutex
	events []string
}

func newEar(t *testing.T) *ear {
	t.Helper()
	e := &ear{DB: dbtest.New(t), t: t, jobs: make(chan bool, 100_000)}
	e.store = store.New(e.Schema, store.Guards{})
	e.cfg = notify.Config{
		Store: e.store, Logger: slog.New(e), Connect: e.connect,
		Send:   func(ctx context.Context, kind string) error { return e.store.Notify(ctx, e.Pool, kind) },
		Wake:   map[string]func(){store.KindJobs: func() { e.wakes.Add(1); e.jobs <- true }},
		Random: func() float64 { return 0.5 },
		Times:  notify.Times{Patience: patience},
	}
	return e
}

func (e *ear) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.ConnectConfig(ctx, e.Pool.Config().ConnConfig)
}

// start listens until the test is over, or stop is called.
func (e *ear) start() {
	e.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(e.t.Context()))
	done := make(chan bool)
	e.l = notify.New(e.cfg)
	go func() { defer close(done); e.l.Run(ctx) }()
	e.stop = func() { cancel(); await(e.t, done, "Run does not return") }
	e.t.Cleanup(e.stop)
}

// listens starts and waits until it hears, and for the wake that goes with it.
func (e *ear) listens() {
	e.t.Helper()
	e.start()
	e.awaitListening(true)
	await(e.t, e.jobs, "it wakes nobody at its start")
}

func (e *ear) awaitListening(want bool) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return e.l.Listening() == want }, patience, time.Millisecond)
}

// tell sends a kind of work of the own schema.
func (e *ear) tell(kind string) {
	e.t.Helper()
	require.NoError(e.t, e.store.Notify(e.t.Context(), e.Pool, kind))
}

// shout sends any payload.
func (e *ear) shout(payload string) {
	e.t.Helper()
	_, err := e.Pool.Exec(e.t.Context(), `select pg_notify('notifyq', $1)`, payload)
	require.NoError(e.t, err)
}

// backends are the connections that have listened last.
func (e *ear) backends(ctx context.Context) (pids []uint32) {
	rows, err := e.Pool.Query(ctx, `select pid from pg_stat_activity where application_name = $1`, e.name())
	require.NoError(e.t, err)
	pids, err = pgx.CollectRows(rows, pgx.RowTo[uint32])
	require.NoError(e.t, err)
	return pids
}

// name tells the connections of this listener from all others.
func (e *ear) name() string { return "ear-" + e.Schema }

func (e *ear) named() *pgx.ConnConfig {
	cfg := e.Pool.Config().ConnConfig
	cfg.RuntimeParams["application_name"] = e.name()
	return cfg
}

func (e *ear) count(event string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(e.events), func(s string) bool { return !strings.HasPrefix(s, event+" ") }))
}

func (e *ear) awaitLog(event string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return e.count(event) > 0 }, patience, time.Millisecond, event)
}

func (e *ear) Enabled(context.Context, slog.Level) bool { return true }
func (e *ear) WithAttrs([]slog.Attr) slog.Handler       { return e }
func (e *ear) WithGroup(string) slog.Handler            { return e }

func (e *ear) Handle(_ context.Context, r slog.Record) error {
	line := r.Message + " "
	r.Attrs(func(a slog.Attr) bool { line += a.String() + " "; return true })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, line)
	return nil
}

func TestListenerWakesForItsOwnSchemaAndKindsOnly(t *testing.T) {
	t.Parallel()
	e := newEar(t)
	e.listens()
	before := e.wakes.Load()
	for _, payload := range []string{
		"", " ", "jobs", " jobs", e.Schema, e.Schema + " ", e.Schema + "jobs", e.Schema + "  jobs", e.Schema + " jobs ", e.Schema + " JOBS",
		e.Schema + " events", e.Schema + "2 jobs", "x" + e.Schema + " jobs", e.Schema + " test " + strings.Repeat("A", 26),
		strings.Repeat("\u00e9", 3999), e.Schema + " " + strings.Repeat("j", 7900), "\x01\x02 jobs", "notifyq jobs",
	} {
		e.shout(payload)
	}
	e.shout(e.Schema + " events") // what follows has been passed by
	e.tell(store.KindJobs)
	await(t, e.jobs, "it does not hear")
	e.stop()
	require.Equal(t, before+1, e.wakes.Load())
	require.Empty(t, e.events)
}

// The schema's name can fill an identifier, and be the beginning of another.
func TestPayloadsOfSchemasAreApart(t *testing.T) {
	t.Parallel()
	long := store.New(strings.Repeat("s", 63), store.Guards{})
	kind, ours := long.NotifiedKind(strings.Repeat("s", 63) + " jobs")
	require.True(t, ours)
	require.Equal(t, store.KindJobs, kind)
	_, ours = store.New(strings.Repeat("s", 62), store.Guards{}).NotifiedKind(strings.Repeat("s", 63) + " jobs")
	require.False(t, ours)
}

func TestStormWakesAtAPaceAndOnceMoreAfterItsEnd(t *testing.T) {
	t.Parallel()
	e := newEar(t)
	var told atomic.Int64 // what was sent before a wake began
	last := make(chan bool, 100_000)
	e.cfg.Wake[store.KindJobs] = func() {
		e.wakes.Add(1)
		e.jobs <- true
		if told.Load() == 1 {
			last <- true
		}
	}
	e.listens()
	began := time.Now()
	_, err := e.Pool.Exec(t.Context(), fmt.Sprintf(
		`do $$ begin for i in 1..10000 loop perform pg_notify('notifyq', '%s jobs'); commit; end loop; end $$`, e.Schema))
	require.NoError(t, err)
	told.Store(1)
	e.tell(store.KindJobs)
	await(t, last, "what came last wakes nobody")
	e.stop()
	require.LessOrEqual(t, e.wakes.Load(), int64(time.Since(began)/(10*time.Millisecond))+3)
}

func TestLostListenerIsMadeAnewAndWakesForWhatItMissed(t *testing.T) {
	t.Parallel()
	e := newEar(t)
	e.cfg.Connect = func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, e.named()) }
	e.listens()
	for range 3 {
		pids := e.backends(t.Context())
		require.Len(t, pids, 1)
		_, err := e.Pool.Exec(t.Context(), `select pg_terminate_backend($1::int)`, pids[0])
		require.NoError(t, err)
		await(t, e.jobs, "it wakes nobody at its return")
		require.Eventually(t, func() bool { return e.count("listener.back") == e.count("listener.lost") && e.l.Listening() }, patience, time.Millisecond)
		e.tell(store.KindJobs)
		await(t, e.jobs, "it does not hear any more")
	}
	require.Equal(t, 3, e.count("listener.lost"))
	require.Equal(t, 3, e.count("listener.back"))
}

func TestListenerThatCannotConnectSaysSoOnceAndGoesOn(t *testing.T) {
	t.Parallel()
	e := newEar(t)
	var tries atomic.Int64
	e.cfg.Times.Retry = 10 * time.Millisecond
	e.cfg.Connect = func(ctx context.Context) (*pgx.Conn, error) {
		if tries.Add(1) < 10 {
			return nil, errors.New("canary")
		}
		return e.connect(ctx)
	}
	e.listens()
	e.awaitLog("listener.back")
	require.Equal(t, 1, e.count("listener.lost"))
	require.NotContains(t, fmt.Sprint(e.events), "canary")
}

func TestSelfTestThatCannotBeSentIsNotTakenForDeafness(t *testing.T) {
	t.Parallel()
	e := newEar(t)
	send := e.cfg.Send
	var tries atomic.Int64
	e.cfg.Send = func(ctx context.Context, kind string) error {
		if tries.Add(1) == 1 {
			return errors.New("no connection")
		}
		return send(ctx, kind)
	}
	e.listens()
	require.Equal(t, 1, e.count("listener.lost"))
	require.Zero(t, e.count("listener.deaf"))
}

// muteConn lets nothing through to the server once it is muted, as a network that swallows packets.
type muteConn struct {
	net.Conn
	muted *atomic.Bool
}

func (c muteConn) Write(p []byte) (int, error) {
	if c.muted.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func TestConnectionThatDiedWithoutASignIsNoticed(t *testing.T) {
	t.Parallel()
	e := newEar(t)
	e.cfg.Times.Check, e.cfg.Times.Patience, e.cfg.Times.Deaf = 20*time.Millisecond, time.Second, time.Millisecond
	var muted atomic.Bool
	e.cfg.Connect = func(ctx context.Context) (*pgx.Conn, error) {
		cfg, here := e.Pool.Config().ConnConfig, &atomic.Bool{}
		dial := cfg.DialFunc
		cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if muted.Load() {
				return muteConn{conn, here}, err // a new one works
			}
			return muteConn{conn, &muted}, err
		}
		return pgx.ConnectConfig(ctx, cfg)
	}
	e.listens()
	time.Sleep(5 * e.cfg.Times.Check) // some checks pass
	require.Zero(t, e.count("listener.lost"))
	muted.Store(true)
	e.awaitLog("listener.lost")
	e.awaitLog("listener.back")
	await(t, e.jobs, "it wakes nobody at its return")
	e.tell(store.KindJobs)
	await(t, e.jobs, "it does not hear any more")
}

// A LISTEN in another database is one that nobody can reach, as one behind a pooler in transaction mode.
func TestDeafListenerHangsUpAndSaysSoOnce(t *testing.T) {
	t.Parallel()
	e := newEar(t)
	elsewhere, err := pgx.ParseConfig(dbtest.NewDatabase(t))
	require.NoError(t, err)
	elsewhere.RuntimeParams["application_name"] = e.name()
	var tries atomic.Int64
	var mended atomic.Bool
	again := make(chan bool, 1000)
	e.cfg.Times.Patience, e.cfg.Times.Deaf = 100*time.Millisecond, 50*time.Millisecond
	e.cfg.Connect = func(ctx context.Context) (*pgx.Conn, error) {
		tries.Add(1)
		again <- true
		if mended.Load() {
			return pgx.ConnectConfig(ctx, e.named())
		}
		if n := len(e.backends(ctx)); n != 0 { // it is between two tries
			t.Errorf("a deaf listener keeps %d connections", n)
		}
		return pgx.ConnectConfig(ctx, elsewhere)
	}
	e.start()
	for range 4 {
		await(t, again, "it does not try again")
	}
	require.Equal(t, 1, e.count("listener.deaf"))
	require.False(t, e.l.Listening())
	mended.Store(true)
	e.awaitListening(true)
	e.awaitLog("listener.back")
	require.Equal(t, 1, e.count("listener.deaf"))
	require.Zero(t, e.count("listener.lost"))
}

func TestWorkToldDuringTheSelfTestIsHeard(t *testing.T) {
	t.Parallel()
	e := newEar(t)
	testing := make(chan bool)
	e.cfg.Send = func(ctx context.Context, _ string) error {
		close(testing)
		<-ctx.Done()
		return ctx.Err()
	}
	e.start()
	await(t, testing, "there is no self-test")
	await(t, e.jobs, "it wakes nobody at its start")
	e.tell(store.KindJobs)
	await(t, e.jobs, "it does not hear yet")
	require.False(t, e.l.Listening())
}

func TestListenerStopsWhateverItIsAt(t *testing.T) {
	t.Parallel()
	until := func(c chan bool) func(ctx context.Context) error {
		return func(ctx context.Context) error { close(c); <-ctx.Done(); return ctx.Err() }
	}
	for name, change := range map[string]func(e *ear, reached chan bool){
		"connecting": func(e *ear, reached chan bool) {
			e.cfg.Connect = func(ctx context.Context) (*pgx.Conn, error) { return nil, until(reached)(ctx) }
		},
		"sending the self-test": func(e *ear, reached chan bool) {
			e.cfg.Send = func(ctx context.Context, _ string) error { return until(reached)(ctx) }
		},
		"waiting for the self-test": func(e *ear, reached chan bool) {
			e.cfg.Send = func(context.Context, string) error { close(reached); return nil }
		},
		"waiting for a retry": func(e *ear, reached chan bool) {
			e.cfg.Times.Retry = time.Hour
			e.cfg.Random = func() float64 { return 1 }
			var tries int
			e.cfg.Connect = func(context.Context) (*pgx.Conn, error) {
				if tries++; tries == 6 { // its backoff is 3.2 s
					close(reached)
				}
				return nil, errors.New("away")
			}
		},
		"listening": func(e *ear, reached chan bool) {
			send := e.cfg.Send
			e.cfg.Send = func(ctx context.Context, kind string) error { close(reached); return send(ctx, kind) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEar(t)
			reached := make(chan bool)
			change(e, reached)
			e.start()
			await(t, reached, "it does not come to that")
			began := time.Now()
			e.stop()
			require.Less(t, time.Since(began), 2*time.Second)
			require.False(t, e.l.Listening())
			if name != "waiting for a retry" {
				require.Empty(t, e.events, "a stop is no loss")
			}
		})
	}
}
