// Package readme_test compiles what the README shows.
package readme_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// What the README shows stands here, so that it compiles; TestReadmeCodeCompiles compares the two.

func schedule() {
	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{})

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := placeOrder(ctx, tx, order); err != nil {
			return err
		}
		_, err := client.ScheduleTx(ctx, tx, notifyq.Notification{
			IdempotencyKey: "order-confirmed-" + order.ID,
			Recipient:      order.Email,
			Channel:        notifyq.ChannelEmail,
			Payload:        payload,
		})
		return err // commit: the mail is queued. Roll back: it never existed.
	})
	check(err)
}

func work() {
	worker, err := notifyq.NewWorker(pool, notifyq.WorkerConfig{
		Client: client,
		Providers: map[notifyq.Channel]notifyq.ProviderConfig{
			notifyq.ChannelEmail: {Provider: provider, Timeout: time.Minute},
		},
		RateLimits: []notifyq.RateLimit{{Max: 5, Window: time.Hour}},
	})
	err = worker.Run(ctx) // until ctx ends, then drains
	check(err)
}

func publishing() {
	worker, err := notifyq.NewWorker(pool, notifyq.WorkerConfig{
		Client:    client,
		Providers: providers,
		Publisher: publisher, // webhook.New(…), nats.New(…), or your own
	})
	check(err)
	_ = worker
}

func business(tx pgx.Tx) {
	_, err := client.PublishTx(ctx, tx, notifyq.Event{Topic: "order.paid", Key: order.ID, Body: body})
	check(err)
}

func receiving(r *http.Request) {
	id, err := notifyq.VerifyWebhook(r.Header, body, secrets, 0)
	check(err)
	_ = id
}

func (p *Twilio) Deliver(ctx context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	id, err := p.send(ctx, d.Recipient, d.Payload, d.Key) // d.Key: the same in every attempt
	switch {
	case isBadNumber(err):
		return notifyq.Receipt{}, notifyq.Permanent(err) // FAILED, no retry
	case isWrongPassword(err):
		return notifyq.Receipt{}, notifyq.Misconfigured(err) // pauses the provider, burns no attempts
	case isTimeoutAfterWrite(err):
		return notifyq.Receipt{}, notifyq.Ambiguous(err) // retry or park, as the notification says
	}
	return notifyq.Receipt{ProviderID: id}, err // any other error: retried with backoff
}

// Twilio stands for any provider.
type Twilio struct {
	send func(ctx context.Context, to string, payload json.RawMessage, key any) (string, error)
}

var _ = []any{schedule, work, publishing, business, receiving}

var (
	ctx      context.Context
	pool     *pgxpool.Pool
	client   *notifyq.Client
	provider notifyq.Provider = &Twilio{}
	payload  json.RawMessage

	providers map[notifyq.Channel]notifyq.ProviderConfig
	publisher notifyq.Publisher
	secrets   []string
	body      []byte
	order     struct{ ID, Email string }

	placeOrder                                        func(context.Context, pgx.Tx, any) error
	check                                             func(error)
	isBadNumber, isWrongPassword, isTimeoutAfterWrite func(error) bool
)

func TestReadmeCodeCompiles(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("readme_test.go")
	require.NoError(t, err)
	words := func(code string) string { return strings.Join(strings.Fields(code), " ") }
	blocks := strings.Split(string(readme), "```go\n")[1:]
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		require.Contains(t, words(string(source)), words(code))
	}
}
