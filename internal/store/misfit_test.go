package store

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

func TestMisfitsAreNoBrokenConnections(t *testing.T) {
	t.Parallel()
	pool := dbtest.New(t).Pool
	var number int
	var one string
	for what, err := range map[string]error{
		"a column of another type": pool.QueryRow(t.Context(), "select 'canary'::text").Scan(&number),
		"a null":                   pool.QueryRow(t.Context(), "select null::text").Scan(&one),
		"too few columns":          pool.QueryRow(t.Context(), "select 'a', 'b'").Scan(&one),
		"no row":                   pool.QueryRow(t.Context(), "select 'a' where false").Scan(&one),
		"an argument":              pool.QueryRow(t.Context(), "select $1::int", struct{ Name string }{"canary"}).Scan(&number),
	} {
		require.Error(t, err, what)
		require.True(t, IsMisfit(fmt.Errorf("wrapped: %w", err)), "%s: %v", what, err)
		require.Contains(t, Describe(err), "do not fit", what)
		require.NotContains(t, Describe(err), "canary", what)
	}
	_, refused := pgconn.Connect(t.Context(), "postgres://nobody@127.0.0.1:1/x")
	for _, err := range []error{
		refused, io.ErrUnexpectedEOF, net.ErrClosed, context.DeadlineExceeded, &pgconn.PgError{Code: "57P01"}, pgconn.ErrConnClosed,
	} {
		require.False(t, IsMisfit(err), err)
	}
}
