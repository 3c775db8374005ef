// Package cmd_test holds what takes several modules to show.
package cmd_test

import (
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/notifyqtest"
	"github.com/notifyq/notifyq/publishers/webhook"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// secretOf makes a valid one of a letter.
func secretOf(letter string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

// seen is what a receiver got.
type seen struct {
	id, body, timestamp string
}

// C18, C95, C96: through the relay, over a socket. Every attempt of an event, and what follows its redrive, has the same
// id and the same bytes, signed anew.
func TestRelayedEventIsTheSameOnEveryAttempt(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	secrets := []string{secretOf("n"), secretOf("o")}
	var mu sync.Mutex
	var got []seen
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		id, err := notifyq.VerifyWebhook(r.Header, body, secrets[1:], 0)
		if err != nil {
			t.Errorf("verify: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, seen{id, string(body), r.Header.Get("webhook-timestamp")})
		if len(got) < 6 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(receiver.Close)
	publisher, err := webhook.New(webhook.Config{
		URL: receiver.URL, Secrets: secrets, MaxAttempts: 3, AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	require.NoError(t, err)
	t.Cleanup(publisher.CloseIdleConnections)
	logger := slog.New(slog.DiscardHandler)
	client, err := notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema, Logger: logger})
	require.NoError(t, err)
	_, err = client.Schedule(t.Context(), notifyq.Notification{
		IdempotencyKey: "k", Recipient: "u", Channel: notifyq.ChannelSMS, Payload: []byte(`{"b":1.0,"a":  "x","z":{"y":2,"x":1e2}}`),
	})
	require.NoError(t, err)
	own := `{"b":1.0,"a":  "x \u2028 <&>","z":{"y":2,"x":1e2}}`
	require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		_, err := client.PublishTx(t.Context(), tx, notifyq.Event{Topic: "order.paid", Body: []byte(own)})
		return err
	}))
	run := func() {
		require.NoError(t, notifyqtest.RunDue(t.Context(), db.Pool, notifyq.WorkerConfig{
			Schema: db.Schema, Logger: logger, Publisher: publisher,
			Providers: map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelSMS: {Provider: &notifyqtest.Provider{}}},
		}))
	}
	run()
	parked, err := client.ListParked(t.Context(), notifyq.ParkedParams{Endpoint: "default"})
	require.NoError(t, err)
	require.NotEmpty(t, parked.Events, "three failures are all it gets")
	require.Contains(t, parked.Events[0].LastError, "500")
	done, err := client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{Endpoint: "default"})
	require.NoError(t, err)
	require.Equal(t, len(parked.Events), done.Retried)
	run()

	byID := map[string]map[string]bool{}
	mu.Lock()
	defer mu.Unlock()
	for _, s := range got {
		if byID[s.id] == nil {
			byID[s.id] = map[string]bool{}
		}
		byID[s.id][s.body] = true
		seconds, err := strconv.ParseInt(s.timestamp, 10, 64)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), time.Unix(seconds, 0), time.Minute)
	}
	require.Len(t, byID, 2)
	bodies := map[string]bool{}
	for _, of := range byID {
		require.Len(t, of, 1, "the bytes never change")
		for body := range of {
			bodies[body] = true
		}
	}
	require.True(t, bodies[own])
	stats, err := client.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, stats.Outbox.Pending)
	require.Zero(t, stats.Outbox.Parked)
}
