package app

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/cmd/internal/settings"
)

const (
	// connectTimeout bounds a connection's start where the URL sets no connect_timeout.
	connectTimeout = 5 * time.Second
	// closeTimeout is how long a server that does not answer can hold up the end of the process.
	closeTimeout = time.Second
)

// openPool connects to nothing yet. Its errors hold nothing of the URL.
func openPool(ctx context.Context, s settings.Settings, name string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(s.DatabaseURL)
	if err != nil {
		return nil, errors.New("DATABASE_URL: is not a connection string") // the error may quote it
	}
	cfg.MaxConns = int32(s.DatabasePoolMax)
	cfg.MinConns = min(cfg.MinConns, cfg.MaxConns)
	cfg.MinIdleConns = min(cfg.MinIdleConns, cfg.MaxConns)
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, connectTimeout)
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = name // for pg_stat_activity
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return nil, errors.New("DATABASE_URL: can't be used for a pool")
	}
	return pool, nil
}

// closePool leaves the pool to itself if the server does not answer: pgx waits up to 15 s for the farewell of each
// connection.
func closePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		pool.Close()
		close(closed)
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}
