package notifyq_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestPublishTxStoresTheEventWithTheTransaction(t *testing.T) { // C108
	t.Parallel()
	b := newBundle(t)
	given := uuid.New()
	body := []byte("any bytes: \x00\xff\r\n")
	var made uuid.UUID
	b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
		id, err := b.client.PublishTx(t.Context(), tx, notifyq.Event{
			ID: given, Topic: "order.paid", Key: "customer-7", Body: body, CreatedAt: time.Unix(0, 0), Attempt: 9,
		})
		require.NoError(t, err)
		require.Equal(t, given, id)
		made, err = b.client.PublishTx(t.Context(), tx, notifyq.Event{Topic: "order.shipped", Body: []byte("x")})
		require.NoError(t, err)
		require.Equal(t, uuid.Version(7), made.Version())
		require.Zero(t, b.count(t, "@outbox_events"), "nobody sees it before the commit")
	})
	require.Equal(t, body, value[[]byte](t, b, `select body from @outbox_events where id = $1 and topic = 'order.paid' and key = 'customer-7'
		and created_at > now() - interval '1 hour' and next_attempt_at = created_at and failure_count = 0`, given))
	require.Equal(t, "order.shipped//x", value[string](t, b,
		`select topic || '/' || key || '/' || convert_from(body, 'UTF8') from @outbox_events where id = $1`, made))

	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = b.client.PublishTx(t.Context(), tx, notifyq.Event{Topic: "undone", Body: []byte("x")})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 2, b.count(t, "@outbox_events"))
}

func TestPublishTxRefusesAnIDThatWasUsed(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	e := notifyq.Event{ID: uuid.New(), Topic: "canary-topic", Key: "canary-key", Body: []byte("canary-body")}
	b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
		_, err := b.client.PublishTx(t.Context(), tx, e)
		require.NoError(t, err)
		savepoint, err := tx.Begin(t.Context())
		require.NoError(t, err)
		_, err = b.client.PublishTx(t.Context(), savepoint, e)
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		require.Equal(t, "23505", pg.Code)
		require.NotContains(t, err.Error(), "canary")
		require.NotContains(t, err.Error(), e.ID.String())
		require.NoError(t, savepoint.Rollback(t.Context()))
	})
	require.Equal(t, 1, b.count(t, "@outbox_events"))
}

func TestPublishTxChecksTheEvent(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	valid := notifyq.Event{
		Topic: string(bytes.Repeat([]byte("t"), notifyq.MaxTopicBytes)), Key: string(bytes.Repeat([]byte("k"), notifyq.MaxEventKeyBytes)),
		Body: make([]byte, notifyq.MaxEventBodyBytes),
	}
	b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
		for field, changes := range map[string][]func(e *notifyq.Event){
			"Topic": {
				func(e *notifyq.Event) { e.Topic = "" }, func(e *notifyq.Event) { e.Topic = " " }, func(e *notifyq.Event) { e.Topic += "t" },
				func(e *notifyq.Event) { e.Topic = "a\r\nb" }, func(e *notifyq.Event) { e.Topic = "\xff" },
			},
			"Key": {
				func(e *notifyq.Event) { e.Key += "k" }, func(e *notifyq.Event) { e.Key = "\x00" }, func(e *notifyq.Event) { e.Key = "\u2028" },
			},
			"Body": {
				func(e *notifyq.Event) { e.Body = nil }, func(e *notifyq.Event) { e.Body = []byte{} },
				func(e *notifyq.Event) { e.Body = make([]byte, notifyq.MaxEventBodyBytes+1) },
			},
		} {
			for _, change := range changes {
				e := valid
				change(&e)
				_, err := b.client.PublishTx(t.Context(), tx, e)
				requireInvalid(t, err, field)
			}
		}
		_, err := b.client.PublishTx(t.Context(), tx, valid)
		require.NoError(t, err, "a refusal leaves the transaction usable")
	})
	require.Equal(t, notifyq.MaxEventBodyBytes, value[int](t, b, `select length(body) from @outbox_events`))
}
