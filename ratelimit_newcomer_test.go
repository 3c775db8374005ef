package notifyq

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/store"
)

// admitNew asks for one job of the recipient without judging, and tells whether it was admitted.
func (a *admission) admitNew(t *testing.T, job uuid.UUID, lock int64) bool {
	t.Helper()
	window, lead := a.limits.Newcomer(time.Millisecond)
	ids, err := a.store.AdmitNew(t.Context(), a.db.Pool, []int64{lock},
		[]store.Newcomer{{JobID: job, Key: a.limits.Key("", "u@example.test"), Channel: "EMAIL"}}, window, lead)
	require.NoError(t, err)
	if len(ids) > 0 {
		require.Equal(t, []uuid.UUID{job}, ids)
	}
	return len(ids) > 0
}

// What AdmitNew lets go is what Judge would let go, and it leaves the rest to it.
func TestNewcomersAreThoseWithNothingInTheLongestWindow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		at     string // of what is there, from now
		booked bool
		own    bool // it is the job's own
		want   bool
	}{
		"admitted within the long window":         {at: "-119 minutes", want: false},
		"admitted before all windows":             {at: "-121 minutes", want: true},
		"admitted a moment ahead":                 {at: "500 milliseconds", want: false},
		"what is to come":                         {at: "5 hours", want: false},
		"booked, and its turn is past":            {at: "-1 minute", booked: true, want: false},
		"its own booking":                         {at: "-1 minute", booked: true, own: true, want: false},
		"its own, from before all windows":        {at: "-121 minutes", own: true, want: true},
		"its own booking, long out of date":       {at: "-3 hours", booked: true, own: true, want: true},
		"another channel, to be on the safe side": {at: "-1 minute", want: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdmission(t, RateLimit{Max: 1000, Window: time.Minute, Channel: "SMS"}, RateLimit{Max: 1000, Window: 2 * time.Hour})
			job, other := uuid.New(), uuid.New()
			if c.own {
				other = job
			}
			_, err := a.db.Pool.Exec(t.Context(), "insert into "+a.db.Schema+`.rate_limit_reservations (job_id, limit_key, channel, reserved_at, booked)
				values ($1, $2, 'PUSH', now() + $3::interval, $4)`, other.String(), a.limits.Key("", "u@example.test").String(), c.at, c.booked)
			require.NoError(t, err)
			require.Equal(t, c.want, a.admitNew(t, job, int64(rand.Int32())))
			if !c.want {
				return
			}
			var stands bool
			require.NoError(t, a.db.Pool.QueryRow(t.Context(), "select not booked and reserved_at between now() - interval '1 minute' and now() and channel = 'EMAIL' from "+
				a.db.Schema+".rate_limit_reservations where job_id = $1", job.String()).Scan(&stands))
			require.True(t, stands)
			require.False(t, a.admitNew(t, uuid.New(), int64(rand.Int32())), "the second is none any more")
		})
	}
}

// Each of them would go by itself. Inserts are held up until all five wait, for the lock of the recipient or, if there were
// none, in their inserts, having seen nothing.
func TestOneOfManyNewcomersAtOnceIsAdmitted(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, RateLimit{Max: 3, Window: time.Hour})
	holder, err := a.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), "select pg_advisory_xact_lock(hashtext($1))", a.db.Schema)
	require.NoError(t, err)
	for _, sql := range []string{
		`create function %[1]s.block() returns trigger language plpgsql as
			$$begin perform pg_advisory_xact_lock_shared(hashtext(tg_table_schema)); return new; end$$`,
		`create trigger block before insert on %[1]s.rate_limit_reservations for each row execute function %[1]s.block()`,
	} {
		_, err = a.db.Pool.Exec(t.Context(), fmt.Sprintf(sql, a.db.Schema))
		require.NoError(t, err)
	}
	lock := rand.Int32()
	var wg sync.WaitGroup
	var admitted atomic.Int32
	for range 5 {
		wg.Go(func() {
			if a.admitNew(t, uuid.New(), int64(lock)) {
				admitted.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool {
		var waiting int
		err := a.db.Pool.QueryRow(t.Context(), `select count(*) from pg_locks where locktype = 'advisory' and not granted
			and (objid = $1::int::oid or objid = hashtext($2)::oid)`, lock, a.db.Schema).Scan(&waiting)
		return err == nil && waiting == 5
	}, 20*time.Second, 5*time.Millisecond)
	require.NoError(t, holder.Rollback(t.Context()))
	wg.Wait()
	require.EqualValues(t, 1, admitted.Load())
}
