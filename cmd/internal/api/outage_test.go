package api

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

func everyCall(id string) []string {
	return []string{
		"POST /notifications", "POST /notifications/batch", "GET /notifications", "GET /notifications?idempotencyKey=k", "GET /notifications/" + id,
		"GET /notifications/" + id + "/attempts", "DELETE /notifications/" + id, "POST /notifications/" + id + "/retry",
		"POST /notifications/retry", "POST /channels/SMS/pause", "POST /channels/SMS/resume", "GET /webhook-endpoints",
		"POST /webhook-endpoints/x/enable",
	}
}

func (s *server) call(t *testing.T, c string) answered {
	t.Helper()
	method, target := split(c)
	text := ""
	switch target {
	case "/notifications":
		if method == http.MethodPost {
			text = body("idempotencyKey", `"during"`)
		}
	case "/notifications/batch":
		text = `{"notifications":[` + body("idempotencyKey", `"many"`) + `]}`
	}
	return s.do(t, method, target, text)
}

func TestDatabaseThatIsDownIsSaidAndItsReturnNoticed(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	s := serveOn(t, server.New(t), nil)
	id := s.made(t, "before", "ok", "delaySeconds", "60")
	for _, halt := range []func(testing.TB){server.Stop, server.Crash} {
		halt(t)
		for _, c := range everyCall(id) {
			a := s.call(t, c)
			a.requireProblem(t, http.StatusServiceUnavailable, "database_unavailable")
			require.Equal(t, "5", a.header.Get("Retry-After"))
		}
		require.Equal(t, http.StatusBadRequest, s.post(t, "/notifications", "{}").status, "what is wrong stays wrong")
		server.Restart(t)
		require.Equal(t, http.StatusOK, s.get(t, "/notifications/"+id).status, "at once")
		require.Len(t, s.list(t).Items, 1, "nothing was stored meanwhile")
	}
	require.Contains(t, s.logs.String(), `"level":"ERROR","msg":"http.request"`)
}

// A server that swallows what it is sent: the wait ends with the request's time.
func TestDatabaseThatDoesNotAnswerIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	silent := listenSilently(t)
	cfg := db.Pool.Config().Copy()
	cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", silent)
	}
	s := serveOn(t, withPool(db, poolOf(t, cfg)), func(c *Config) { c.Timeout = 100 * time.Millisecond })
	for _, c := range everyCall("01890000-0000-7000-8000-000000000001") {
		a := s.call(t, c)
		a.requireProblem(t, http.StatusServiceUnavailable, "database_unavailable")
	}
}

func listenSilently(t *testing.T) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
		for _, conn := range conns {
			conn.Close()
		}
	})
	return ln.Addr().String()
}

func TestPoolThatIsExhaustedIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	s := serveOn(t, db, func(c *Config) { c.Timeout = 100 * time.Millisecond })
	var held []func()
	for range db.Pool.Config().MaxConns {
		conn, err := db.Pool.Acquire(t.Context())
		require.NoError(t, err)
		held = append(held, conn.Release)
	}
	s.post(t, "/notifications", body()).requireProblem(t, http.StatusServiceUnavailable, "database_unavailable")
	for _, release := range held {
		release()
	}
	s.schedule(t, body())
}

func TestLockedTableIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	s := serveOn(t, db, func(c *Config) { c.Timeout = 100 * time.Millisecond })
	require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "lock table "+db.Schema+".notifications in exclusive mode")
		require.NoError(t, err)
		s.post(t, "/notifications", body()).requireProblem(t, http.StatusServiceUnavailable, "database_unavailable")
		return nil
	}))
	s.schedule(t, body())
	require.Equal(t, 1, s.stored(t))
}

// A role's default does not matter: the API asks for transactions that write.
func TestDatabaseWhoseDefaultIsToReadOnlyIsWrittenTo(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	cfg := db.Pool.Config().Copy()
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	s := serveOn(t, withPool(db, poolOf(t, cfg)), nil)
	s.schedule(t, body())
	for _, c := range everyCall("01890000-0000-7000-8000-000000000001") {
		a := s.call(t, c)
		require.Less(t, a.status, http.StatusInternalServerError, "%s: %s", c, a.body)
	}
}
