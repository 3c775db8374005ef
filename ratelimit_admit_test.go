package notifyq

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/engine"
	"github.com/notifyq/notifyq/internal/store"
)

// admission is the rule and the statements, without a worker.
type admission struct {
	db     *dbtest.DB
	store  *store.Store
	limits engine.Limits
}

func newAdmission(t *testing.T, configured ...RateLimit) *admission {
	t.Helper()
	db := dbtest.New(t)
	return &admission{db: db, store: newStore(db.Schema), limits: newLimits(configured)}
}

// ask admits one job of one recipient under a lock, and tells whether it may go. reached is called with what was read.
func (a *admission) ask(ctx context.Context, job uuid.UUID, lock int64, reached func(existing []store.Reservation)) (bool, error) {
	key := a.limits.Key("", "u@example.test")
	asks := []engine.Ask{{JobID: job, Key: key, Channel: "EMAIL", HasSlot: true, Takes: time.Millisecond}}
	admitted := false
	_, err := a.store.Admit(ctx, a.db.Pool, []int64{lock}, a.limits.Readings(key), []uuid.UUID{job},
		func(now, _ time.Time, existing []store.Reservation) (reserve []store.Reservation, send []store.Deferral) {
			if reached != nil {
				reached(existing)
			}
			answer := a.limits.Judge(now, existing, asks)[0]
			if admitted = answer.Admitted; admitted {
				reserve = append(reserve, *answer.Reserve)
			}
			return reserve, send
		})
	return admitted, err
}

// askTogether asks for n jobs at once and counts those that may go.
func (a *admission) askTogether(t *testing.T, n int, lock func(i int) int64, reached func(existing []store.Reservation)) int {
	t.Helper()
	var wg sync.WaitGroup
	results, errs := make([]bool, n), make([]error, n)
	for i := range n {
		wg.Go(func() { results[i], errs[i] = a.ask(t.Context(), uuid.New(), lock(i), reached) })
	}
	wg.Wait()
	admitted := 0
	for i := range n {
		require.NoError(t, errs[i])
		if results[i] {
			admitted++
		}
	}
	return admitted
}

func TestRateLimitAdmitsExactlyTheFreeSlots(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, RateLimit{Max: 3, Window: time.Hour})
	require.Equal(t, 3, a.askTogether(t, 20, func(int) int64 { return 1 }, nil))
	require.Zero(t, a.askTogether(t, 20, func(int) int64 { return 1 }, nil))
}

// The control of the test above: without a common lock, admissions that have all read before the first has written go
// too far. With it, they could not meet between the two.
func TestRateLimitWithoutItsLockAdmitsTooMany(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, RateLimit{Max: 3, Window: time.Hour})
	const together = 8 // fewer than the pool has connections
	var met sync.WaitGroup
	met.Add(together)
	admitted := a.askTogether(t, together, func(i int) int64 { return int64(i) }, func([]store.Reservation) {
		met.Done()
		met.Wait()
	})
	require.Equal(t, together, admitted)
}

// Why the lock is a statement of its own: in one statement, the snapshot is older than the lock.
func TestRateLimitLockMustPrecedeTheSnapshot(t *testing.T) {
	t.Parallel()
	table := func(a *admission) string { return a.db.Schema + ".rate_limit_reservations" }
	for name, tc := range map[string]struct {
		second func(ctx context.Context, tx pgx.Tx, a *admission) (n int, err error)
		want   int
	}{
		"in one statement": {func(ctx context.Context, tx pgx.Tx, a *admission) (n int, err error) {
			sql := "with l as materialized (select pg_advisory_xact_lock(4711)) select (select count(*) from " + table(a) + ") from l"
			return n, tx.QueryRow(ctx, sql).Scan(&n)
		}, 0},
		"in two": {func(ctx context.Context, tx pgx.Tx, a *admission) (n int, err error) {
			if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(4711)"); err != nil {
				return 0, err
			}
			return n, tx.QueryRow(ctx, "select count(*) from "+table(a)).Scan(&n)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdmission(t, RateLimit{Max: 1, Window: time.Hour})
			ctx := t.Context()
			begin := func() pgx.Tx {
				tx, err := a.db.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
				require.NoError(t, err)
				return tx
			}
			first, second := begin(), begin()
			defer func() { _ = first.Rollback(ctx) }()
			defer func() { _ = second.Rollback(ctx) }()
			_, err := first.Exec(ctx, "select pg_advisory_xact_lock(4711)")
			require.NoError(t, err)
			var pid int
			require.NoError(t, second.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid))
			seen := make(chan int, 1)
			go func() {
				n, err := tc.second(ctx, second, a)
				if err != nil {
					n = -1
				}
				seen <- n
			}()
			require.Eventually(t, func() bool {
				var waits bool
				err := a.db.Pool.QueryRow(ctx, "select exists (select from pg_locks where pid = $1 and not granted)", pid).Scan(&waits)
				return err == nil && waits
			}, 30*time.Second, 5*time.Millisecond)
			_, err = first.Exec(ctx, "insert into "+table(a)+" (job_id, limit_key, reserved_at, channel) values ($1, $1, now(), 'EMAIL')", uuid.New())
			require.NoError(t, err)
			require.NoError(t, first.Commit(ctx))
			require.Equal(t, tc.want, <-seen)
		})
	}
}

// fill writes reservations of the recipient that ask asks for, of jobs that there are not.
func (a *admission) fill(t *testing.T, n int, at string, booked bool) {
	t.Helper()
	sql := fmt.Sprintf(`insert into %s.rate_limit_reservations (job_id, limit_key, reserved_at, channel, booked)
		select gen_random_uuid(), $1, statement_timestamp() + %s, 'EMAIL', $2 from generate_series(1, $3::int) i`, a.db.Schema, at)
	t.Cleanup(func() {
		_, err := a.db.Pool.Exec(context.WithoutCancel(t.Context()), "truncate "+a.db.Schema+".rate_limit_reservations")
		require.NoError(t, err)
	})
	_, err := a.db.Pool.Exec(t.Context(), sql, a.limits.Key("", "u@example.test"), booked, n)
	require.NoError(t, err)
}

// However much a recipient has booked, and however many bookings nobody came for, a bounded number of rows is read, and
// all admissions are among them.
func TestRateLimitReadsFewRowsAndEveryAdmission(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, RateLimit{Max: 5, Window: time.Minute})
	a.fill(t, 5, "interval '-50 s'", false)
	a.fill(t, 5, "interval '-2 min'", false)
	a.fill(t, 3000, "interval '-1 ms' * (1 + i % 40000)", true)
	a.fill(t, 3000, "interval '10 s' * i", true)
	admitted, err := a.ask(t.Context(), uuid.New(), 1, func(existing []store.Reservation) {
		ids := make(map[uuid.UUID]bool)
		standing := 0
		for _, r := range existing {
			ids[r.JobID] = true
			if !r.Booked {
				standing++
			}
		}
		if standing != 5 || len(ids) > 5+5+engine.AdmissionBatch+5+nearRead+5 {
			t.Errorf("%d admissions among %d rows", standing, len(ids))
		}
	})
	require.NoError(t, err)
	require.False(t, admitted)
}

// The store reads exactly what the simulation of the other tests reads.
func TestRateLimitSimulationReadsLikeTheStore(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, RateLimit{Max: 2, Window: time.Minute}, RateLimit{Max: 3, Window: 2 * time.Minute, Channel: "SMS"})
	a.fill(t, 300, "interval '-1 s' * (i % 150)", false)
	a.fill(t, 300, "interval '-1 s' * (i % 150)", true)
	a.fill(t, 600, "interval '0.7 s' * i", true)
	a.fill(t, 3, "interval '0.2 s' * i", false)
	sim := newLimitSim(a.limits.(*limits))
	rows, err := a.db.Pool.Query(t.Context(), "select job_id, limit_key, channel, reserved_at, booked from "+a.db.Schema+".rate_limit_reservations")
	require.NoError(t, err)
	for rows.Next() {
		var r store.Reservation
		require.NoError(t, rows.Scan(&r.JobID, &r.Key, &r.Channel, &r.At, &r.Booked))
		sim.table[r.JobID] = r
	}
	require.NoError(t, rows.Err())
	key := a.limits.Key("", "u@example.test")
	job := uuid.New()
	_, err = a.store.Admit(t.Context(), a.db.Pool, []int64{1}, a.limits.Readings(key), []uuid.UUID{job},
		func(now, _ time.Time, existing []store.Reservation) ([]store.Reservation, []store.Deferral) {
			want := make(map[uuid.UUID]bool)
			for _, r := range sim.existing(now, []engine.Ask{{JobID: job, Key: key, Channel: "EMAIL"}}) {
				want[r.JobID] = true
			}
			got := make(map[uuid.UUID]bool)
			for _, r := range existing {
				got[r.JobID] = true
			}
			// Where several stand at one time, either may be cut off.
			if len(got) != len(want) {
				t.Errorf("read %d, want %d", len(got), len(want))
			}
			return nil, nil
		})
	require.NoError(t, err)
}
