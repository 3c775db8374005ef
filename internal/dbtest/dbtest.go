// Package dbtest gives tests a real PostgreSQL: one server a test binary, started when the first test asks for it, and
// a schema of its own for every test. Each package that uses it has
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
// and its tests begin with
//
//	t.Parallel()
//	db := dbtest.New(t)
//
// The server is the one at NOTIFYQ_TEST_DATABASE_URL (a superuser's URL), else one from local binaries, else a
// container. Where there is none of them the tests fail: a suite that skips everything looks like one that passes.
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/notifyq/notifyq/internal/devdb"
)

// startTimeout covers a container's image that has to be fetched.
const startTimeout = 5 * time.Minute

// maxConns is the size of every pool a test gets.
const maxConns = 10

// binary is what the tests of one test binary share. The testing package hands tests nothing but their T, so that it
// can only live in a variable of this package.
type binary struct {
	mu     sync.Mutex
	main   bool
	server *devdb.Server
	admin  *pgxpool.Pool
	err    error
}

var shared binary

// Main runs the tests, ends the shared server, fails if a goroutine is left, and exits.
func Main(m *testing.M) {
	shared.mu.Lock()
	shared.main = true
	shared.mu.Unlock()
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest: stop the server:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(leakOptions()...); err != nil {
			fmt.Fprintln(os.Stderr, "dbtest: goroutines are left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// start returns the shared server, and starts it for the first test that asks.
func (b *binary) start(t testing.TB) (*devdb.Server, *pgxpool.Pool) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.main {
		t.Fatal("dbtest: the package needs func TestMain(m *testing.M) { dbtest.Main(m) }")
	}
	if b.server == nil && b.err == nil {
		b.server, b.admin, b.err = startShared()
	}
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.server, b.admin
}

func startShared() (*devdb.Server, *pgxpool.Pool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	server, err := devdb.Start(ctx, devdb.Config{
		URL:       os.Getenv("NOTIFYQ_TEST_DATABASE_URL"),
		Fast:      true,
		Settings:  settings(),
		Fallbacks: []devdb.Fallback{container()},
	})
	if err != nil {
		return nil, nil, err
	}
	admin, err := connect(ctx, server.URL())
	if err == nil {
		err = admin.Ping(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("dbtest: %w", err), server.Stop())
	}
	return server, admin, nil
}

func settings() map[string]string {
	return map[string]string{"max_connections": "300"}
}

func (b *binary) stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.admin != nil {
		b.admin.Close()
	}
	if b.server == nil {
		return nil
	}
	return b.server.Stop()
}

func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the database's URL is not a connection string") // which holds a password
	}
	cfg.MaxConns = maxConns
	return pgxpool.NewWithConfig(ctx, cfg)
}
