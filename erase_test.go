package notifyq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

const secret = "canary-recipient@example.test"

func (b *bundle) scheduleSecret(t *testing.T, key string, change func(n *notifyq.Notification)) uuid.UUID {
	t.Helper()
	n := email(key)
	n.Recipient, n.Payload = secret, []byte(`{"text":"canary-payload"}`)
	if change != nil {
		change(&n)
	}
	return b.schedule(t, n).ID
}

// requireNothingPersonal looks through every row of the schema.
func (b *bundle) requireNothingPersonal(t *testing.T) {
	t.Helper()
	for _, table := range []string{
		"notifications", "notification_queue", "notification_outcomes", "notification_attempts", "operations", "outbox_events",
		"rate_limit_reservations",
	} {
		require.Zero(t, b.count(t, "@"+table+" x where x::text like '%canary%' or x::text like '%personal%'"), table)
	}
}

func TestErasureLeavesNothingPersonal(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	waiting := b.scheduleSecret(t, "waiting", func(n *notifyq.Notification) { n.Delay = time.Hour })
	ids := map[notifyq.Status]uuid.UUID{}
	for _, status := range everyStatus[2:] {
		ids[status] = b.scheduleSecret(t, string(status), nil)
		b.end(t, status, "because", ids[status])
	}
	b.exec(t, `update @notification_outcomes set attempt_count = 1, first_attempt_at = now() where id = $1`, ids[notifyq.StatusFailed])
	b.exec(t, `insert into @notification_attempts (id, redrive_count, number, started_at, ended_at, class, error, worker)
		values ($1, 0, 1, now(), now(), 'permanent', 'no such address: canary', 'w')`, ids[notifyq.StatusFailed])
	other := b.schedule(t, email("other"))

	erased, err := b.client.EraseRecipient(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, notifyq.Erased{Cancelled: 1, Erased: 5}, erased)
	b.requireNothingPersonal(t)

	job := b.get(t, waiting)
	require.Equal(t, notifyq.StatusCancelled, job.Status)
	require.Equal(t, notifyq.ReasonErased, job.Reason)
	for status, id := range ids {
		job := b.get(t, id)
		require.Equal(t, status, job.Status, "what happened stays")
		require.Equal(t, string(status), job.IdempotencyKey)
		require.Empty(t, job.Recipient)
		require.Empty(t, job.LastError)
		require.Empty(t, job.ProviderID)
		require.False(t, job.ErasedAt.IsZero())
	}
	attempts, err := b.client.Attempts(t.Context(), ids[notifyq.StatusFailed])
	require.NoError(t, err)
	require.Equal(t, "permanent", attempts[0].Class)
	require.Equal(t, other.Job, b.get(t, other.ID), "another recipient's is untouched")
	page, err := b.client.List(t.Context(), notifyq.ListParams{Recipient: secret})
	require.NoError(t, err)
	require.Empty(t, page.Jobs)

	again, err := b.client.EraseRecipient(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, notifyq.Erased{}, again)
	require.Equal(t, []string{"erase 5", "erase 0"}, b.operations(t))
	require.NotContains(t, b.logs.String(), "canary")
}

func TestAnErasedKeyIsNotSentAgain(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.scheduleSecret(t, "k", nil)
	_, err := b.client.EraseRecipient(t.Context(), secret)
	require.NoError(t, err)
	for _, recipient := range []string{secret, "someone-else@example.test"} {
		n := email("k")
		n.Recipient = recipient
		again := b.schedule(t, n)
		require.True(t, again.Replayed)
		require.Equal(t, id, again.ID)
	}
	require.Zero(t, b.count(t, "@notification_queue"))
}

func TestErasureTellsOfJobsInFlight(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	called, answer := make(chan struct{}), make(chan struct{})
	stop := b.startWorker(t, b.db.Pool, fastRetries(), provider(func(notifyq.Delivery) error {
		close(called)
		<-answer
		return notifyq.Permanent(fmt.Errorf("canary: %s", secret))
	}))
	id := b.scheduleSecret(t, "k", nil)
	<-called
	b.scheduleSecret(t, "waiting", func(n *notifyq.Notification) { n.Delay = time.Hour })

	erased, err := b.client.EraseRecipient(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, notifyq.Erased{Cancelled: 1, Erased: 1, InFlight: 1}, erased)
	require.Equal(t, secret, b.get(t, id).Recipient, "the delivery goes on undisturbed")

	close(answer)
	b.await(t, id, notifyq.StatusFailed)
	stop()
	erased, err = b.client.EraseRecipient(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, notifyq.Erased{Erased: 1}, erased)
	b.requireNothingPersonal(t)
	require.NotContains(t, b.logs.String(), "canary")
}

// A job that ends between the last batch and the count is not erased, and must not go unmentioned.
func TestErasureTellsOfJobsThatJustEnded(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.scheduleSecret(t, "k", nil)
	b.hold(t, id)
	client := b.newClient(t, b.hookedPool(t, "set recipient = ''", func() { b.end(t, notifyq.StatusSent, "", id) }), notifyq.ClientConfig{})
	erased, err := client.EraseRecipient(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, 1, erased.Erased+erased.InFlight)
}

func TestErasureGoesThroughMoreThanOneBatch(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ns := emails("k", 1700)
	for i := range ns {
		ns[i].Recipient = secret
	}
	ids := b.scheduleAll(t, ns)
	b.end(t, notifyq.StatusSent, "", ids[:1100]...)
	b.hold(t, ids[1690:]...)
	erased, err := b.client.EraseRecipient(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, notifyq.Erased{Cancelled: 590, Erased: 1690, InFlight: 10}, erased)
}

// Both lock the job and look again: it is redriven and not erased, or erased and not redriven. The invariants say so
// when the test is over.
func TestErasureAgainstRedriveHasOneWinner(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const rounds = 40
	for round := range rounds {
		id := b.scheduleSecret(t, fmt.Sprint(round), nil)
		b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, id)
		together(3, func(i int) {
			var err error
			switch i {
			case 0:
				_, err = b.client.EraseRecipient(t.Context(), secret)
			case 1:
				_, err = b.client.Redrive(t.Context(), id, notifyq.Operation{})
			case 2:
				_, err = b.client.RedriveMany(t.Context(), notifyq.RedriveParams{})
			}
			if err != nil && i != 1 {
				t.Errorf("call %d: %v", i, err)
			}
		})
		b.db.CheckInvariants(t)
		_, err := b.client.EraseRecipient(t.Context(), secret)
		require.NoError(t, err)
		require.False(t, b.get(t, id).ErasedAt.IsZero())
	}
}

// The two orders of the race, held open by a transaction.
func TestARedriveWaitsForAnErasure(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.scheduleSecret(t, "k", nil)
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, id)
	redriven := make(chan error, 1)
	client := b.newClient(t, b.hookedPool(t, "set recipient = ''", func() { // erased, and not committed
		go func() {
			_, err := b.client.Redrive(t.Context(), id, notifyq.Operation{})
			redriven <- err
		}()
		b.awaitLock(t)
	}), notifyq.ClientConfig{})
	erased, err := client.EraseRecipient(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, 1, erased.Erased)
	require.ErrorIs(t, <-redriven, notifyq.ErrNotRedrivable)
}

func TestErasureRefusesWrongInput(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for _, recipient := range []string{"", " ", "\x00", "\xff", "a\nb"} {
		_, err := b.client.EraseRecipient(t.Context(), recipient)
		requireInvalid(t, err, "Recipient")
	}
}
