package demo

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/store"
)

// Foreign tells whether a schema has unfinished work, jobs or events, and no table of a demo receiver, so that the work is
// not a demo's. A schema that is not there, or not whole, has none.
// Errors are the database's own, which can quote more than may be logged.
func Foreign(ctx context.Context, pool *pgxpool.Pool, name string) (bool, error) {
	if !schema.ValidName(name) {
		return false, &schema.Error{Problem: schema.NameInvalid, Schema: name}
	}
	quoted := schema.Quote(name)
	if known, err := exists(ctx, pool, "select to_regclass('"+quoted+".demo_webhook_events') is not null"); err != nil || known {
		return false, err
	}
	for _, table := range []string{"notification_queue", "outbox_events where published_at is null"} {
		if found, err := exists(ctx, pool, "select exists (select from "+quoted+"."+table+")"); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// exists is false for a question about a table or a schema that is not there.
func exists(ctx context.Context, pool *pgxpool.Pool, sql string) (found bool, err error) {
	err = pool.QueryRow(ctx, sql).Scan(&found)
	switch store.Code(err) {
	case "3F000", "42P01", "42703": // schema, table, column
		return false, nil
	}
	return found, err
}
