package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/demo"
)

const (
	canaryRecipient = "canary-recipient@example.com"
	canaryKey       = "canary-key"
	canaryPayload   = `{"text":"canary-payload"}`
	canarySecret    = "whsec_Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5LTEyMzQ=" // canary-canary-…
)

// fast are settings by which a test does not wait for a poll.
func fast(db *dbtest.DB) []string {
	return []string{
		"DATABASE_URL=" + db.URL, "DATABASE_SCHEMA=" + db.Schema, "WORKER_POLL_INTERVAL_MS=20", "LOG_LEVEL=debug",
		"BASE_RETRY_DELAY_MS=1", "MAX_RETRY_DELAY_MS=1", "WEBHOOK_POLL_INTERVAL_MS=20", "WORKER_SHUTDOWN_TIMEOUT_MS=20000",
	}
}

func newClient(t *testing.T, db *dbtest.DB) *notifyq.Client {
	client, err := notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	return client
}

func schedule(t *testing.T, client *notifyq.Client, recipient string) uuid.UUID {
	scheduled, err := client.Schedule(t.Context(), notifyq.Notification{
		IdempotencyKey: canaryKey + recipient, Recipient: recipient, Channel: notifyq.ChannelEmail, Payload: []byte(canaryPayload),
	})
	require.NoError(t, err)
	return scheduled.ID
}

func ends(t *testing.T, client *notifyq.Client, id uuid.UUID, as notifyq.Status) notifyq.Job {
	t.Helper()
	var job notifyq.Job
	until(t, "the job ends as "+string(as), func() bool {
		var err error
		job, err = client.Get(t.Context(), id)
		return err == nil && job.Status == as
	})
	return job
}

func requireNoCanary(t *testing.T, p *running) {
	t.Helper()
	for _, text := range []string{p.stdout(), p.stderr.String()} {
		require.NotContains(t, strings.ToLower(text), "canary")
		require.NotContains(t, text, strings.TrimPrefix(canarySecret, "whsec_"))
	}
}

func TestWorkerDeliversWithTheMockTellsTheWebhookAndEndsCleanly(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	receiver, err := demo.NewReceiver(db.Pool, demo.ReceiverConfig{Schema: db.Schema, Secrets: []string{canarySecret}})
	require.NoError(t, err)
	require.NoError(t, receiver.Setup(t.Context()))
	server := httptest.NewServer(receiver)
	defer server.Close()
	p := launch(t, settings.RoleWorker, append(fast(db), "WEBHOOK_URL="+server.URL+"/canary?canary=1",
		"WEBHOOK_SECRET="+canarySecret, "WEBHOOK_ALLOW_CIDRS=127.0.0.0/8", "WORKER_CONCURENCY=canary")...)
	client := newClient(t, db)
	sent, refused := schedule(t, client, canaryRecipient), schedule(t, client, "invalid-"+canaryRecipient)
	require.NotEmpty(t, ends(t, client, sent, notifyq.StatusSent).ProviderID)
	require.Equal(t, notifyq.ReasonRefused, ends(t, client, refused, notifyq.StatusFailed).Reason)
	until(t, "both events are received", func() bool {
		stats, err := receiver.Stats(t.Context())
		return err == nil && stats.Events == 2
	})

	until(t, "it is ready", func() bool { code, _ := p.get("/readyz"); return code == http.StatusOK })
	for path, want := range map[string]int{
		"/livez": 200, "/health": 200, "/metrics": 200, "/": 404, "/notifications": 404, "/docs": 404, "/openapi.json": 404,
		"/debug/pprof/": 404,
	} {
		code, body := p.get(path)
		require.Equal(t, want, code, path+body)
	}
	_, text := p.get("/metrics")
	require.Contains(t, text, `notifyq_worker_outcomes_total{outcome="sent"} 1`)
	until(t, "the counts are there", func() bool {
		_, text = p.get("/metrics", "Accept", "application/json")
		return strings.Contains(text, `"sent":1,"failed":1`)
	})

	require.Zero(t, p.end())
	require.Contains(t, p.stdout(), "process.stopped")
	require.Contains(t, p.stdout(), "job.sent")
	require.Contains(t, p.stdout(), "WORKER_CONCURENCY is no setting; is WORKER_CONCURRENCY meant?")
	requireNoCanary(t, p)
}

// The trace of a POST arrives at the provider's endpoint.
func TestTraceGoesOnOverTheQueue(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	traces := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		traces <- r.Header.Get("Traceparent")
	}))
	defer server.Close()
	api := launch(t, settings.RoleAPI, fast(db)...)
	launch(t, settings.RoleWorker, append(fast(db), "PROVIDER=http", "PROVIDER_URL="+server.URL)...)
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	post(t, "http://"+api.address, "Traceparent", trace)
	require.Equal(t, trace, <-traces)
}

func TestAPIRunsBesideWorkers(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	api := launch(t, settings.RoleAPI, append(fast(db), "DEMO=true")...)
	launch(t, settings.RoleWorker, fast(db)...)
	until(t, "it is ready", func() bool { code, _ := api.get("/readyz"); return code == http.StatusOK })
	ends(t, newClient(t, db), post(t, "http://"+api.address), notifyq.StatusSent)
	_, text := api.get("/metrics")
	require.Contains(t, text, `notifyq_http_requests_total{code="201",method="POST",route="/notifications"} 1`)
	require.Zero(t, api.end())
	requireNoCanary(t, api)
}
