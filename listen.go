package notifyq

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/notify"
	"github.com/notifyq/notifyq/internal/store"
)

// listen.go is how a worker and a relay hear of what other processes have committed.

// listen runs a listener until ctx ends. wait returns when it has ended, or when a hook of the pool's keeps it.
func listen(ctx context.Context, cfg notify.Config) (l *notify.Listener, wait func()) {
	cfg.Random = rand.Float64
	l = notify.New(cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	return l, func() { within(time.Second, func() { <-done }) }
}

// tellTimeout bounds a NOTIFY on one of the two connections that leases and outcomes need.
const tellTimeout = time.Second

// teller tells other processes of a kind of work, in its turn with other calls that nothing waits for.
func teller(
	aside func(ctx context.Context, call func(ctx context.Context) error) error, queue *store.Store, own *pgxpool.Pool,
) func(ctx context.Context, kind string) error {
	return func(ctx context.Context, kind string) error {
		return aside(ctx, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, tellTimeout)
			defer cancel()
			return queue.Notify(ctx, own, kind)
		})
	}
}

// connectLike opens connections as the pool does. Its AfterConnect belongs to that: without it one could be somebody else,
// or nobody.
func connectLike(pool *pgxpool.Pool) func(ctx context.Context) (*pgx.Conn, error) {
	cfg := pool.Config()
	return func(ctx context.Context) (*pgx.Conn, error) {
		c := cfg.ConnConfig.Copy()
		if cfg.BeforeConnect != nil {
			if err := cfg.BeforeConnect(ctx, c); err != nil {
				return nil, err
			}
		}
		c.OnNotification = nil // or pgx would hand them there, and not to who waits
		// Waits end all the time. The pool's way of ending one may be to ask the server for it, on one more connection.
		c.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
		}
		conn, err := pgx.ConnectConfig(ctx, c)
		if err != nil || cfg.AfterConnect == nil {
			return conn, err
		}
		if err := cfg.AfterConnect(ctx, conn); err != nil {
			_ = conn.Close(ctx)
			return nil, err
		}
		return conn, nil
	}
}
