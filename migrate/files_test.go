package migrate_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	tern "github.com/jackc/tern/v2/migrate"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/migrate"
)

// A released migration is never edited: databases have it already, and would never get the change. Until the first
// release a changed hash is entered here; from then on a change is a new file.
func TestMigrationsAreNeverEdited(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"001_init.sql": "fa6280b23dd0b6abd2167d710e7e8918736519282acc6d7d6cd33813df889e70",
	}
	folder := os.DirFS("sql")
	names, err := fs.Glob(folder, "*")
	require.NoError(t, err)
	got := map[string]string{}
	for _, name := range names {
		text, err := fs.ReadFile(folder, name)
		require.NoError(t, err)
		sum := sha256.Sum256(text)
		got[name] = hex.EncodeToString(sum[:])
	}
	require.Equal(t, want, got)
	require.Len(t, names, schema.Version, "schema.Version is the number of migrations")
}

// Check looks for these, and Grants grants them.
func TestSchemaPackageKnowsEveryTable(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	relations := func(kind string) []string {
		rows, err := db.Pool.Query(t.Context(), `
			select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
			 where n.nspname = $1 and c.relkind::text = $2 and c.relname <> 'schema_version'`, db.Schema, kind)
		require.NoError(t, err)
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return names
	}
	require.ElementsMatch(t, schema.Tables(), relations("r"))
	require.ElementsMatch(t, schema.Views(), relations("v"))
}

// As psql -1 -f does: all of it in one message, with a transaction around it.
func TestSQLMakesASchemaThatUpAndValidateAccept(t *testing.T) {
	t.Parallel()
	url := dbtest.NewDatabase(t)
	text, err := migrate.SQL("")
	require.NoError(t, err)
	require.NotContains(t, text, "{{")
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.PgConn().Exec(t.Context(), "begin;\n"+text+"\ncommit;").ReadAll()
	require.NoError(t, err)

	pool := open(t, url)
	before := fingerprint(t, pool)
	require.NoError(t, migrate.Validate(t.Context(), pool, migrate.Options{}))
	result, err := migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, migrate.Result{From: schema.Version, To: schema.Version}, result)
	require.Equal(t, before, fingerprint(t, pool))

	_, err = conn.PgConn().Exec(t.Context(), "begin;\n"+text+"\ncommit;").ReadAll()
	require.Error(t, err, "a second run must not go through")
}

func TestSQLAndUpMakeTheSameSchema(t *testing.T) {
	t.Parallel()
	byUp, bySQL := open(t, dbtest.NewDatabase(t)), open(t, dbtest.NewDatabase(t))
	_, err := migrate.Up(t.Context(), byUp, migrate.Options{})
	require.NoError(t, err)
	text, err := migrate.SQL("")
	require.NoError(t, err)
	exec(t, bySQL, "%s", text)
	const columns = `
		select string_agg(concat_ws(' ', c.relname, c.relkind, a.attnum, a.attname, a.atttypid::regtype, a.attnotnull), e'\n'
		                  order by c.relname, a.attnum)
		  from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
		 where n.nspname = 'notifyq'`
	var want, got string
	require.NoError(t, byUp.QueryRow(t.Context(), columns).Scan(&want))
	require.NoError(t, bySQL.QueryRow(t.Context(), columns).Scan(&got))
	require.NotEmpty(t, want)
	require.Equal(t, want, got)
}

func TestDownRemovesEverythingAndUpMakesItAgain(t *testing.T) {
	t.Parallel()
	url := dbtest.NewDatabase(t)
	pool := open(t, url)
	_, err := migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	m, err := tern.NewMigrator(t.Context(), conn, "notifyq.schema_version")
	require.NoError(t, err)
	m.Data["Schema"] = "notifyq"
	require.NoError(t, m.LoadMigrations(os.DirFS("sql")))
	for _, migration := range m.Migrations {
		require.NotEmpty(t, strings.TrimSpace(migration.DownSQL), migration.Name)
	}
	require.NoError(t, m.MigrateTo(t.Context(), 0))
	const left = `
		select (select count(*) from pg_class c where c.relnamespace = n.oid and c.relname !~ '^schema_version')
		     + (select count(*) from pg_proc p where p.pronamespace = n.oid)
		     + (select count(*) from pg_type y where y.typnamespace = n.oid and y.typname !~ '^_?schema_version')
		  from pg_namespace n where n.nspname = 'notifyq'`
	require.Zero(t, count(t, pool, left))

	result, err := migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	require.Equal(t, migrate.Result{From: 0, To: schema.Version}, result)
	require.NoError(t, migrate.Validate(t.Context(), pool, migrate.Options{}))
}
