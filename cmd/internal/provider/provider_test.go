package provider

import (
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func load(t *testing.T, environ ...string) settings.Settings {
	s, err := settings.Load(append(environ, "DATABASE_URL=postgres://h/d"), settings.Options{Role: settings.RoleWorker})
	require.NoError(t, err)
	return s
}

func channelsOf(set Set) []notifyq.Channel { return slices.Sorted(maps.Keys(set.Channels)) }

func TestMockServesEveryChannel(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	s := load(t, "CHANNELS=EMAIL,FAX", "PROVIDER_TIMEOUT_MS=1234", "DATABASE_SCHEMA="+db.Schema)
	set, err := New(s, db.Pool, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer set.Close()
	require.Equal(t, []notifyq.Channel{"EMAIL", "FAX"}, channelsOf(set))
	require.Empty(t, set.Unserved)
	fax := set.Channels["FAX"]
	require.Equal(t, 1234*time.Millisecond, fax.Timeout)
	d := notifyq.Delivery{Key: uuid.New(), Recipient: "a"}
	first, err := fax.Provider.Deliver(t.Context(), d)
	require.NoError(t, err)
	again, err := set.Channels["EMAIL"].Provider.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, first, again, "one mock for all channels")

	s.MockFailureRate = 1
	set, err = New(s, db.Pool, nil)
	require.NoError(t, err)
	_, err = set.Channels["FAX"].Provider.Deliver(t.Context(), d)
	require.True(t, notifyq.IsTransient(err))
}

func TestSMTPServesEmailAndLeavesTheOthers(t *testing.T) {
	t.Parallel()
	s := load(t, "PROVIDER=smtp", "SMTP_URL=smtp://canary:canary@localhost:1", "SMTP_FROM=Shop <a@b.example>")
	set, err := New(s, nil, nil)
	require.NoError(t, err)
	defer set.Close()
	require.Equal(t, []notifyq.Channel{"EMAIL"}, channelsOf(set))
	require.Equal(t, []notifyq.Channel{"SMS", "PUSH"}, set.Unserved)
	_, err = set.Channels["EMAIL"].Provider.Deliver(t.Context(), notifyq.Delivery{
		Key: uuid.New(), Recipient: "a@b.example", Payload: []byte(`{"subject":"x","text":"y"}`),
	})
	require.True(t, notifyq.IsTransient(err), "nobody listens there")
	require.NotContains(t, err.Error(), "canary")
}

func TestHTTPPostsToTheURL(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"id":"` + r.Header.Get("Idempotency-Key") + `"}`))
	}))
	defer server.Close()
	set, err := New(load(t, "PROVIDER=http", "PROVIDER_URL="+server.URL), nil, nil)
	require.NoError(t, err)
	defer set.Close()
	require.Len(t, set.Channels, 3)
	key := uuid.New()
	receipt, err := set.Channels["PUSH"].Provider.Deliver(t.Context(), notifyq.Delivery{Key: key, Payload: []byte(`{}`)})
	require.NoError(t, err)
	require.Equal(t, key.String(), receipt.ProviderID)
}

// Load has checked all of this; what gets past it names the setting and shows nothing.
func TestBrokenSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]settings.Settings{
		"PROVIDER":     {Provider: "canary", Channels: []notifyq.Channel{"EMAIL"}},
		"SMTP_URL":     {Provider: "smtp", SMTPURL: "canary", Channels: []notifyq.Channel{"EMAIL"}},
		"SMTP_FROM":    {Provider: "smtp", SMTPURL: "smtp://h", SMTPFrom: "canary", Channels: []notifyq.Channel{"EMAIL"}},
		"PROVIDER_URL": {Provider: "http", ProviderURL: "canary", Channels: []notifyq.Channel{"EMAIL"}},
		"CHANNELS":     {Provider: "smtp", SMTPURL: "smtp://h", SMTPFrom: "a@b.example", Channels: []notifyq.Channel{"SMS"}},
	} {
		_, err := New(s, nil, nil)
		require.ErrorContains(t, err, name+": ")
		require.NotContains(t, err.Error(), "canary")
	}
	_, err := New(settings.Settings{Provider: "mock", DatabaseSchema: "no schema"}, nil, nil)
	require.Error(t, err)
}
