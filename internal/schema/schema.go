// Package schema says which database schema this version of the code needs, and checks that it is there and usable. It
// stays small: services import it with the library, while what creates the schema is package migrate.
package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	// Version is the number of the last migration. The code runs with any schema of at least this version: migrations
	// only add, so that the workers of the previous release go on while a new one migrates.
	Version = 1
	// Default is the name of the schema where none is given.
	Default = "notifyq"
	// VersionTable is the table, in the schema, whose only row is the version.
	VersionTable = "schema_version"
	// maxNameBytes is NAMEDATALEN less one. PostgreSQL would cut a longer name silently.
	maxNameBytes = 63
)

// Tables lists the tables that the code reads and writes.
func Tables() []string {
	return []string{
		"notifications", "notification_queue", "notification_outcomes", "notification_attempts", "operations",
		"rate_limit_reservations", "outbox_events", "channel_states", "webhook_endpoints",
	}
}

// Views lists the views that the code reads.
func Views() []string { return []string{"notification_jobs"} }

// Functions lists the functions that the code calls.
func Functions() []string { return []string{"event_id", "event_body"} }

// ValidName reports whether a schema may have this name: [a-z_][a-z0-9_]*, at most 63 bytes, and not one of those that
// PostgreSQL keeps for itself.
func ValidName(name string) bool {
	if name == "" || len(name) > maxNameBytes || strings.HasPrefix(name, "pg_") || name == "information_schema" {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c == '_':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return true
}

// Quote makes an identifier of a name. Valid names need it too: "order" is one.
func Quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// Querier is a pool, a connection or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Check returns the version of the schema, and an *Error if the connection's role can't work with it. A version above
// Version is fine; the caller may want to log it.
func Check(ctx context.Context, db Querier, name string) (version int, err error) {
	version, err = Installed(ctx, db, name)
	if err != nil {
		return 0, err
	}
	if version < Version {
		return version, &Error{Problem: Outdated, Schema: name, Found: version}
	}
	return version, checkObjects(ctx, db, name)
}

// Installed returns the version of the schema, and an *Error if there is none that the role can read, or if the
// database can't hold every text.
func Installed(ctx context.Context, db Querier, name string) (version int, err error) {
	if !ValidName(name) {
		return 0, &Error{Problem: NameInvalid, Schema: name}
	}
	p, err := lookUp(ctx, db, name)
	if err != nil {
		return 0, err
	}
	if p.encoding != "UTF8" {
		return 0, &Error{Problem: EncodingNotUTF8, Schema: name, Encoding: p.encoding}
	}
	switch {
	case !p.schemaExists:
		return 0, &Error{Problem: SchemaMissing, Schema: name}
	case !p.mayUse:
		return 0, &Error{Problem: RightMissing, Schema: name, Role: p.role, Right: "USAGE"}
	case !p.versionExists:
		return 0, &Error{Problem: VersionMissing, Schema: name}
	case !p.mayRead:
		return 0, &Error{Problem: RightMissing, Schema: name, Role: p.role, Right: "SELECT", Object: VersionTable}
	}
	// Empty only if someone emptied it; tern then starts from 0.
	sql := fmt.Sprintf("select coalesce(max(version), 0) from %s.%s", Quote(name), VersionTable)
	if err := db.QueryRow(ctx, sql).Scan(&version); err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", err)
	}
	return version, nil
}

// premises is what has to hold before the version can be read. The catalogs answer without any right on the schema.
type premises struct {
	encoding, role                               string
	schemaExists, mayUse, versionExists, mayRead bool
}

func lookUp(ctx context.Context, db Querier, name string) (p premises, err error) {
	const sql = `
		select pg_catalog.pg_encoding_to_char(d.encoding), current_user::text, n.oid is not null,
		       coalesce(pg_catalog.has_schema_privilege(n.oid, 'USAGE'), false), c.oid is not null,
		       coalesce(pg_catalog.has_table_privilege(c.oid, 'SELECT'), false)
		  from pg_catalog.pg_database d
		  left join pg_catalog.pg_namespace n on n.nspname = $1
		  left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = $2 and c.relkind = 'r'
		 where d.datname = pg_catalog.current_database()`
	err = db.QueryRow(ctx, sql, name, VersionTable).
		Scan(&p.encoding, &p.role, &p.schemaExists, &p.mayUse, &p.versionExists, &p.mayRead)
	if err != nil {
		return p, fmt.Errorf("look for the schema: %w", err)
	}
	return p, nil
}

// checkObjects names the first object that is missing, or on which the role lacks a right.
func checkObjects(ctx context.Context, db Querier, name string) error {
	const sql = `
		with wanted (name, privilege) as (
			select t.name, p.privilege
			  from pg_catalog.unnest($2::text[]) t (name),
			       pg_catalog.unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p (privilege)
			union all
			select v.name, 'SELECT' from pg_catalog.unnest($3::text[]) v (name)
		), found (name, missing, privilege) as (
			select w.name, c.oid is null, w.privilege
			  from wanted w
			  left join pg_catalog.pg_namespace n on n.nspname = $1
			  left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.name
			 where c.oid is null or not pg_catalog.has_table_privilege(c.oid, w.privilege)
			union all
			select f.name, p.oid is null, 'EXECUTE'
			  from pg_catalog.unnest($4::text[]) f (name)
			  left join pg_catalog.pg_namespace n on n.nspname = $1
			  left join pg_catalog.pg_proc p on p.pronamespace = n.oid and p.proname = f.name
			 where p.oid is null or not pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
		)
		select f.name, f.missing, f.privilege, current_user::text from found f order by f.missing desc, f.name limit 1`
	e := &Error{Schema: name}
	var missing bool
	err := db.QueryRow(ctx, sql, name, Tables(), Views(), Functions()).Scan(&e.Object, &missing, &e.Right, &e.Role)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("check the schema's tables: %w", err)
	case missing:
		e.Problem, e.Right, e.Role = ObjectMissing, "", ""
	default:
		e.Problem = RightMissing
	}
	return e
}
