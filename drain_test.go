package notifyq_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// block holds up an operation on a table for rows that meet a condition, until release. begun waits until one is held up.
func (b *workerBundle) block(table, operation, condition string) (begun, release func()) {
	b.t.Helper()
	tx, err := b.Pool.Begin(b.t.Context())
	require.NoError(b.t, err)
	_, err = tx.Exec(b.t.Context(), `select pg_advisory_xact_lock(hashtext($1))`, b.Schema)
	require.NoError(b.t, err)
	b.exec(`create function @block() returns trigger language plpgsql as
		$$begin perform pg_advisory_xact_lock_shared(hashtext(tg_table_schema)); return new; end$$`)
	b.exec(`create trigger block before ` + operation + ` on @` + table + ` for each row when (` + condition + `) execute function @block()`)
	return func() { b.t.Helper(); b.awaitBlocked(tx, 1) }, func() {
		b.t.Helper()
		require.NoError(b.t, tx.Rollback(b.t.Context()))
	}
}

// awaitBlocked waits until n connections wait for a transaction.
func (b *workerBundle) awaitBlocked(tx pgx.Tx, n int) {
	b.t.Helper()
	pid := tx.Conn().PgConn().PID()
	require.Eventually(b.t, func() bool {
		var blocked int
		err := b.Pool.QueryRow(b.t.Context(), `select count(*) from pg_stat_activity where $1 = any(pg_blocking_pids(pid))`, pid).Scan(&blocked)
		return err == nil && blocked >= n
	}, patience, poll)
}

// awaitLock waits until a statement on the schema waits for a lock.
func (b *workerBundle) awaitLock() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var n int
		err := b.Pool.QueryRow(b.t.Context(), `select count(*) from pg_stat_activity
			where wait_event_type = 'Lock' and query like '%"' || $1 || '"%'`, b.Schema).Scan(&n)
		return err == nil && n > 0
	}, patience, poll)
}

func TestIdleWorkerStopsCleanly(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	w := b.run(accepting())
	b.logs.await(t, "worker.started")
	require.NoError(t, w.drain())
	b.logs.await(t, "worker.drained")
}

// C55 b: the answer of the claim that was under way is awaited, and what it brought goes back.
func TestStopDuringAClaimStrandsNothing(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	begun, release := b.block("notification_queue", "update", "new.status = 1")
	ids := b.scheduleMany(2)
	c := accepting()
	w := b.run(c)
	begun()
	w.cancel()
	b.logs.await(t, "worker.draining")
	release()
	require.NoError(t, w.drain())
	require.Empty(t, c.all())
	for _, id := range ids {
		job := b.job(id)
		require.Equal(t, notifyq.StatusPending, job.Status)
		require.Zero(t, job.AttemptCount)
	}
}

// Section 15: a run of recovery that is in progress is waited for.
func TestStopDuringARecoveryLetsItFinish(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	b.crash(1)
	b.expireLeases(id)
	begun, release := b.block("notification_attempts", "insert", "new.class = 'lease_expired'")
	w := b.run(accepting())
	begun()
	w.cancel()
	b.logs.await(t, "worker.draining")
	release()
	require.NoError(t, w.drain())
	require.Equal(t, notifyq.StatusPending, b.job(id).Status)
	require.Equal(t, 1, b.job(id).AttemptCount)
}

func TestNothingIsClaimedAfterAStop(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	first := b.schedule()
	w := b.run(c)
	c.next(t)
	w.cancel()
	b.logs.await(t, "worker.draining")
	late := b.schedule() // wakes the worker, which has nine slots free
	answerAll(t, answers, 1, nil)
	require.NoError(t, w.drain())
	require.Equal(t, notifyq.StatusSent, b.job(first).Status)
	require.Equal(t, notifyq.StatusPending, b.job(late).Status)
	require.Zero(t, b.job(late).AttemptCount)
	require.Len(t, c.all(), 1)
}

// The drain first waits for what is under way in the database. What ends meanwhile makes room for nobody.
func TestNothingStartsAfterAStop(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	crashed := b.schedule()
	b.crash(1)
	b.expireLeases(crashed)
	begun, release := b.block("notification_attempts", "insert", "new.class = 'lease_expired'")
	ids := b.scheduleMany(2)
	c, answers := held()
	cfg := b.config(c)
	cfg.Concurrency = 1
	w := b.start(cfg)
	begun()
	running := c.next(t).Key
	w.cancel()
	b.logs.await(t, "worker.draining")
	answerAll(t, answers, 1, nil)
	b.await(running, notifyq.StatusSent)
	release()
	require.NoError(t, w.drain())
	require.Len(t, c.all(), 1)
	for _, id := range ids {
		if id != running {
			require.Equal(t, notifyq.StatusPending, b.job(id).Status)
			require.Zero(t, b.job(id).AttemptCount)
		}
	}
}

func TestStopDoesNotCancelWhatRuns(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c := newCourier(nil)
	c.answer = func(ctx context.Context, _ notifyq.Delivery) error {
		b.logs.await(t, "worker.draining")
		return ctx.Err()
	}
	id := b.schedule()
	w := b.run(c)
	c.next(t)
	require.NoError(t, w.drain())
	require.Equal(t, notifyq.StatusSent, b.job(id).Status)
}

// C56: a stop may come from anywhere, also from a provider.
func TestStopFromInsideAProvider(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	stop := make(chan context.CancelFunc, 1)
	w := b.run(newCourier(func(context.Context, notifyq.Delivery) error {
		cancel := <-stop
		cancel()
		cancel()
		return nil
	}))
	stop <- w.cancel
	<-w.done
	require.NoError(t, w.drain())
	require.Equal(t, notifyq.StatusSent, b.job(id).Status)
}

// C56, C59
func TestRunReturnsInTimeFromADeafProviderAndNamesTheJob(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := deaf()
	id := b.schedule()
	cfg := b.config(c)
	cfg.ShutdownTimeout = 50 * time.Millisecond
	w := b.start(cfg)
	c.next(t)
	err := w.drain()
	require.ErrorIs(t, err, notifyq.ErrDrainTimeout)
	require.ErrorContains(t, err, id.String())
	before := b.job(id)
	require.Equal(t, notifyq.StatusProcessing, before.Status, "it is left to its lease")
	answerAll(t, answers, 1, nil)
	require.Equal(t, before, b.job(id), "what it says now is worth nothing")

	b.expireLeases(id)
	next := accepting()
	b.run(next)
	job := b.await(id, notifyq.StatusSent)
	require.Equal(t, 2, job.AttemptCount)
	require.Equal(t, id, next.next(t).Key)
}

func TestDeliveryIsCancelledAtTheEndOfTheShutdownTimeout(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	returned := make(chan error, 1)
	c := newCourier(func(ctx context.Context, _ notifyq.Delivery) error {
		<-ctx.Done()
		returned <- context.Cause(ctx)
		return ctx.Err()
	})
	id := b.schedule()
	cfg := b.config(c)
	cfg.ShutdownTimeout = 50 * time.Millisecond
	w := b.start(cfg)
	c.next(t)
	require.ErrorIs(t, w.drain(), notifyq.ErrDrainTimeout)
	require.ErrorIs(t, <-returned, notifyq.ErrLeaseLost)
	require.Equal(t, notifyq.StatusProcessing, b.job(id).Status)
}

// C55 e: the provider has answered, and the record is not committed yet.
func TestStopWaitsForOutcomesToBeWritten(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	id := b.schedule()
	cfg := b.config(c)
	cfg.ShutdownTimeout = 0 // what is written may still take two seconds
	w := b.start(cfg)
	c.next(t)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), b.sql(`select from @notification_queue where id = $1 for update`), id)
	require.NoError(t, err)
	answerAll(t, answers, 1, nil)
	b.awaitLock() // the record waits for the row
	w.cancel()
	b.logs.await(t, "worker.draining")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, w.drain())
	require.Equal(t, notifyq.StatusSent, b.job(id).Status)
}

func TestRunReturnsInTimeWhenOutcomesCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	mend := b.sabotage("notification_outcomes", "insert", "true", "53100")
	id := b.schedule()
	c := accepting()
	cfg := b.config(c)
	cfg.ShutdownTimeout = 50 * time.Millisecond
	w := b.start(cfg)
	b.logs.await(t, "worker.record_failed")
	err := w.drain()
	require.ErrorIs(t, err, notifyq.ErrDrainTimeout)
	require.ErrorContains(t, err, "1 outcomes not recorded")
	mend()
	b.expireLeases(id)
	b.run(c)
	b.await(id, notifyq.StatusSent)
	require.Equal(t, map[uuid.UUID]int{id: 2}, c.times(), "sent again, under the same key")
}

// A database that does not answer must not hold the process past what its supervisor allows: with a lease of a minute
// each call may take 15 s otherwise.
func TestRunReturnsInTimeFromADatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	id := b.schedule()
	cfg := b.config(c)
	cfg.ShutdownTimeout = 50 * time.Millisecond
	w := b.start(cfg)
	c.next(t)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), b.sql(`lock table @notification_queue in access exclusive mode`))
	require.NoError(t, err)
	answerAll(t, answers, 1, nil)
	w.cancel()
	select {
	case <-w.done:
	case <-time.After(10 * time.Second):
		t.Error("Run waits for the database")
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.ErrorIs(t, w.drain(), notifyq.ErrDrainTimeout)
	b.expireLeases(id)
	b.run(accepting())
	b.await(id, notifyq.StatusSent)
}
