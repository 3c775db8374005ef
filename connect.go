package notifyq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/store"
)

// connect.go is how a worker and a relay come to a database that fits.

// ownPool opens a small pool to the same database: what keeps leases must not queue behind the service's own queries.
func ownPool(ctx context.Context, pool *pgxpool.Pool, conns int32) (*pgxpool.Pool, error) {
	cfg := pool.Config().Copy()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = conns, 0, 0
	return pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
}

// closeWithin closes a pool, and leaves it to itself if the server does not answer: pgx waits up to 15 s for the farewell
// of each connection, which a process that is to stop may not have.
func closeWithin(pool *pgxpool.Pool, d time.Duration) { within(d, pool.Close) }

// within waits for do, at most so long.
func within(d time.Duration, do func()) {
	done := make(chan struct{})
	go func() {
		do()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// awaitSchema waits for a database with a schema that fits. away is the event that is logged meanwhile.
func awaitSchema(ctx context.Context, pool *pgxpool.Pool, name string, log *slog.Logger, away string) error {
	wait := 100 * time.Millisecond
	for {
		version, err := checkSchema(ctx, pool, name)
		var unfit *schema.Error
		switch {
		case err == nil && version > schema.Version:
			log.Warn("schema.ahead", "found", version, "known", schema.Version)
			return nil
		case err == nil:
			return nil
		case errors.As(err, &unfit):
			return fmt.Errorf("notifyq: %w", err) // it is an ErrSchema
		case permanent(err):
			return &dbError{"connect", err}
		}
		log.Warn(away, "error", store.Describe(err), "retryInMs", wait.Milliseconds())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// checkSchema asks once. A host that swallows packets would hold a try for minutes.
func checkSchema(ctx context.Context, pool *pgxpool.Pool, name string) (version int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return schema.Check(ctx, pool, name)
}

// permanent tells a refusal that waiting does not change: wrong credentials, an unknown database or role.
func permanent(err error) bool {
	switch store.Code(err) {
	case "28P01", "28000", "3D000":
		return true
	default:
		return false
	}
}
