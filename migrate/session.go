package migrate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/schema"
)

// oldestServer is the first with SQL-standard function bodies, which the migrations use.
const oldestServer = 140000

// SQLSTATEs that get a sentence of their own.
const (
	codeProtocolViolation  = "08P01"
	codeUndefinedObject    = "42704"
	codeLockNotAvailable   = "55P03"
	codeInsufficientRights = "42501"
)

// connect opens a connection of Up's own, whatever the pool is busy with. What its role or database has set by default
// must not decide whether a migration succeeds, so that it brings settings of its own. They are start-up parameters
// because tern resets the session after each migration, and these are what it is reset to.
func connect(ctx context.Context, pool *pgxpool.Pool, opts Options) (*pgx.Conn, error) {
	cfg, err := connConfig(ctx, pool, opts)
	if err != nil {
		return nil, err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	for name, value := range map[string]string{
		"search_path":                         "pg_catalog",
		"statement_timeout":                   "0",
		"lock_timeout":                        strconv.FormatInt(opts.LockTimeout.Milliseconds(), 10),
		"idle_in_transaction_session_timeout": "0",
		"idle_session_timeout":                "0",
		"default_transaction_isolation":       "read committed",
		"client_min_messages":                 "warning",
	} {
		cfg.RuntimeParams[name] = value
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, explainConnect(err)
	}
	return conn, nil
}

func connConfig(ctx context.Context, pool *pgxpool.Pool, opts Options) (*pgx.ConnConfig, error) {
	if opts.DirectURL != "" {
		cfg, err := pgx.ParseConfig(opts.DirectURL)
		if err != nil {
			// The error would quote what it could not read, and a password may be in it.
			return nil, errors.New("Options.DirectURL is not a connection string")
		}
		return cfg, nil
	}
	cfg := pool.Config()
	if cfg.BeforeConnect != nil { // such as one that fetches a short-lived password
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	return cfg.ConnConfig, nil
}

func explainConnect(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch {
	// PgBouncer refuses every start-up parameter that it does not know.
	case pg.Code == codeProtocolViolation && strings.Contains(pg.Message, "startup parameter"):
		return fmt.Errorf("%w: %w", ErrPooled, err)
	case pg.Code == codeUndefinedObject:
		return fmt.Errorf("%w: PostgreSQL 14 or later is needed: %w", ErrSchema, err)
	}
	return err
}

// disconnect gives up the locks with the session, also when ctx is over.
func disconnect(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = conn.Close(ctx) // there is nothing left that could fail
}

// preflight returns the schema's version, 0 if there is none, and refuses what would fail half-way.
func preflight(ctx context.Context, conn *pgx.Conn, opts Options) (version int, err error) {
	if err := checkServer(ctx, conn, opts); err != nil {
		return 0, err
	}
	version, err = installed(ctx, conn, opts.Schema)
	if err != nil || version >= schema.Version {
		return version, err
	}
	return version, checkMayCreate(ctx, conn, opts.Schema)
}

func checkServer(ctx context.Context, conn *pgx.Conn, opts Options) error {
	var (
		server      int
		lockTimeout string
	)
	const sql = `
		select pg_catalog.current_setting('server_version_num')::int, s.setting
		  from pg_catalog.pg_settings s where s.name = 'lock_timeout'`
	if err := conn.QueryRow(ctx, sql).Scan(&server, &lockTimeout); err != nil {
		return err
	}
	switch {
	case server < oldestServer:
		return fmt.Errorf("%w: PostgreSQL 14 or later is needed", ErrSchema)
	// A pooler that is told to ignore start-up parameters does not pass ours on.
	case lockTimeout != strconv.FormatInt(opts.LockTimeout.Milliseconds(), 10):
		return ErrPooled
	}
	return nil
}

// checkMayCreate asks for the right to create, so that a role without it leaves nothing half made. A session that is
// read-only by default stays so: that is how a database is frozen for a while.
func checkMayCreate(ctx context.Context, conn *pgx.Conn, schemaName string) error {
	const sql = `
		select pg_catalog.current_database(), current_user::text, n.oid is not null,
		       pg_catalog.has_database_privilege(d.oid, 'CREATE'),
		       coalesce(pg_catalog.has_schema_privilege(n.oid, 'CREATE'), false),
		       pg_catalog.current_setting('transaction_read_only')::boolean
		  from pg_catalog.pg_database d
		  left join pg_catalog.pg_namespace n on n.nspname = $1
		 where d.datname = pg_catalog.current_database()`
	var (
		database, role                       string
		exists, onDatabase, within, readOnly bool
	)
	err := conn.QueryRow(ctx, sql, schemaName).Scan(&database, &role, &exists, &onDatabase, &within, &readOnly)
	switch {
	case err != nil:
		return err
	case readOnly:
		return fmt.Errorf("%w: schema %s has to be migrated, and the session is read-only: the server is a standby, or "+
			"default_transaction_read_only is set", ErrSchema, schemaName)
	case exists && !within:
		return &schema.Error{Problem: schema.RightMissing, Schema: schemaName, Role: role, Right: "CREATE"}
	case !exists && !onDatabase:
		return fmt.Errorf("%w: schema %s does not exist, and role %s lacks the right CREATE on database %s to create it",
			ErrSchema, schemaName, role, database)
	}
	return nil
}

// endless lifts the limit that PostgreSQL 17 can set on a transaction. It can't be a start-up parameter, because older
// servers refuse one that they don't know.
func endless(ctx context.Context, conn *pgx.Conn) error {
	const sql = `
		select pg_catalog.set_config(s.name, '0', false) from pg_catalog.pg_settings s where s.name = 'transaction_timeout'`
	_, err := conn.Exec(ctx, sql)
	return err
}

// explain adds what PostgreSQL's message leaves out.
func explain(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case codeLockNotAvailable:
		return fmt.Errorf("%w, or something else held a lock for longer than LockTimeout: %w", ErrLocked, err)
	case codeInsufficientRights:
		return fmt.Errorf("%w: the role must own the schema's tables: %w", ErrSchema, err)
	}
	return err
}
