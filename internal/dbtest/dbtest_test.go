package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/schema"
)

// childTask, in the environment, makes TestChild do something that is to make the whole binary fail, or not.
const childTask = "NOTIFYQ_DBTEST_CHILD"

func TestMain(m *testing.M) { Main(m) }

func TestEveryTestHasASchemaOfItsOwnAndLeavesNone(t *testing.T) {
	t.Parallel()
	var admin, first *DB
	admin = New(t)
	t.Run("inner", func(t *testing.T) {
		first = New(t)
		second := New(t)
		require.NotEqual(t, first.Schema, second.Schema)
		require.True(t, schema.ValidName(first.Schema))
		version, err := schema.Check(t.Context(), first.Pool, first.Schema)
		require.NoError(t, err)
		require.Equal(t, schema.Version, version)
	})
	var left int
	err := admin.Pool.QueryRow(t.Context(), "select count(*) from pg_namespace where nspname = $1", first.Schema).Scan(&left)
	require.NoError(t, err)
	require.Zero(t, left)
	require.Error(t, first.Pool.Ping(t.Context()), "the pool is closed")
}

func TestBrokenInvariantFailsTheTest(t *testing.T) {
	t.Parallel()
	db := New(t)
	ok := &recorder{TB: t}
	db.CheckInvariants(ok)
	require.Empty(t, ok.errors)

	const job = "01890000-0000-7000-8000-000000000001"
	execute(t, db, `insert into %s.notifications (id, idempotency_key, request_fingerprint, recipient, recipient_key,
		channel, payload, priority, scheduled_at, max_attempts) values ('`+job+`', 'k', '', 'r', 'r', 'EMAIL', '{}', 2, now(), 4)`)
	broken := &recorder{TB: t}
	db.CheckInvariants(broken)
	require.Len(t, broken.errors, 1)
	require.Contains(t, broken.errors[0], "exactly one of a queue row and an outcome: job "+job)
	execute(t, db, "delete from %s.notifications") // or this test fails, too
}

func TestConnectionThatIsNotGivenBackFailsTheTest(t *testing.T) {
	t.Parallel()
	db := New(t)
	conn, err := db.Pool.Acquire(t.Context())
	require.NoError(t, err)
	r := &recorder{TB: t}
	db.closePool(r, 10*time.Millisecond)
	require.Equal(t, []string{"the test still holds 1 of the pool's connections"}, r.errors)
	conn.Release()
}

func TestDatabaseIsEmptyAndAsAskedFor(t *testing.T) {
	t.Parallel()
	var address string
	t.Run("inner", func(t *testing.T) {
		address = NewDatabase(t, "encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'")
		conn, err := pgx.Connect(t.Context(), address)
		require.NoError(t, err) // and left open: it does not keep the database from being dropped
		var encoding string
		var tables int
		require.NoError(t, conn.QueryRow(t.Context(), `
			select current_setting('server_encoding'), (select count(*) from pg_tables where schemaname !~ '^pg_|^information_')`).
			Scan(&encoding, &tables))
		require.Equal(t, "LATIN1", encoding)
		require.Zero(t, tables)
	})
	_, err := pgx.Connect(t.Context(), address)
	require.ErrorContains(t, err, "does not exist")
}

func TestServerOfItsOwnKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	server := NewServer(t)
	db := server.New(t)
	for i, halt := range []func(testing.TB){server.Crash, server.Stop, server.Restart} {
		execute(t, db, "insert into %s.channel_states (channel) values ('c' || (select count(*) from %[1]s.channel_states))")
		halt(t)
		server.Restart(t)
		db.Pool.Reset()
		var rows int
		require.NoError(t, db.Pool.QueryRow(t.Context(), "select count(*) from "+db.Schema+".channel_states").Scan(&rows))
		require.Equal(t, i+1, rows)
	}
	server.Crash(t) // and the invariants are checked all the same
}

// TestChild is run by the tests below in a process of its own.
func TestChild(t *testing.T) {
	switch os.Getenv(childTask) {
	case "":
		t.Skip("run by other tests")
	case "leak":
		go func() { <-context.Background().Done() }()
	case "use":
		New(t)
	}
}

func TestGoroutineThatIsLeftFailsTheBinary(t *testing.T) {
	t.Parallel()
	out, err := child(t, "leak")
	require.Error(t, err)
	require.Contains(t, out, "goroutines are left")
}

func TestNoServerIsStartedForTestsThatNeedNone(t *testing.T) {
	t.Parallel()
	const nowhere = "NOTIFYQ_TEST_DATABASE_URL=postgres://postgres:canary@127.0.0.1:1/postgres"
	out, err := child(t, "nothing", nowhere)
	require.NoError(t, err, out)
	out, err = child(t, "use", nowhere)
	require.Error(t, err)
	require.Contains(t, out, "127.0.0.1:1")
	require.NotContains(t, out, "canary")
}

func child(t *testing.T, task string, env ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(append(os.Environ(), childTask+"="+task), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func execute(t *testing.T, db *DB, format string) {
	t.Helper()
	_, err := db.Pool.Exec(t.Context(), fmt.Sprintf(strings.ReplaceAll(format, "%s", "%[1]s"), db.Schema))
	require.NoError(t, err)
}

// recorder is a test whose failures are expected.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
