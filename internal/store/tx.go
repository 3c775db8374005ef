package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Querier runs statements: a pool's connection, or a caller's transaction.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// The isolation level is asked for each time, since a role may set another default, under which SKIP LOCKED and ON
// CONFLICT DO NOTHING end in 40001. It is a statement of the same pipeline, so it costs no round trip.
const (
	beginSQL     = `begin isolation level read committed, read write`
	beginReadSQL = `begin isolation level read committed, read only`
)

// The planner estimates an array parameter at ten rows and a queue table at what it held when it was last analyzed, which
// after a drain is nothing. With the join left to it, a batch of 2,000 turned an index lookup into a hash over the whole
// table, and a burst after a vacuum into a walk over the queue for each row (39 s for a claim of 1,000). So joins are
// nested loops over indexes here, in the order of the index where one is asked for, and rows are looked up by
// '= any(array[id])', which can't be turned round: as a join clause that no index of the other side can serve, it leaves
// only the lookup by primary key. There must be no second index on the queue that has id in it and that such a lookup
// could use. SET LOCAL ends with the transaction, so PgBouncer is fine.
const pinSQL = `select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true),
       set_config('enable_sort', 'off', true)`

// pinned queues fill's statements into one pipelined READ COMMITTED transaction with pinned plans. Nothing that the
// callbacks saw counts unless it returns nil; if the error is not one of the server's, the transaction may have
// committed all the same.
func pinned(ctx context.Context, pool *pgxpool.Pool, fill func(b *pgx.Batch)) error {
	return pipeline(ctx, pool, func(b *pgx.Batch) {
		b.Queue(pinSQL)
		fill(b)
	})
}

// recording is pinned for statements that end claims: who holds one of their rows for longer than a moment is nobody of
// ours, and must not hold up the rest of a batch (55P03, which the caller narrows down).
func recording(ctx context.Context, pool *pgxpool.Pool, fill func(b *pgx.Batch)) error {
	return pinned(ctx, pool, func(b *pgx.Batch) {
		b.Queue(`select set_config('lock_timeout', '200', true)`)
		fill(b)
	})
}

// pinnedRead is pinned for statements that write nothing, which a standby answers, too.
func pinnedRead(ctx context.Context, pool *pgxpool.Pool, fill func(b *pgx.Batch)) error {
	return pipelineFrom(ctx, pool, beginReadSQL, func(b *pgx.Batch) {
		b.Queue(pinSQL)
		fill(b)
	})
}

// pipeline is pinned with the plans left to the planner.
func pipeline(ctx context.Context, pool *pgxpool.Pool, fill func(b *pgx.Batch)) error {
	return pipelineFrom(ctx, pool, beginSQL, fill)
}

func pipelineFrom(ctx context.Context, pool *pgxpool.Pool, begin string, fill func(b *pgx.Batch)) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.Queue(begin)
	fill(b)
	b.Queue(`commit`)
	err = conn.SendBatch(ctx, b).Close()
	if err != nil {
		leave(ctx, conn.Conn(), err)
	}
	return err
}

// leave brings a connection out of a failed transaction, or drops it if the server can't write: a primary that became a
// standby keeps its connections open, and a pool would hand them out for ever.
func leave(ctx context.Context, conn *pgx.Conn, cause error) {
	if conn.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if IsReadOnly(cause) {
		_ = conn.Close(ctx)
		return
	}
	_, _ = conn.Exec(ctx, `rollback`)
}

// InTx runs do in a READ COMMITTED transaction of its own, with pinned plans.
func InTx(ctx context.Context, pool *pgxpool.Pool, do func(q Querier) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return err
	}
	if _, err = tx.Exec(ctx, pinSQL); err == nil {
		err = do(tx)
	}
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		leave(ctx, conn.Conn(), err)
	}
	return err
}

// Code is the SQLSTATE of a server's error, or empty.
func Code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// IsReadOnly tells an error of a server that can't write, such as a standby: it refuses writes with 25006, and to begin a
// transaction that may write, which is how nearly all begin here, with 0A000. That is also the code of a prepared statement
// whose result a migration has changed, after which a new connection helps too.
func IsReadOnly(err error) bool {
	code := Code(err)
	return code == "25006" || code == "0A000"
}

// IsDataError tells an error that the values of one row caused (class 22 or 23): repeating the statement as it is can't
// help, leaving out the row can.
func IsDataError(err error) bool {
	code := Code(err)
	return len(code) == 5 && (code[:2] == "22" || code[:2] == "23")
}

// IsRowError tells an error that one row may have caused: its values, somebody's lock on it, or a trigger of somebody's.
func IsRowError(err error) bool {
	switch Code(err) {
	case "55P03", "P0001":
		return true
	default:
		return IsDataError(err)
	}
}

// MayRepeat tells a conflict with another transaction after which the same statement may simply be run again.
func MayRepeat(err error) bool {
	switch Code(err) {
	case "40001", "40P01":
		return true
	default:
		return false
	}
}

// Describe is what may be logged of a database error: class, SQLSTATE and constraint. The message, the detail and the
// parameters can quote rows.
func Describe(err error) string {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.ConstraintName != "":
		return fmt.Sprintf("database error %s (constraint %s)", pg.Code, pg.ConstraintName)
	case errors.As(err, &pg):
		return "database error " + pg.Code
	case errors.Is(err, context.DeadlineExceeded):
		return "database call timed out"
	case errors.Is(err, context.Canceled):
		return "database call cancelled"
	case pgconn.Timeout(err):
		return "database connection timed out"
	case IsMisfit(err):
		return fmt.Sprintf("statement and values do not fit (%T)", err)
	default:
		return fmt.Sprintf("database connection failed (%T)", err)
	}
}

// Arrays as parameters. pgx encodes plain slices of these by reflection, at twice the price.
type (
	uuidArray  = pgtype.FlatArray[pgtype.UUID]
	textArray  = pgtype.FlatArray[pgtype.Text]
	timeArray  = pgtype.FlatArray[pgtype.Timestamptz]
	placeArray = pgtype.FlatArray[Place]
)

// uuids is for parameters: pgtype's own type is known to every query mode, google's is not.
func uuids(ids []uuid.UUID) uuidArray {
	out := make(uuidArray, len(ids))
	for i, id := range ids {
		out[i] = pgtype.UUID{Bytes: id, Valid: true}
	}
	return out
}

func pgUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// optional turns "" into NULL.
func optional(s string) pgtype.Text { return pgtype.Text{String: s, Valid: s != ""} }

func optionalTime(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

func micros(d time.Duration) int64 { return d.Microseconds() }
