package dbtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq/internal/devdb"
)

// Server is a private server of one test, for tests that end it and start it again. What was committed is kept.
type Server struct {
	server *devdb.Server
}

// NewServer starts a server from local binaries, and skips the test where there are none.
func NewServer(t testing.TB) *Server {
	t.Helper()
	cfg := devdb.Config{Fast: true, Settings: settings()}
	// A commit that was answered must survive Crash.
	cfg.Settings["synchronous_commit"] = "on"
	server, err := devdb.Start(t.Context(), cfg)
	if err != nil {
		t.Skipf("needs a server of its own: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop the server: %v", err)
		}
	})
	return &Server{server: server}
}

// New makes a schema on this server. When the test is over its invariants are checked, for which the server is started
// if it is down.
func (s *Server) New(t testing.TB) *DB {
	t.Helper()
	admin, err := connect(t.Context(), s.URL())
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	t.Cleanup(admin.Close)
	db := newDB(t, s.URL(), admin)
	t.Cleanup(func() { db.closePool(t, cleanupTimeout) })
	t.Cleanup(func() {
		if err := s.server.Start(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("start the server: %v", err)
			return
		}
		admin.Reset() // its connections may have been cut
		db.CheckInvariants(t)
	})
	return db
}

// URL is a superuser's connection string.
func (s *Server) URL() string { return s.server.URL() }

// Stop ends the server in good order and keeps its data.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.server.Shutdown(); err != nil {
		t.Fatalf("stop the server: %v", err)
	}
}

// Crash ends the server as if it had been killed.
func (s *Server) Crash(t testing.TB) {
	t.Helper()
	if err := s.server.Crash(); err != nil {
		t.Fatalf("crash the server: %v", err)
	}
}

// Restart starts the server again, on the same port and with the same data, and stops it before if it runs.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.server.Restart(t.Context()); err != nil {
		t.Fatalf("restart the server: %v", err)
	}
}

// Demote makes the server a hot standby, as a former primary is after a failover: it answers reads, and refuses writes.
func (s *Server) Demote(t testing.TB) {
	t.Helper()
	s.exec(t, `do $$ begin execute format('copy (select) to %L', current_setting('data_directory') || '/standby.signal'); end $$`)
	s.Restart(t)
}

// Promote lets a standby write again. Connections stay open.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.exec(t, `select pg_promote()`)
}

func (s *Server) exec(t testing.TB, sql string) {
	t.Helper()
	err := func() error {
		conn, err := pgx.Connect(t.Context(), s.URL())
		if err != nil {
			return err
		}
		_, err = conn.Exec(t.Context(), sql)
		if closed := conn.Close(t.Context()); err == nil {
			err = closed
		}
		return err
	}()
	if err != nil {
		t.Fatalf("dbtest: %s: %v", sql, err)
	}
}
