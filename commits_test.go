package notifyq_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func (b *workerBundle) notification(key string) notifyq.Notification {
	return notifyq.Notification{
		IdempotencyKey: key, Recipient: "u@example.test", Channel: notifyq.ChannelEmail, Payload: []byte(`{}`),
	}
}

// scheduleAtOnce makes one call for each notification, at the same time, behind transactions that are held up until all
// calls have begun.
func (b *workerBundle) scheduleAtOnce(ns ...notifyq.Notification) ([]notifyq.Scheduled, []error) {
	b.t.Helper()
	blocked, release := b.block("notifications", "insert", "new.idempotency_key like 'plug%'")
	answers, errs := make([]notifyq.Scheduled, len(ns)), make([]error, len(ns))
	var all, begun sync.WaitGroup
	for i := range 2 { // as many as run at once
		all.Go(func() {
			_, err := b.client.Schedule(b.t.Context(), b.notification(fmt.Sprintf("plug-%d", i)))
			require.NoError(b.t, err)
		})
	}
	blocked()
	for i := range ns {
		begun.Add(1)
		all.Go(func() {
			begun.Done()
			answers[i], errs[i] = b.client.Schedule(b.t.Context(), ns[i])
		})
	}
	begun.Wait()
	time.Sleep(20 * time.Millisecond) // for those that have begun and are not in the queue yet; nothing depends on it
	release()
	all.Wait()
	return answers, errs
}

func TestCallsAtOnceShareTransactionsAndAreAnsweredEach(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var ns []notifyq.Notification
	for i := range 100 {
		ns = append(ns, b.notification(fmt.Sprintf("k-%d", i)))
	}
	again, other, late := b.notification("k-0"), b.notification("k-1"), b.notification("late")
	other.Recipient = "somebody else"
	late.SendAt = time.Now().Add(400 * 24 * time.Hour)
	answers, errs := b.scheduleAtOnce(append(ns, again, other, late)...)
	for i, n := range ns {
		if i == 1 {
			continue // who of the two was first has it
		}
		require.NoError(t, errs[i])
		require.Equal(t, n.IdempotencyKey, answers[i].Job.IdempotencyKey)
		require.Equal(t, answers[i].ID, b.job(answers[i].ID).ID)
	}
	require.NoError(t, errs[100])
	require.Equal(t, answers[0].ID, answers[100].ID)
	require.NotEqual(t, answers[0].Replayed, answers[100].Replayed)
	refused := errs[1]
	if refused == nil {
		refused = errs[101]
	}
	require.ErrorIs(t, refused, notifyq.ErrKeyReused)
	requireInvalid(t, errs[102], "SendAt")
	require.Equal(t, 100, one[int](b, `select count(*)::int from @notifications where idempotency_key like 'k-%'`))
	require.Less(t, one[int](b, `select count(distinct xmin::text)::int from @notifications where idempotency_key like 'k-%'`), 20)
}

// A key that somebody's open transaction holds keeps its own caller waiting and nobody else.
func TestKeyOfAnOpenTransactionHoldsUpNoOtherCall(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = b.client.ScheduleTx(t.Context(), tx, b.notification("held"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		s, err := b.client.Schedule(t.Context(), b.notification("held"))
		require.NoError(t, err)
		require.True(t, s.Replayed)
	})
	for i := range 60 {
		wg.Go(func() {
			_, err := b.client.Schedule(t.Context(), b.notification(fmt.Sprintf("free-%d", i)))
			require.NoError(t, err)
		})
	}
	require.Eventually(t, func() bool {
		return one[int](b, `select count(*)::int from @notifications where idempotency_key like 'free-%'`) == 60
	}, patience, poll)
	require.NoError(t, tx.Commit(t.Context()))
	wg.Wait()
}

func TestCallThatCannotBeStoredSinksNoOther(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	b.sabotage("notifications", "insert", "new.idempotency_key = 'bad'", "22000")
	var ns []notifyq.Notification
	for i := range 30 {
		ns = append(ns, b.notification(fmt.Sprintf("k-%d", i)))
	}
	_, errs := b.scheduleAtOnce(append(ns, b.notification("bad"))...)
	for _, err := range errs[:30] {
		require.NoError(t, err)
	}
	require.Error(t, errs[30])
	require.NotContains(t, errs[30].Error(), "canary")
}

func TestCallerThatLeavesTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	blocked, release := b.block("notifications", "insert", "new.idempotency_key like 'plug%'")
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			_, err := b.client.Schedule(t.Context(), b.notification(fmt.Sprintf("plug-%d", i)))
			require.NoError(t, err)
		})
	}
	blocked()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := b.client.Schedule(ctx, b.notification("left"))
		left <- err
	}()
	wg.Go(func() {
		_, err := b.client.Schedule(t.Context(), b.notification("stays"))
		require.NoError(t, err)
	})
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	release()
	wg.Wait()
	_, err := b.client.GetByKey(t.Context(), "left")
	require.ErrorIs(t, err, notifyq.ErrNotFound, "it had not begun")
}

// Without a caller there is nothing to wait for.
func TestTransactionEndsWithItsLastCaller(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	tx, err := b.Pool.BeginTx(t.Context(), pgx.TxOptions{})
	require.NoError(t, err)
	_, err = b.client.ScheduleTx(t.Context(), tx, b.notification("held"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := b.client.Schedule(ctx, b.notification("held"))
		left <- err
	}()
	b.awaitBlocked(tx, 1)
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	require.Eventually(t, func() bool { return b.Pool.Stat().AcquiredConns() == 1 }, patience, poll)
	require.NoError(t, tx.Rollback(t.Context()))
}
