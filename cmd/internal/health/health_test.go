package health

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/migrate"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, strings.TrimSpace(w.Body.String())
}

// forget makes the next probe ask, as if the last answer had grown old.
func (c *Checker) forget() {
	c.look.mu.Lock()
	defer c.look.mu.Unlock()
	c.look.askedAt = time.Time{}
}

const (
	up   = `{"status":"ok","info":{"database":{"status":"up"}},"error":{},"details":{"database":{"status":"up"}}}`
	down = `{"status":"error","info":{},"error":{"database":{"status":"down"}},"details":{"database":{"status":"down"}}}`
)

func TestOutageIsToldAndSurvived(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	db := server.New(t)
	var logs bytes.Buffer
	c := New(Config{Database: db.Pool, Schema: db.Schema, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	require.Empty(t, c.Failing(t.Context()))
	code, body := get(c, "/readyz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, `{"status":"ready","failing":[]}`, body)
	code, body = get(c, "/health")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, up, body)

	server.Stop(t)
	c.forget()
	code, body = get(c, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, `{"status":"unready","failing":["database"]}`, body)
	code, body = get(c, "/health")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, down, body)
	code, _ = get(c, "/livez")
	require.Equal(t, http.StatusOK, code)

	server.Restart(t)
	require.Eventually(t, func() bool {
		c.forget()
		code, _ := get(c, "/readyz")
		return code == http.StatusOK
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, strings.Count(logs.String(), "health.not_ready"), logs.String())
	require.Equal(t, 2, strings.Count(logs.String(), "health.ready"))
}

// A former primary answers everything that is read, and can't take a notification.
func TestStandbyIsNotReadyUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	db := server.New(t)
	var logs bytes.Buffer
	c := New(Config{Database: db.Pool, Schema: db.Schema, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	require.Empty(t, c.Failing(t.Context()))

	server.Demote(t)
	db.Pool.Reset()
	c.forget()
	code, body := get(c, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, `{"status":"unready","failing":["database"]}`, body)
	code, body = get(c, "/health")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, down, body)
	require.Contains(t, logs.String(), `reason="the server is a standby, which can't write"`)

	server.Promote(t)
	require.Eventually(t, func() bool {
		c.forget()
		code, _ := get(c, "/readyz")
		return code == http.StatusOK
	}, 20*time.Second, 10*time.Millisecond)
	code, body = get(c, "/health")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, up, body)
}

// Where the URL leads to another server by now, or has several, a connection to the standby would keep the process unready.
func TestConnectionsToAStandbyAreGivenUp(t *testing.T) {
	t.Parallel()
	db := &fake{standby: true}
	c := New(Config{Database: db})
	require.Equal(t, []string{CheckDatabase}, c.Failing(t.Context()))
	require.EqualValues(t, 1, db.resets.Load())
	down := &fake{err: errors.New("canary")}
	require.Equal(t, []string{CheckDatabase}, New(Config{Database: down}).Failing(t.Context()))
	require.Zero(t, down.resets.Load(), "a pool drops broken ones by itself")
}

func TestSchemaThatIsMissingIsNotReadyUntilItIsThere(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), dbtest.NewDatabase(t))
	require.NoError(t, err)
	defer pool.Close()
	var logs bytes.Buffer
	c := New(Config{
		Database: pool, Logger: slog.New(slog.NewTextHandler(&logs, nil)), MigrateCommand: "notifyq-api migrate up",
	})
	code, body := get(c, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, `{"status":"unready","failing":["schema"]}`, body)
	require.Contains(t, logs.String(), `run="notifyq-api migrate up"`)
	code, _ = get(c, "/health")
	require.Equal(t, http.StatusOK, code, "the database answers")

	_, err = migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	c.forget()
	require.Empty(t, c.Failing(t.Context()))
}

func TestLoopsAndDraining(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	beating := atomic.Bool{}
	var logs bytes.Buffer
	c := New(Config{
		Database: db.Pool, Schema: db.Schema, Beating: beating.Load, Logger: slog.New(slog.NewTextHandler(&logs, nil)),
	})
	require.Equal(t, []string{CheckLoops}, c.Failing(t.Context()))
	require.Empty(t, logs.String(), "a worker that starts")
	beating.Store(true)
	require.Empty(t, c.Failing(t.Context()))
	beating.Store(false)
	require.Equal(t, []string{CheckLoops}, c.Failing(t.Context()))
	require.Contains(t, logs.String(), "health.not_ready")
	beating.Store(true)
	c.Drain()
	require.Equal(t, []string{CheckDraining}, c.Failing(t.Context()))
	for path, want := range map[string]int{"/readyz": 503, "/livez": 200, "/health": 200} {
		code, _ := get(c, path)
		require.Equal(t, want, code, path)
	}
}

func TestAnswersAreNotKept(t *testing.T) {
	t.Parallel()
	c := New(Config{Database: &fake{}})
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/livez", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	code, body := get(c, "/else")
	require.Equal(t, http.StatusNotFound, code)
	require.True(t, json.Valid([]byte(body)))
}

// fake is a database that hangs until it is let go, fails, or is a standby. It has no schema.
type fake struct {
	looks   atomic.Int32
	resets  atomic.Int32
	arrived chan struct{}
	release chan struct{}
	standby bool
	err     error
}

func (f *fake) QueryRow(ctx context.Context, sql string, _ ...any) pgx.Row {
	if sql != standbySQL {
		return row{err: errors.New("canary")}
	}
	f.looks.Add(1)
	if f.release == nil {
		return row{f.standby, f.err}
	}
	f.arrived <- struct{}{}
	select {
	case <-f.release:
		return row{f.standby, f.err}
	case <-ctx.Done():
		return row{err: ctx.Err()}
	}
}

func (f *fake) Reset() { f.resets.Add(1) }

type row struct {
	standby bool
	err     error
}

func (r row) Scan(into ...any) error {
	if r.err == nil {
		*into[0].(*bool) = r.standby
	}
	return r.err
}

// A hundred probes at once are one question, and those after them within the second ask nothing.
func TestProbesShareAQuestion(t *testing.T) {
	t.Parallel()
	db := &fake{arrived: make(chan struct{}, 100), release: make(chan struct{}), err: errors.New("canary")}
	c := New(Config{Database: db})
	var probes sync.WaitGroup
	probes.Go(func() { get(c, "/readyz") })
	<-db.arrived
	for range 100 {
		probes.Go(func() {
			if code, body := get(c, "/readyz"); code != http.StatusServiceUnavailable || strings.Contains(body, "canary") {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	close(db.release)
	probes.Wait()
	require.EqualValues(t, 1, db.looks.Load())
}

// A probe whose client has left must not end the question of the others.
func TestProbeThatLeavesDoesNotEndTheQuestion(t *testing.T) {
	t.Parallel()
	db := &fake{arrived: make(chan struct{}, 1), release: make(chan struct{}), err: errors.New("down")}
	c := New(Config{Database: db})
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan []string)
	go func() { left <- c.Failing(ctx) }()
	<-db.arrived
	stays := make(chan []string)
	go func() { stays <- c.Failing(t.Context()) }()
	cancel()
	require.Equal(t, []string{CheckDatabase}, <-left)
	close(db.release)
	require.Equal(t, []string{CheckDatabase}, <-stays)
	require.EqualValues(t, 1, db.looks.Load())
}

// A database that swallows everything is down within the time, and not for ever.
func TestHangingDatabaseIsDown(t *testing.T) {
	t.Parallel()
	c := New(Config{Database: &fake{arrived: make(chan struct{}, 1), release: make(chan struct{})}})
	code, body := get(c, "/health")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, down, body)
}

func TestWatchTellsWithoutProbes(t *testing.T) {
	t.Parallel()
	told := make(chan string, 1)
	c := New(Config{Database: &fake{err: errors.New("canary")}, Logger: slog.New(slog.NewTextHandler(lines(told), nil))})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		c.Watch(ctx)
		close(ended)
	}()
	line := <-told
	require.Contains(t, line, "health.not_ready")
	require.NotContains(t, line, "canary")
	cancel()
	<-ended
}

type lines chan<- string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}
