package migrate_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/migrate"
)

func TestPoolerThatRefusesStartupParametersIsRecognised(t *testing.T) {
	t.Parallel()
	direct := dbtest.NewDatabase(t)
	pool := open(t, through(t, direct, func(server *pgproto3.Backend, m *pgproto3.StartupMessage) bool {
		if _, found := m.Parameters["lock_timeout"]; !found {
			return true
		}
		// The words of PgBouncer.
		server.Send(&pgproto3.ErrorResponse{
			Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: lock_timeout",
		})
		return false
	}))
	err := upError(t, pool, migrate.Options{})
	require.ErrorIs(t, err, migrate.ErrPooled)
	require.ErrorContains(t, err, "DirectURL")

	_, err = migrate.Up(t.Context(), pool, migrate.Options{DirectURL: direct})
	require.NoError(t, err)
	require.NoError(t, migrate.Validate(t.Context(), pool, migrate.Options{}), "reading works through the pooler")
}

func TestPoolerThatIgnoresStartupParametersIsRecognised(t *testing.T) {
	t.Parallel()
	direct := dbtest.NewDatabase(t)
	pool := open(t, through(t, direct, func(_ *pgproto3.Backend, m *pgproto3.StartupMessage) bool {
		for name := range m.Parameters {
			if name != "user" && name != "database" {
				delete(m.Parameters, name)
			}
		}
		return true
	}))
	require.ErrorIs(t, upError(t, pool, migrate.Options{}), migrate.ErrPooled)
	require.Zero(t, count(t, open(t, direct), "select count(*) from pg_namespace where nspname = 'notifyq'"))
}

// A service whose passwords live for minutes sets them in BeforeConnect.
func TestUpAsksForAFreshPassword(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(dbtest.NewDatabase(t))
	require.NoError(t, err)
	password := cfg.ConnConfig.Password
	cfg.ConnConfig.Password = "stale"
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.Password = password
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
}

// through puts a proxy before a server that shows each start-up message to edit, which returns whether to go on, and
// returns the URL that leads through it.
func through(t *testing.T, address string, edit func(*pgproto3.Backend, *pgproto3.StartupMessage) bool) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	server := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go proxy(client, server, edit)
		}
	}()
	u.Host = listener.Addr().String()
	return u.String()
}

func proxy(client net.Conn, address string, edit func(*pgproto3.Backend, *pgproto3.StartupMessage) bool) {
	defer func() { _ = client.Close() }()
	backend := pgproto3.NewBackend(client, client)
	first, err := backend.ReceiveStartupMessage()
	startup, ok := first.(*pgproto3.StartupMessage)
	if err != nil || !ok {
		return // a CancelRequest, say, which these tests need not pass on
	}
	if !edit(backend, startup) {
		_ = backend.Flush()
		return
	}
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	frontend := pgproto3.NewFrontend(server, server)
	frontend.Send(startup)
	if err := frontend.Flush(); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
