package api

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// A mistake of this program does not go away with another try, and who reads the log is not to look for a network.
func TestRowThatCannotBeReadIsNoUnavailableDatabase(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.schedule(t, body())["id"].(string)
	for _, sql := range []string{"alter column recipient drop not null", ""} {
		if sql == "" {
			sql = "update " + s.db.Schema + ".notifications set recipient = null"
		} else {
			sql = "alter table " + s.db.Schema + ".notifications " + sql
		}
		_, err := s.db.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	for _, target := range []string{"/notifications/" + id, "/notifications"} {
		a := s.get(t, target)
		a.requireProblem(t, http.StatusInternalServerError, "internal_error")
		require.Empty(t, a.header.Get("Retry-After"))
	}
	require.NotContains(t, s.logs.String(), "database connection failed")
}

func TestDatabaseWithoutTheSchemaIsSaid(t *testing.T) {
	t.Parallel()
	missing := *dbtest.New(t)
	missing.Schema = "no_such_schema"
	s := serveOn(t, &missing, nil)
	for _, a := range []answered{s.post(t, "/notifications", body()), s.get(t, "/notifications")} {
		p := a.requireProblem(t, http.StatusServiceUnavailable, "database_unavailable")
		require.Contains(t, p.Detail, "schema")
		require.NotContains(t, p.Detail, "does not answer")
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
}

func TestWhatTheServerSaysTellsWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	for code, status := range map[string]int{
		"25006": 503, "0A000": 503, // a primary that became a standby: it refuses to write, and to begin to
		"57P01": 503, "53300": 503, "08006": 503, "28P01": 503, "3D000": 503, "40001": 503, "55P03": 503,
		"22P02": 500, "23514": 500, "42601": 500, "XX000": 500,
	} {
		require.Equal(t, status, refusalOf(fmt.Errorf("x: %w", &pgconn.PgError{Code: code})).status, code)
	}
}
