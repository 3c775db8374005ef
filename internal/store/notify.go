package store

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// notifyChannel is one for all schemas: the name of a channel has 63 bytes, and that of a schema may fill them.
const notifyChannel = "notifyq"

// Kinds of work that processes tell each other of.
const (
	KindJobs   = "jobs"
	KindEvents = "events"
)

// From the commit of a NOTIFY until it is done a transaction holds a lock that every notifying transaction of the server
// waits for. One that does nothing else writes nothing that a commit waits for, neither on the disk nor on a standby.
const notifySQL = `select pg_notify($1, $2)`

const notifyTxSQL = `select pg_notify($1, $2), pg_notify($1, $3)`

// Notify tells of a kind of work, in a transaction of its own.
func (s *Store) Notify(ctx context.Context, q Querier, kind string) error {
	_, err := q.Exec(ctx, notifySQL, notifyChannel, s.payload(kind))
	return err
}

// NotifyTx tells of every kind when the caller's transaction commits.
func (s *Store) NotifyTx(ctx context.Context, tx Querier) error {
	_, err := tx.Exec(ctx, notifyTxSQL, notifyChannel, s.payload(KindJobs), s.payload(KindEvents))
	return err
}

func (s *Store) payload(kind string) string { return s.schema + " " + kind }

// NotifiedKind reads a payload, which can be anybody's. ours tells that it is about this schema.
func (s *Store) NotifiedKind(payload string) (kind string, ours bool) {
	return strings.CutPrefix(payload, s.schema+" ")
}

// Listen lets conn receive what Notify sends. Neither takes a transaction id, nor any right.
func (s *Store) Listen(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `listen `+notifyChannel)
	return err
}

// Unlisten undoes Listen.
func Unlisten(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `unlisten `+notifyChannel)
	return err
}
