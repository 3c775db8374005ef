package notifyq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// everyEnd brings jobs to each of their ends, by every way there is, and returns them.
func everyEnd(b *workerBundle, recordEvents bool) map[string]uuid.UUID {
	b.t.Helper()
	run := func(p notifyq.Provider) func() {
		cfg := b.config(p)
		cfg.RecordEvents = recordEvents
		w := b.start(cfg)
		return func() { require.NoError(b.t, w.stop()) }
	}
	ends := map[string]uuid.UUID{"crashed": b.schedule(withAttempts(1)), "crashed when parked": b.schedule(parked)}
	for range 2 {
		for _, c := range b.crash(2) {
			_, err := b.Pool.Exec(b.t.Context(), b.sql(`update @notification_queue set started_at = now() where id = $1`), c.ID)
			require.NoError(b.t, err)
			b.expireLeases(c.ID)
		}
		_, err := b.store.Recover(b.t.Context(), b.Pool, 10, recordEvents)
		require.NoError(b.t, err)
	}
	require.Equal(b.t, notifyq.StatusDeadLettered, b.job(ends["crashed"]).Status)
	require.Equal(b.t, notifyq.StatusDeadLettered, b.job(ends["crashed when parked"]).Status)

	ends["cancelled"] = b.schedule()
	_, err := b.client.Cancel(b.t.Context(), ends["cancelled"], notifyq.Operation{})
	require.NoError(b.t, err)

	ends["sent"] = b.schedule()
	stop := run(accepting())
	b.await(ends["sent"], notifyq.StatusSent)
	stop()
	ends["refused"] = b.schedule()
	stop = run(failing(notifyq.Permanent(errNo)))
	b.await(ends["refused"], notifyq.StatusFailed)
	stop()
	ends["exhausted"], ends["expired"] = b.schedule(withAttempts(2)), b.schedule(onChannel("PIGEON"), expiring)
	b.expire(ends["expired"])
	stop = run(failing(errNo))
	b.await(ends["exhausted"], notifyq.StatusDeadLettered)
	b.await(ends["expired"], notifyq.StatusFailed)
	stop()
	return ends
}

func TestEveryEndHasOneEventWithTheSpecifiedBody(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ends := everyEnd(b, true)
	byJob := make(map[uuid.UUID]event)
	for _, e := range b.events() {
		require.NotContains(t, byJob, e.Job)
		byJob[e.Job] = e
	}
	require.NotContains(t, byJob, ends["cancelled"])
	delete(ends, "cancelled")
	require.Len(t, byJob, len(ends))
	for how, id := range ends {
		job, e := b.job(id), byJob[id]
		at := map[notifyq.Status]time.Time{
			notifyq.StatusSent: job.SentAt, notifyq.StatusFailed: job.FailedAt, notifyq.StatusDeadLettered: job.DeadLetteredAt,
		}[job.Status]
		require.Equal(t, fmt.Sprintf(`{"eventId":"%s","jobId":"%s","status":"%s","attemptCount":%d,"timestamp":"%s"}`,
			e.ID, id, job.Status, job.AttemptCount, at.Format("2006-01-02T15:04:05.000Z")), e.Body, how)
		require.NotEqual(t, id, e.ID)
	}
}

func TestNoEventIsWrittenUnlessAskedFor(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	everyEnd(b, false)
	require.Empty(t, b.events())
}

func TestEventsOfARedriveAreTheNextGeneration(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ends := everyEnd(b, true)
	before := len(b.events())
	redriven := []uuid.UUID{ends["crashed"], ends["crashed when parked"], ends["refused"], ends["exhausted"]}
	for _, id := range redriven {
		_, err := b.client.Redrive(t.Context(), id, notifyq.Operation{})
		require.NoError(t, err)
	}
	cfg := b.config(failing(notifyq.Permanent(errNo)))
	cfg.RecordEvents = true
	b.start(cfg)
	for _, id := range redriven {
		b.await(id, notifyq.StatusFailed)
	}
	events := b.events()
	require.Len(t, events, before+len(redriven))
	ids := make(map[uuid.UUID]bool)
	rounds := make(map[uuid.UUID][]int32)
	for _, e := range events {
		ids[e.ID] = true
		rounds[e.Job] = append(rounds[e.Job], e.Round)
	}
	require.Len(t, ids, len(events), "a receiver tells them apart")
	for _, id := range redriven {
		require.Equal(t, []int32{0, 1}, rounds[id])
	}
}

// The statement of recovery writes status and event together, or neither.
func TestRecoveryDeadLettersOnlyWithTheEvent(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(withAttempts(1))
	for range 2 {
		b.crash(1)
		b.expireLeases(id)
		if b.job(id).AttemptCount == 1 {
			_, err := b.store.Recover(t.Context(), b.Pool, 10, true)
			require.NoError(t, err)
		}
	}
	mend := b.sabotage("outbox_events", "insert", "true", "53100")
	_, err := b.store.Recover(t.Context(), b.Pool, 10, true)
	require.Error(t, err)
	require.Equal(t, notifyq.StatusProcessing, b.job(id).Status)
	mend()
	_, err = b.store.Recover(t.Context(), b.Pool, 10, true)
	require.NoError(t, err)
	require.Equal(t, notifyq.StatusDeadLettered, b.job(id).Status)
	require.Len(t, b.events(), 1)
}
