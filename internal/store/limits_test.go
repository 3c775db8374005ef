package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// limitPlans explains the statements of an admission as they run.
type limitPlans struct {
	db    *dbtest.DB
	store *Store
	hot   uuid.UUID
}

// explain runs a statement in a pinned transaction that is rolled back, and returns its plan.
func (p *limitPlans) explain(t *testing.T, mode, sql string, args ...any) string {
	t.Helper()
	tx, err := p.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, set := range []string{pinSQL, "set local plan_cache_mode = " + mode} {
		_, err := tx.Exec(t.Context(), set)
		require.NoError(t, err)
	}
	rows, err := tx.Query(t.Context(), "explain (analyze, costs off, timing off, summary off) "+sql, args...)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

func (p *limitPlans) reading(key uuid.UUID) Reading {
	return Reading{Key: key, Window: 10 * time.Second, Ahead: time.Second, Past: 5, Near: 50, Last: 5}
}

// require checks each statement's plan, with parameters that the planner sees and with such that it does not.
func (p *limitPlans) require(t *testing.T) {
	t.Helper()
	const n = 100
	var readings []Reading
	var reserve []Reservation
	var send []Deferral
	jobs := make([]uuid.UUID, n)
	for i := range jobs {
		jobs[i] = uuid.New()
		readings = append(readings, p.reading(uuid.New()))
		reserve = append(reserve, Reservation{JobID: jobs[i], Key: p.hot, Channel: "EMAIL", At: time.Now().Add(time.Hour), Booked: true})
		send = append(send, Deferral{ID: jobs[i], Token: uuid.New(), Due: time.Now().Add(time.Hour), Book: &reserve[i]})
	}
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		for name, plan := range map[string]string{
			"read":      p.explain(t, mode, p.store.sql.reservations, append(readingArgs(readings), uuids(jobs))...),
			"read one":  p.explain(t, mode, p.store.sql.reservations, append(readingArgs([]Reading{p.reading(p.hot)}), uuids(jobs[:1]))...),
			"reserve":   p.explain(t, mode, p.store.sql.reserve, reserveArgs(reserve)...),
			"send back": p.explain(t, mode, p.store.sql.deferred, deferArgs(send)...),
		} {
			for _, never := range []string{"Seq Scan", "Sort", "Bitmap", "Hash Join", "Merge Join"} {
				require.NotContains(t, plan, never, "%s, %s", name, mode)
			}
			if strings.HasPrefix(name, "read") {
				require.Contains(t, plan, "Index Scan Backward using rate_limit_reservations_key")
				require.Contains(t, plan, "Index Scan using rate_limit_reservations_key")
			}
			if name == "read one" {
				var rows int
				_, err := fmt.Sscanf(plan[strings.Index(plan, "actual rows="):], "actual rows=%d", &rows)
				require.NoError(t, err)
				require.LessOrEqual(t, rows, 1+5+5+50+5, plan)
			}
		}
	}
}

func TestLimitStatementsWalkTheirIndex(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	p := &limitPlans{db, New(db.Schema, Guards{Cancel: []int16{0}, Redrive: []int16{3, 4}}), uuid.Max}
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := db.Pool.Exec(t.Context(), strings.ReplaceAll(sql, "@", db.Schema+"."), args...)
		require.NoError(t, err)
	}
	p.require(t) // empty, never analyzed
	exec("analyze @rate_limit_reservations")
	p.require(t)
	exec(`insert into @rate_limit_reservations (job_id, limit_key, reserved_at, channel)
		select gen_random_uuid(), md5((i % 3000)::text)::uuid, now() - i * interval '10 ms', 'EMAIL' from generate_series(1, 30000) i`)
	exec(`insert into @rate_limit_reservations (job_id, limit_key, reserved_at, channel, booked)
		select gen_random_uuid(), $1, now() + (i - 100) * interval '1 s', 'EMAIL', true from generate_series(1, 5000) i`, p.hot)
	p.require(t) // statistics of an empty table
	exec("analyze @rate_limit_reservations")
	p.require(t)
	exec("truncate @rate_limit_reservations")
}
