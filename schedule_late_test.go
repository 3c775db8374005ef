package notifyq_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// C30. What was in the future when it was asked for, and is in the past when it is stored, is due and not lost.
func TestScheduleOfAMomentThatPassesMeanwhileIsDue(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	n := email("late")
	scheduled := make(chan notifyq.Scheduled, 1)
	b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), b.sql(`lock table @notifications in exclusive mode`))
		require.NoError(t, err)
		n.SendAt = value[time.Time](t, b, `select clock_timestamp() + interval '200 milliseconds'`)
		go func() {
			s, err := b.client.Schedule(contextAfter(t), n)
			if err != nil {
				t.Error(err)
			}
			scheduled <- s
		}()
		require.Eventually(t, func() bool {
			return value[bool](t, b, `select clock_timestamp() > $1 and exists (
				select from pg_locks where not granted and relation = $2::regclass)`, n.SendAt, b.sql("@notifications"))
		}, time.Minute, 10*time.Millisecond)
	})
	job := (<-scheduled).Job
	require.Equal(t, notifyq.StatusPending, job.Status)
	require.WithinDuration(t, n.SendAt, job.ScheduledAt, time.Microsecond)
	require.Equal(t, 1, b.count(t, `@notification_queue where next_attempt_at <= clock_timestamp()`))
}
