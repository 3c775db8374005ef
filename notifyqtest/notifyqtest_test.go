package notifyqtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/notifyqtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestRunDueRunsEverythingToItsEndInOrder(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client, err := notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	schedule := func(recipient string, change func(*notifyq.Notification)) notifyq.Scheduled {
		n := notifyq.Notification{
			IdempotencyKey: recipient, Recipient: recipient, Channel: notifyq.ChannelEmail, Payload: []byte(`{}`),
		}
		change(&n)
		s, err := client.Schedule(ctx, n)
		require.NoError(t, err)
		return s
	}
	plain := schedule("plain", func(*notifyq.Notification) {})
	urgent := schedule("urgent", func(n *notifyq.Notification) { n.Priority = notifyq.PriorityHigh })
	flaky := schedule("flaky", func(*notifyq.Notification) {})
	refused := schedule("refused", func(*notifyq.Notification) {})
	dying := schedule("dying", func(n *notifyq.Notification) { n.MaxAttempts = 3 })
	later := schedule("later", func(n *notifyq.Notification) { n.Delay = time.Hour })

	provider := &notifyqtest.Provider{Answer: func(d notifyq.Delivery) (notifyq.Receipt, error) {
		switch {
		case d.Recipient == "flaky" && d.Attempt == 1, d.Recipient == "dying":
			return notifyq.Receipt{}, errors.New("try again")
		case d.Recipient == "refused":
			return notifyq.Receipt{}, notifyq.Permanent(errors.New("no"))
		}
		return notifyq.Receipt{}, nil
	}}
	require.NoError(t, notifyqtest.RunDue(ctx, db.Pool, notifyq.WorkerConfig{
		Schema: db.Schema, Providers: map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelEmail: {Provider: provider}},
	}))

	for _, want := range []struct {
		job      notifyq.Scheduled
		status   notifyq.Status
		attempts int
	}{
		{plain, notifyq.StatusSent, 1},
		{urgent, notifyq.StatusSent, 1},
		{flaky, notifyq.StatusSent, 2},
		{refused, notifyq.StatusFailed, 1},
		{dying, notifyq.StatusDeadLettered, 3},
		{later, notifyq.StatusPending, 0},
	} {
		job, err := client.Get(ctx, want.job.ID)
		require.NoError(t, err)
		require.Equal(t, want.status, job.Status, job.Recipient)
		require.Equal(t, want.attempts, job.AttemptCount, job.Recipient)
	}
	require.Equal(t, "urgent", provider.Deliveries()[0].Recipient)
	require.Len(t, provider.To("dying"), 3)
	require.Empty(t, provider.To("later"))
}

func TestRunDuePublishesWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	client, err := notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	job, err := client.Schedule(ctx, notifyq.Notification{
		IdempotencyKey: "k", Recipient: "u", Channel: notifyq.ChannelSMS, Payload: []byte(`{}`),
	})
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
		_, err := client.PublishTx(ctx, tx, notifyq.Event{Topic: "order.paid", Body: []byte("own")})
		return err
	}))
	publisher := &notifyqtest.Publisher{Answer: func(e notifyq.Event) error {
		if e.Attempt < 3 {
			return errors.New("try again")
		}
		return nil
	}}
	require.NoError(t, notifyqtest.RunDue(ctx, db.Pool, notifyq.WorkerConfig{
		Schema: db.Schema, Publisher: publisher,
		Providers: map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelSMS: {Provider: &notifyqtest.Provider{}}},
	}))
	require.Len(t, publisher.Of("order.paid"), 3)
	sent := publisher.Of(notifyq.TopicSent)
	require.Len(t, sent, 3)
	require.Equal(t, job.ID.String(), sent[2].Key)
	require.Len(t, publisher.Events(), 6)
}

func TestRunDueEndsWithItsContext(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	client, err := notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	_, err = client.Schedule(t.Context(), notifyq.Notification{
		IdempotencyKey: "k", Recipient: "u", Channel: notifyq.ChannelSMS, Payload: []byte(`{}`),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	provider := &notifyqtest.Provider{Answer: func(notifyq.Delivery) (notifyq.Receipt, error) {
		return notifyq.Receipt{}, notifyq.Misconfigured(errors.New("bad credentials"))
	}}
	err = notifyqtest.RunDue(ctx, db.Pool, notifyq.WorkerConfig{
		Schema: db.Schema, Providers: map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelSMS: {Provider: provider}},
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotEmpty(t, provider.Deliveries())
}

func ExampleProvider() {
	provider := &notifyqtest.Provider{}
	_, _ = provider.Deliver(context.Background(), notifyq.Delivery{Recipient: "u@example.test", Payload: []byte(`{"subject":"hi"}`)})
	for _, d := range provider.To("u@example.test") {
		fmt.Println(string(d.Payload))
	}
	// Output: {"subject":"hi"}
}
