// Package migrate creates and upgrades notifyq's database schema. It is a package of its own so that services that
// import only the library carry no migration tool.
//
// Up may be called by any number of processes at once. It takes a session's advisory lock before it creates anything,
// asks for it again and again instead of waiting in the database (a waiting statement holds a snapshot, for which a
// CREATE INDEX CONCURRENTLY of the holder would wait in turn), and runs each migration in a transaction with the update
// of the version, so that whatever happens half-way, the next Up continues. A schema of a later release is left as it
// is: an old binary that restarts during an upgrade, or after it was rolled back, goes on.
//
// Hosts with a migration tool of their own take SQL and Grants instead, and Validate at the start of their services.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/tern/v2/migrate"

	"github.com/notifyq/notifyq/internal/schema"
)

// DefaultLockTimeout is Options.LockTimeout if that is zero.
const DefaultLockTimeout = time.Minute

// Options of a migration. The zero value is fine where there is no connection pooler.
type Options struct {
	// Schema is where the tables are: [a-z_][a-z0-9_]*, at most 63 bytes. Empty means notifyq.
	Schema string
	// DirectURL is a connection string that leads past a connection pooler such as PgBouncer, whose clients don't keep
	// their session. Only Up needs it. Empty means that the pool's own connections are direct.
	DirectURL string
	// LockTimeout is how long Up waits for another migration, and for any lock on a table. At least a millisecond;
	// zero means DefaultLockTimeout.
	LockTimeout time.Duration
	// Logger hears of migrations that run, of waiting, and of a schema ahead of this release. Nil discards it.
	Logger *slog.Logger
}

// Result tells the schema's version before and after. They are the same if nothing was to do.
type Result struct {
	From, To int
}

var (
	// ErrSchema is a schema, or a database, that can't be used: none there, too old, rights missing, not UTF-8.
	ErrSchema = schema.ErrUnfit
	// ErrLocked is a migration, or a lock of someone else, that lasted longer than LockTimeout.
	ErrLocked = errors.New("another migration is running")
	// ErrPooled is a connection through a pooler, on which Up can't hold a lock.
	ErrPooled = errors.New("the connection goes through a pooler such as PgBouncer; set Options.DirectURL to one that does not")
)

func (o Options) withDefaults() (Options, error) {
	if o.Schema == "" {
		o.Schema = schema.Default
	}
	if !schema.ValidName(o.Schema) {
		return o, &schema.Error{Problem: schema.NameInvalid, Schema: o.Schema}
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	if o.LockTimeout < time.Millisecond || o.LockTimeout > math.MaxInt32*time.Millisecond {
		return o, fmt.Errorf("LockTimeout %s: it must be between a millisecond and 24 days", o.LockTimeout)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Up brings the schema to this release's version, over one connection of its own with the pool's configuration. It needs
// the right to create the schema, or to create tables in it; where nothing is to do it needs only those of Grants. The
// pool's AfterConnect does not run; for tables that belong to another role set the parameter role in the configuration.
// Its errors are ErrSchema, ErrLocked, ErrPooled, and PostgreSQL's.
func Up(ctx context.Context, pool *pgxpool.Pool, opts Options) (Result, error) {
	result, err := up(ctx, pool, opts)
	if err != nil {
		return Result{}, fmt.Errorf("migrate: %w", err)
	}
	return result, nil
}

func up(ctx context.Context, pool *pgxpool.Pool, opts Options) (Result, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return Result{}, err
	}
	conn, err := connect(ctx, pool, opts)
	if err != nil {
		return Result{}, err
	}
	defer disconnect(ctx, conn)
	version, err := preflight(ctx, conn, opts)
	if err != nil {
		return Result{}, err
	}
	if version >= schema.Version {
		return settled(ctx, conn, opts, version)
	}
	if err := lock(ctx, conn, opts); err != nil {
		return Result{}, err
	}
	// Whoever held the lock may have done it all, or done more.
	if version, err = preflight(ctx, conn, opts); err != nil {
		return Result{}, err
	}
	if version >= schema.Version {
		return settled(ctx, conn, opts, version)
	}
	if err := run(ctx, conn, opts, version); err != nil {
		return Result{}, err
	}
	return Result{From: version, To: schema.Version}, nil
}

// settled is the answer where there is nothing to do. A version table that belongs to something else is not taken for
// ours. Rights are Validate's: the role that migrates need not be the one that works.
func settled(ctx context.Context, conn *pgx.Conn, opts Options, version int) (Result, error) {
	_, err := schema.Check(ctx, conn, opts.Schema)
	var unfit *schema.Error
	if err != nil && (!errors.As(err, &unfit) || unfit.Problem != schema.RightMissing) {
		return Result{}, err
	}
	logAhead(ctx, opts, version)
	return Result{From: version, To: version}, nil
}

// run creates the schema and runs what is missing. The caller holds the lock.
func run(ctx context.Context, conn *pgx.Conn, opts Options, from int) error {
	if err := endless(ctx, conn); err != nil {
		return err
	}
	if err := createSchema(ctx, conn, opts.Schema); err != nil {
		return err
	}
	m, err := migrate.NewMigrator(ctx, conn, versionTable(opts.Schema))
	if err != nil {
		return fmt.Errorf("create the version table: %w", explain(err))
	}
	if err := load(m, opts.Schema); err != nil {
		return err
	}
	started := time.Now()
	m.OnStart = func(version int32, name, _, _ string) {
		_ = endless(ctx, conn) // a failure fails the transaction, and the migration with it
		opts.Logger.InfoContext(ctx, "migration starts", "schema", opts.Schema, "version", version, "name", name)
	}
	if err := m.MigrateTo(ctx, schema.Version); err != nil {
		return explain(err)
	}
	opts.Logger.InfoContext(ctx, "schema migrated", "schema", opts.Schema, "from", from, "to", schema.Version,
		"seconds", time.Since(started).Seconds())
	return nil
}

// createSchema leaves one that is there alone: even with IF NOT EXISTS the statement needs the right to create schemas.
func createSchema(ctx context.Context, conn *pgx.Conn, name string) error {
	var exists bool
	err := conn.QueryRow(ctx, "select exists (select from pg_catalog.pg_namespace where nspname = $1)", name).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "create schema if not exists "+schema.Quote(name))
	}
	if err != nil {
		return fmt.Errorf("create the schema: %w", err)
	}
	return nil
}
