package migrate_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/migrate"
)

// ternLock is the key of every tern.
const ternLock = 9628173550095224

const waiting = "waiting for another migration"

// A migrator that was killed, or lost its connection, has its lock taken away by the server.
func TestDeadHolderFreesTheLock(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t))
	holder := hold(t, pool, migrate.LockKey(schema.Default))
	log := &logged{}
	wait := background(t, pool, migrate.Options{Logger: log.logger()})
	waitUntil(t, "Up waits", func() bool { return log.count(waiting) > 0 })
	terminate(t, pool, holder)
	require.NoError(t, wait())
	require.NoError(t, migrate.Validate(t.Context(), pool, migrate.Options{}))
}

func TestWaitingForAPausedHolderHasALimit(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t))
	hold(t, pool, migrate.LockKey(schema.Default))
	log := &logged{}
	started := time.Now()
	err := upError(t, pool, migrate.Options{LockTimeout: 300 * time.Millisecond, Logger: log.logger()})
	require.ErrorIs(t, err, migrate.ErrLocked)
	require.ErrorContains(t, err, "backend")
	require.Less(t, time.Since(started), 10*time.Second)
	require.Equal(t, 1, log.count(waiting))
	require.Zero(t, count(t, pool, "select count(*) from pg_namespace where nspname = 'notifyq'"))

	// Another schema's migration has a lock of its own.
	_, err = migrate.Up(t.Context(), pool, migrate.Options{Schema: "another", LockTimeout: 10 * time.Second})
	require.NoError(t, err)
}

// The host calls Up inside a migration of its own, on another connection: tern alone would wait for ever.
func TestHostThatHoldsTernsLockIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t))
	holder := hold(t, pool, ternLock)
	err := upError(t, pool, migrate.Options{LockTimeout: 300 * time.Millisecond})
	require.ErrorIs(t, err, migrate.ErrLocked)
	require.ErrorContains(t, err, "tern")
	require.Zero(t, count(t, pool, "select count(*) from pg_namespace where nspname = 'notifyq'"))

	log := &logged{}
	wait := background(t, pool, migrate.Options{Logger: log.logger()})
	waitUntil(t, "Up waits", func() bool { return log.count(waiting) > 0 })
	terminate(t, pool, holder)
	require.NoError(t, wait())

	hold(t, pool, ternLock)
	_, err = migrate.Up(t.Context(), pool, migrate.Options{LockTimeout: time.Millisecond})
	require.NoError(t, err, "where nothing is to do no lock is needed")
}

// A statement that waits for a lock has a snapshot, for which CREATE INDEX CONCURRENTLY of the holder waits in turn.
func TestHolderCanBuildAnIndexConcurrentlyWhileOthersWait(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t))
	exec(t, pool, "create table public.host as select generate_series(1, 1000) as n")
	conn := session(t, pool)
	_, err := conn.Exec(t.Context(), "select pg_advisory_lock($1)", ternLock)
	require.NoError(t, err)
	var waits []func() error
	log := &logged{}
	for range 4 {
		waits = append(waits, background(t, pool, migrate.Options{Logger: log.logger()}))
	}
	waitUntil(t, "all wait", func() bool { return log.count(waiting) >= 4 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = conn.Exec(ctx, "create index concurrently on public.host (n)")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	for _, wait := range waits {
		require.NoError(t, wait())
	}
}

// What was half done is undone by the server, and the next Up does it all.
func TestMigratorKilledInsideAMigrationLeavesNothingBroken(t *testing.T) {
	t.Parallel()
	pool := open(t, dbtest.NewDatabase(t))
	const gate = 4711
	holder := hold(t, pool, gate)
	exec(t, pool, `
		create function public.gate() returns event_trigger language plpgsql as $$
		begin
			if exists (select from pg_event_trigger_ddl_commands() c where c.object_identity like '%%.outbox_events') then
				perform pg_advisory_xact_lock(%d);
			end if;
		end $$;
		create event trigger gate on ddl_command_end execute function public.gate()`, gate)
	const stuck = `select count(*) from pg_stat_activity
	                where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'advisory'`

	wait := background(t, pool, migrate.Options{})
	waitUntil(t, "Up is inside a migration", func() bool { return count(t, pool, stuck) == 1 })
	exec(t, pool, `select pg_terminate_backend(pid) from pg_stat_activity
	                where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'advisory'`)
	require.Error(t, wait())

	err := upError(t, pool, migrate.Options{LockTimeout: 200 * time.Millisecond})
	require.ErrorIs(t, err, migrate.ErrLocked, "no lock is waited for longer than LockTimeout")

	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() {
		_, err := migrate.Up(ctx, pool, migrate.Options{})
		cancelled <- err
	}()
	waitUntil(t, "Up is inside a migration", func() bool { return count(t, pool, stuck) == 1 })
	cancel()
	require.ErrorIs(t, <-cancelled, context.Canceled)

	state, err := migrate.Status(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.Zero(t, state.Current)
	terminate(t, pool, holder)
	result, err := migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, migrate.Result{From: 0, To: schema.Version}, result)
}

// session is a connection of the test's own.
func session(t *testing.T, pool *pgxpool.Pool) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// hold takes an advisory lock in a session of its own and returns the session's backend.
func hold(t *testing.T, pool *pgxpool.Pool, key int64) (backend uint32) {
	t.Helper()
	conn := session(t, pool)
	_, err := conn.Exec(t.Context(), "select pg_advisory_lock($1)", key)
	require.NoError(t, err)
	return conn.PgConn().PID()
}

func terminate(t *testing.T, pool *pgxpool.Pool, backend uint32) {
	t.Helper()
	exec(t, pool, "select pg_terminate_backend(%d)", backend)
}
