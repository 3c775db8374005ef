package api

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// poolOf is a pool that lives as long as the test.
func poolOf(t *testing.T, cfg *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// withPool is db by another pool.
func withPool(db *dbtest.DB, pool *pgxpool.Pool) *dbtest.DB {
	other := *db
	other.Pool = pool
	return &other
}
