package migrate_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/migrate"
)

const rolePassword = "hunter2-canary"

func TestRoleThatMayNotCreateLeavesNothingHalfMade(t *testing.T) {
	t.Parallel()
	admin, role, pool := withRole(t)
	err := upError(t, pool, migrate.Options{})
	require.ErrorIs(t, err, migrate.ErrSchema)
	require.ErrorContains(t, err, "role "+role+" lacks the right CREATE on database")
	require.ErrorContains(t, migrate.Validate(t.Context(), pool, migrate.Options{}), "schema notifyq does not exist")
	require.Zero(t, count(t, admin, "select count(*) from pg_namespace where nspname = 'notifyq'"))

	exec(t, admin, "create schema notifyq; grant usage on schema notifyq to %s", role)
	err = upError(t, pool, migrate.Options{})
	require.ErrorIs(t, err, migrate.ErrSchema)
	require.ErrorContains(t, err, "role "+role+" lacks the right CREATE on schema notifyq")
	require.Zero(t, count(t, admin, "select count(*) from pg_class where relnamespace = 'notifyq'::regnamespace"))
}

// An administrator made the schema; the role may create in it, and nowhere else.
func TestRoleMigratesInASchemaMadeForIt(t *testing.T) {
	t.Parallel()
	admin, role, pool := withRole(t)
	exec(t, admin, "create schema notifyq authorization %s", role)
	_, err := migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.NoError(t, migrate.Validate(t.Context(), pool, migrate.Options{}))
}

func TestRoleWithGrantsWorksAndCreatesNothing(t *testing.T) {
	t.Parallel()
	admin, role, pool := withRole(t)
	_, err := migrate.Up(t.Context(), admin, migrate.Options{})
	require.NoError(t, err)
	// What PUBLIC has by default must not be what makes it work.
	exec(t, admin, "revoke execute on all functions in schema notifyq from public")
	grants, err := migrate.Grants("", role)
	require.NoError(t, err)
	for range 2 {
		exec(t, admin, "%s", grants)
	}
	before := fingerprint(t, admin)
	require.NoError(t, migrate.Validate(t.Context(), pool, migrate.Options{}))
	result, err := migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, migrate.Result{From: schema.Version, To: schema.Version}, result)
	require.Equal(t, before, fingerprint(t, admin))

	// An identity column needs no right on its sequence.
	exec(t, pool, "insert into notifyq.operations (what, actor, reason) values ('erase', 'test', 'test')")
	for _, forbidden := range []string{
		"update notifyq.schema_version set version = 0", "drop table notifyq.operations",
		"truncate notifyq.operations", "create table notifyq.mine ()",
	} {
		_, err := pool.Exec(t.Context(), forbidden)
		require.ErrorContains(t, err, "42501", forbidden)
	}
}

func TestMissingRightIsNamedWithItsTable(t *testing.T) {
	t.Parallel()
	admin, role, pool := withRole(t)
	_, err := migrate.Up(t.Context(), admin, migrate.Options{})
	require.NoError(t, err)
	require.ErrorContains(t, migrate.Validate(t.Context(), pool, migrate.Options{}),
		"role "+role+" lacks the right USAGE on schema notifyq")
	grants, err := migrate.Grants("", role)
	require.NoError(t, err)
	for revoked, want := range map[string]string{
		"usage on schema notifyq":                                     "USAGE on schema notifyq",
		"select on notifyq.schema_version":                            "SELECT on notifyq.schema_version",
		"select on notifyq.notification_jobs":                         "SELECT on notifyq.notification_jobs",
		"select on notifyq.notification_queue":                        "SELECT on notifyq.notification_queue",
		"insert on notifyq.notification_attempts":                     "INSERT on notifyq.notification_attempts",
		"update on notifyq.outbox_events":                             "UPDATE on notifyq.outbox_events",
		"delete on notifyq.rate_limit_reservations":                   "DELETE on notifyq.rate_limit_reservations",
		"execute on function notifyq.event_id":                        "EXECUTE on notifyq.event_id",
		"insert, delete on notifyq.operations, notifyq.notifications": "on notifyq.",
	} {
		exec(t, admin, "%s", grants)
		exec(t, admin, "revoke execute on all functions in schema notifyq from public; revoke %s from %s", revoked, role)
		err := migrate.Validate(t.Context(), pool, migrate.Options{})
		require.ErrorIs(t, err, migrate.ErrSchema, revoked)
		require.ErrorContains(t, err, "role "+role+" lacks the right", revoked)
		require.ErrorContains(t, err, want, revoked)
	}
}

func TestValidateTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t))
	validate := func() error { return migrate.Validate(t.Context(), pool, migrate.Options{}) }
	require.ErrorContains(t, validate(), "schema notifyq does not exist; run the migrations")
	exec(t, pool, "create schema notifyq")
	require.ErrorContains(t, validate(), "table notifyq.schema_version does not exist; run the migrations")
	_, err := migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.NoError(t, validate())
	exec(t, pool, "update notifyq.schema_version set version = version - 1")
	require.ErrorContains(t, validate(), fmt.Sprintf("has version %d and at least %d is needed", schema.Version-1, schema.Version))
	exec(t, pool, "delete from notifyq.schema_version")
	require.ErrorContains(t, validate(), "has version 0")
	exec(t, pool, "insert into notifyq.schema_version values (%d); drop table notifyq.webhook_endpoints", schema.Version)
	require.ErrorContains(t, validate(), "notifyq.webhook_endpoints does not exist")
}

// Validate asks through the caller's pool, which may be behind PgBouncer and in any of pgx's modes.
func TestValidateWorksInEveryQueryMode(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		cfg := db.Pool.Config()
		cfg.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		opts := migrate.Options{Schema: db.Schema}
		require.NoError(t, migrate.Validate(t.Context(), pool, opts), mode)
		_, err = migrate.Status(t.Context(), pool, opts)
		require.NoError(t, err, mode)
		_, err = migrate.Up(t.Context(), pool, opts)
		require.NoError(t, err, mode)
	}
}

// What a role or a database sets by default decides nothing, and a schema of the same names in the way is left alone.
func TestHostileRoleSettingsDecideNothing(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"other path":   "search_path = 'other', 'public'",
		"decoys first": "search_path = 'other', 'pg_catalog'",
		"no path":      "search_path = ''",
		"statement":    "statement_timeout = 1",
		"lock":         "lock_timeout = 1",
		"idle in tx":   "idle_in_transaction_session_timeout = 1",
		"idle":         "idle_session_timeout = 1",
		"serializable": "default_transaction_isolation = 'serializable'",
		"strings":      "standard_conforming_strings = off",
		"functions":    "check_function_bodies = off",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin, role, pool := withRole(t)
			exec(t, admin, `
				create schema other;
				create table other.schema_version (version int4 primary key);
				insert into other.schema_version values (1);
				create table other.notifications (id int);
				create function other.current_setting(text) returns text language sql return 'decoy';
				grant all on schema other to %[1]s; grant all on all tables in schema other to %[1]s;
				create schema notifyq authorization %[1]s;
				alter role %[1]s set %[2]s`, role, set)
			const decoys = `select count(*) from pg_class where relnamespace = 'other'::regnamespace and relkind = 'r'`
			before := count(t, admin, decoys)
			result, err := migrate.Up(t.Context(), pool, migrate.Options{})
			require.NoError(t, err)
			require.Equal(t, migrate.Result{From: 0, To: schema.Version}, result)
			require.Equal(t, before, count(t, admin, decoys))
			if strings.HasPrefix(set, "search_path") { // the others are the caller's own trouble
				admin = pool
			}
			require.NoError(t, migrate.Validate(t.Context(), admin, migrate.Options{}))
		})
	}
}

func TestErrorsHoldNoPassword(t *testing.T) {
	t.Parallel()
	_, _, pool := withRole(t)
	noServer := "postgres://app:" + rolePassword + "@127.0.0.1:1/db"
	broken := "postgres://app:" + rolePassword + "@[::1:5432/%zz?sslmode=maybe"
	for _, err := range []error{
		upError(t, pool, migrate.Options{}),
		upError(t, pool, migrate.Options{DirectURL: noServer}),
		upError(t, pool, migrate.Options{DirectURL: broken}),
	} {
		require.NotContains(t, err.Error(), rolePassword)
	}
}

// withRole makes an empty database and a role that has no rights there but to connect.
func withRole(t *testing.T) (admin *pgxpool.Pool, role string, pool *pgxpool.Pool) {
	t.Helper()
	address := dbtest.NewDatabase(t)
	admin = open(t, address)
	u, err := url.Parse(address)
	require.NoError(t, err)
	role = strings.TrimPrefix(u.Path, "/") + "_role"
	exec(t, admin, "create role %s login password '%s'", role, rolePassword)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), fmt.Sprintf("drop owned by %s cascade; drop role %[1]s", role))
		require.NoError(t, err)
	})
	u.User = url.UserPassword(role, rolePassword)
	return admin, role, open(t, u.String())
}
