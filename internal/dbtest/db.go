package dbtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/migrate"
)

// cleanupTimeout bounds what happens after a test, so that one that left a lock behind fails instead of hanging.
const cleanupTimeout = 20 * time.Second

// DB is a migrated schema of one test's own.
type DB struct {
	Pool   *pgxpool.Pool
	Schema string
	URL    string // of the server, as its superuser

	admin *pgxpool.Pool // for checks and cleanup, whatever the test did to Pool
}

// New makes a schema for one test. When the test is over its invariants are checked and it is dropped.
func New(t testing.TB) *DB {
	t.Helper()
	server, admin := shared.start(t)
	db := newDB(t, server.URL(), admin)
	t.Cleanup(func() { db.drop(t) })
	t.Cleanup(func() { db.closePool(t, cleanupTimeout) })
	t.Cleanup(func() { db.CheckInvariants(t) })
	return db
}

func newDB(t testing.TB, url string, admin *pgxpool.Pool) *DB {
	t.Helper()
	db := &DB{Schema: uniqueName("t"), URL: url, admin: admin}
	sql, err := migrate.SQL(db.Schema)
	if err != nil {
		t.Fatal(err)
	}
	// The same statements as Up runs, without the locks that would make parallel tests wait for each other.
	if _, err := admin.Exec(t.Context(), sql); err != nil {
		t.Fatalf("dbtest: create schema %s: %v", db.Schema, err)
	}
	if db.Pool, err = connect(t.Context(), url); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	return db
}

// CheckInvariants fails the test with every row of check_invariants(). It runs by itself when the test is over.
func (db *DB) CheckInvariants(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTimeout)
	defer cancel()
	sql := fmt.Sprintf("select invariant, job_id::text, detail from %s.check_invariants()", db.Schema)
	rows, err := db.admin.Query(ctx, sql)
	if err != nil {
		t.Errorf("check the invariants: %v", err)
		return
	}
	broken, err := pgx.CollectRows(rows, pgx.RowToStructByPos[violation])
	if err != nil {
		t.Errorf("check the invariants: %v", err)
	}
	for _, v := range broken {
		t.Errorf("broken invariant: %s: job %s: %s", v.Invariant, v.Job, v.Detail)
	}
}

type violation struct {
	Invariant, Job, Detail string
}

// closePool fails the test if it still holds a connection, where Close alone would wait for ever.
func (db *DB) closePool(t testing.TB, timeout time.Duration) {
	t.Helper()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		db.Pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(timeout):
		t.Errorf("the test still holds %d of the pool's connections", db.Pool.Stat().AcquiredConns())
	}
}

func (db *DB) drop(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanupTimeout)
	defer cancel()
	if _, err := db.admin.Exec(ctx, "drop schema "+db.Schema+" cascade"); err != nil {
		t.Errorf("drop schema %s: %v", db.Schema, err)
	}
}

// uniqueName is an identifier that needs no quotes.
func uniqueName(prefix string) string { return prefix + "_" + strings.ToLower(rand.Text()[:16]) }
