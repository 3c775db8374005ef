package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// C10. PostgreSQL parses what is stored with a recursion of its own; the limit of 64 levels fits into the least stack that
// a role can be given.
func TestDeepestPayloadNeedsLittleOfTheServersStack(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	cfg := db.Pool.Config().Copy()
	cfg.ConnConfig.RuntimeParams["max_stack_depth"] = "100kB"
	s := serveOn(t, withPool(db, poolOf(t, cfg)), nil)
	for i, payload := range []string{
		strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat(`{"a":`, 63) + "{}" + strings.Repeat("}", 63),
	} {
		job := s.schedule(t, body("idempotencyKey", strconv.Quote(strconv.Itoa(i)), "payload", payload))
		require.Equal(t, http.StatusOK, s.get(t, "/notifications/"+job["id"].(string)).status)
	}
}

// C124. A server that has no connection left (53300) is one that is away: come back later.
func TestServerWithoutAConnectionToSpareIsAway(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	role := "few_" + db.Schema
	for _, statement := range []string{
		"create role " + role + " login password 'few' connection limit 1", "grant " + db.Pool.Config().ConnConfig.User + " to " + role,
	} {
		_, err := db.Pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		_, err := db.Pool.Exec(context.WithoutCancel(t.Context()), "drop role "+role)
		require.NoError(t, err)
	})
	limited := func() *pgxpool.Config {
		cfg := db.Pool.Config().Copy()
		cfg.ConnConfig.User, cfg.ConnConfig.Password = role, "few"
		cfg.MinConns, cfg.MinIdleConns = 0, 0
		return cfg
	}
	holder := poolOf(t, limited())
	held, err := holder.Acquire(t.Context())
	require.NoError(t, err)
	defer held.Release()
	s := serveOn(t, withPool(db, poolOf(t, limited())), nil)
	a := s.post(t, "/notifications", body())
	a.requireProblem(t, http.StatusServiceUnavailable, "database_unavailable")
	require.Equal(t, "5", a.header.Get("Retry-After"))
	require.Contains(t, s.logs.String(), "53300")
}

// C121. An id is a number, however it is spelt: in lower case and in upper case.
func TestIDMayBeInUpperCase(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	job := s.schedule(t, body())
	require.Equal(t, job, s.get(t, "/notifications/"+strings.ToUpper(job["id"].(string))).object(t))
}
