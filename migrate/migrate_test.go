package migrate_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/migrate"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestMigratorsStartedTogetherAllSucceedAndOneMigrates(t *testing.T) {
	t.Parallel()
	const migrators, rounds = 8, 5
	for range rounds {
		url := dbtest.NewDatabase(t)
		results := make([]migrate.Result, migrators)
		errs := make([]error, migrators)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range migrators {
			pool := open(t, url)
			wg.Go(func() {
				<-start
				results[i], errs[i] = migrate.Up(t.Context(), pool, migrate.Options{})
			})
		}
		close(start)
		wg.Wait()

		migrated := 0
		for i := range migrators {
			require.NoError(t, errs[i])
			require.Equal(t, schema.Version, results[i].To)
			if results[i].From != results[i].To {
				migrated++
			}
		}
		require.Equal(t, 1, migrated, "exactly one migrator does the work")
		require.NoError(t, migrate.Validate(t.Context(), open(t, url), migrate.Options{}))
	}
}

func TestSecondRunChangesNothing(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t))
	result, err := migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, migrate.Result{From: 0, To: schema.Version}, result)
	before := fingerprint(t, pool)

	result, err = migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, migrate.Result{From: schema.Version, To: schema.Version}, result)
	require.Equal(t, before, fingerprint(t, pool))
}

func TestStatusTellsWhatIsApplied(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t))
	state, err := migrate.Status(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, 0, state.Current)
	require.Equal(t, schema.Version, state.Latest)
	require.Len(t, state.Migrations, schema.Version)
	require.Equal(t, migrate.Migration{Version: 1, Name: "001_init.sql"}, state.Migrations[0])

	_, err = migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	state, err = migrate.Status(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, schema.Version, state.Current)
	for _, m := range state.Migrations {
		require.True(t, m.Applied, m.Name)
	}
}

func TestSchemaOfALaterReleaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t)) // of its own: the fingerprint is the whole database's
	log := &logged{}
	opts := migrate.Options{Logger: log.logger()}
	_, err := migrate.Up(t.Context(), pool, opts)
	require.NoError(t, err)
	exec(t, pool, "update %s.schema_version set version = 9999", "notifyq")
	before := fingerprint(t, pool)

	result, err := migrate.Up(t.Context(), pool, opts)
	require.NoError(t, err)
	require.Equal(t, migrate.Result{From: 9999, To: 9999}, result)
	require.Equal(t, 1, log.count("the schema is ahead of this release"))
	require.NoError(t, migrate.Validate(t.Context(), pool, opts))
	require.Equal(t, 2, log.count("the schema is ahead of this release"))
	require.Equal(t, before, fingerprint(t, pool))
}

// The host may run tern too, whose version table has the same name.
func TestForeignVersionTableIsNotTakenForOurs(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t))
	exec(t, pool, "create table public.schema_version (version int4 primary key); insert into public.schema_version values (57)")
	opts := migrate.Options{Schema: "public"}
	for _, err := range []error{upError(t, pool, opts), migrate.Validate(t.Context(), pool, opts)} {
		require.ErrorIs(t, err, migrate.ErrSchema)
		require.ErrorContains(t, err, "is the schema shared with something else?")
	}
}

func TestTwoSchemasLiveInOneDatabase(t *testing.T) {
	t.Parallel()
	url := dbtest.NewDatabase(t)
	pool := open(t, url)
	names := []string{"first", "second", "order", "_3"} // "order" is a keyword of SQL
	var wg sync.WaitGroup
	errs := make([]error, len(names))
	for i, name := range names {
		wg.Go(func() { _, errs[i] = migrate.Up(t.Context(), pool, migrate.Options{Schema: name}) })
	}
	wg.Wait()
	for i, name := range names {
		require.NoError(t, errs[i], name)
		require.NoError(t, migrate.Validate(t.Context(), pool, migrate.Options{Schema: name}), name)
		state, err := migrate.Status(t.Context(), pool, migrate.Options{Schema: name})
		require.NoError(t, err)
		require.Equal(t, schema.Version, state.Current, name)
	}
	require.ErrorIs(t, migrate.Validate(t.Context(), pool, migrate.Options{}), migrate.ErrSchema)
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t))
	for _, name := range []string{
		"Weird-Schema", "Notifyq", "a b", `a"b`, "1a", "pg_mine", "information_schema", "ü",
		strings.Repeat("a", 64),
	} {
		opts := migrate.Options{Schema: name}
		require.ErrorIs(t, upError(t, pool, opts), migrate.ErrSchema, name)
		require.ErrorIs(t, migrate.Validate(t.Context(), pool, opts), migrate.ErrSchema, name)
		_, err := migrate.Status(t.Context(), pool, opts)
		require.ErrorIs(t, err, migrate.ErrSchema, name)
		_, err = migrate.SQL(name)
		require.ErrorIs(t, err, migrate.ErrSchema, name)
		_, err = migrate.Grants(name, "app")
		require.ErrorIs(t, err, migrate.ErrSchema, name)
	}
	for _, timeout := range []time.Duration{-1, 1, time.Microsecond, 25 * 24 * time.Hour} {
		require.ErrorContains(t, upError(t, pool, migrate.Options{LockTimeout: timeout}), "LockTimeout")
	}
	_, err := migrate.Grants("", "")
	require.ErrorContains(t, err, "role")
	require.Zero(t, count(t, pool, "select count(*) from pg_namespace where nspname = 'notifyq'"))
}

func TestDatabaseThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		pool := open(t, dbtest.NewDatabase(t, "encoding '"+encoding+"' lc_collate 'C' lc_ctype 'C'"))
		for _, err := range []error{upError(t, pool, migrate.Options{}), migrate.Validate(t.Context(), pool, migrate.Options{})} {
			require.ErrorIs(t, err, migrate.ErrSchema)
			require.ErrorContains(t, err, "encoding is "+encoding)
		}
		require.Zero(t, count(t, pool, "select count(*) from pg_namespace where nspname = 'notifyq'"))
	}
}

func TestFrozenDatabaseIsNotMigrated(t *testing.T) {
	t.Parallel()
	url := dbtest.NewDatabase(t)
	exec(t, open(t, url), "do $$ begin execute format('alter database %%I set default_transaction_read_only = on', current_database()); end $$")
	err := upError(t, open(t, url), migrate.Options{})
	require.ErrorIs(t, err, migrate.ErrSchema)
	require.ErrorContains(t, err, "read-only")
}

// fingerprint changes with every change to the catalogs' rows of the schemas, and to the version's row.
func fingerprint(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var text string
	err := pool.QueryRow(t.Context(), `
		select string_agg(x.line, e'\n' order by x.line)
		  from (select 'relation ' || c.oid || ' ' || c.relname || ' ' || c.xmin as line
		          from pg_class c join pg_namespace n on n.oid = c.relnamespace
		         where n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
		        union all
		        select 'schema ' || n.oid || ' ' || n.nspname || ' ' || n.xmin from pg_namespace n
		         where n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
		        union all
		        select 'function ' || p.oid || ' ' || p.proname || ' ' || p.xmin
		          from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		         where n.nspname !~ '^pg_' and n.nspname <> 'information_schema') x`).Scan(&text)
	require.NoError(t, err)
	return text
}

// open is a pool that is closed with the test.
func open(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func upError(t *testing.T, pool *pgxpool.Pool, opts migrate.Options) error {
	t.Helper()
	result, err := migrate.Up(t.Context(), pool, opts)
	require.Error(t, err)
	require.Zero(t, result)
	return err
}

func exec(t *testing.T, pool *pgxpool.Pool, format string, args ...any) {
	t.Helper()
	_, err := pool.Exec(t.Context(), fmt.Sprintf(format, args...))
	require.NoError(t, err)
}

func count(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 20*time.Second, 5*time.Millisecond, what)
}

// background runs Up and returns what waits for its error.
func background(t *testing.T, pool *pgxpool.Pool, opts migrate.Options) (wait func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := migrate.Up(t.Context(), pool, opts)
		done <- err
	}()
	return func() error {
		select {
		case err := <-done:
			return err
		case <-time.After(30 * time.Second):
			return errors.New("Up did not return")
		}
	}
}
