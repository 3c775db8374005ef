package app

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
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

// gateway is an endpoint of the http provider that holds deliveries until it is told to answer.
func gateway(t *testing.T) (url string, arrived <-chan string, answer func()) {
	bodies, release := make(chan string, 10), make(chan struct{})
	released := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"gateway-1"}`)
	}))
	answer = func() {
		if !released {
			released = true
			close(release)
		}
	}
	t.Cleanup(func() {
		answer()
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + "/canary", bodies, answer
}

func TestWorkerDrainsWhileProbesAreAnswered(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	url, arrived, answer := gateway(t)
	p := launch(t, settings.RoleWorker, append(fast(db), "PROVIDER=http", "PROVIDER_URL="+url)...)
	client := newClient(t, db)
	id := schedule(t, client, canaryRecipient)
	require.Contains(t, <-arrived, canaryPayload)
	until(t, "it is ready", func() bool { code, _ := p.get("/readyz"); return code == http.StatusOK })

	stopping := p.waiter("process.stopping")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.await(stopping, "process.stopping")
	code, body := p.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "draining")
	for _, path := range []string{"/livez", "/health", "/metrics"} {
		code, _ = p.get(path)
		require.Equal(t, http.StatusOK, code, path)
	}
	answer()
	require.Zero(t, p.code())
	require.Equal(t, "gateway-1", ends(t, client, id, notifyq.StatusSent).ProviderID)
	requireNoCanary(t, p)
}

func TestSecondSignalEndsItAtOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	url, arrived, _ := gateway(t)
	p := launch(t, settings.RoleWorker, append(fast(db), "PROVIDER=http", "PROVIDER_URL="+url)...)
	schedule(t, newClient(t, db), canaryRecipient)
	<-arrived
	until(t, "it has ended", func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.exited:
			return true
		default:
			return false
		}
	})
	require.Equal(t, -1, p.code(), "by the signal")
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

func TestWorkerThatDoesNotDrainInTimeFails(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	url, arrived, _ := gateway(t)
	p := launch(t, settings.RoleWorker, append(fast(db), "PROVIDER=http", "PROVIDER_URL="+url, "WORKER_SHUTDOWN_TIMEOUT_MS=1")...)
	schedule(t, newClient(t, db), canaryRecipient)
	<-arrived
	require.Equal(t, exitFailed, p.end())
	require.Contains(t, p.stderr.String(), "not drained in time")
	requireNoCanary(t, p)
}

// Started before the migration, as in a deployment that starts everything at once.
func TestWorkerWaitsForItsSchema(t *testing.T) {
	t.Parallel()
	url := dbtest.NewDatabase(t)
	environ := []string{"DATABASE_URL=" + url, "WORKER_POLL_INTERVAL_MS=20"}
	p := launch(t, settings.RoleWorker, environ...)
	var code int
	var body string
	until(t, "it says what is missing", func() bool {
		code, body = p.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "schema")
	})
	code, _ = p.get("/health")
	require.Equal(t, http.StatusOK, code)
	until(t, "it says what to do", func() bool {
		return strings.Contains(p.stdout(), `"worker.schema_unfit"`) && strings.Contains(p.stdout(), "notifyq-worker migrate up")
	})

	out, code := command(t, environ, "migrate", "up")
	require.Zero(t, code, out)
	until(t, "it is ready", func() bool { code, _ := p.get("/readyz"); return code == http.StatusOK })
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{})
	require.NoError(t, err)
	ends(t, client, schedule(t, client, canaryRecipient), notifyq.StatusSent)
	require.Zero(t, p.end())
}

func TestWorkerOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	db := server.New(t)
	p := launch(t, settings.RoleWorker, fast(db)...)
	ready := func() bool { code, _ := p.get("/readyz"); return code == http.StatusOK }
	until(t, "it is ready", ready)
	until(t, "it has a sample", func() bool {
		code, _ := p.get("/metrics", "Accept", "application/json")
		return code == http.StatusOK
	})
	server.Stop(t)
	until(t, "it is not ready", func() bool { return !ready() })
	code, body := p.get("/health")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, `"error":{"database":{"status":"down"}}`)
	code, _ = p.get("/livez")
	require.Equal(t, http.StatusOK, code)
	code, body = p.get("/metrics", "Accept", "application/json")
	require.Equal(t, http.StatusOK, code, "the last values")
	require.True(t, json.Valid([]byte(body)))
	server.Restart(t)
	until(t, "it is ready again", ready)
	db.Pool.Reset()
	client := newClient(t, db)
	ends(t, client, schedule(t, client, canaryRecipient), notifyq.StatusSent)
	require.Zero(t, p.end())
	requireNoCanary(t, p)
}

// Started before its database, as after a power cut.
func TestAPIWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	db := server.New(t)
	server.Stop(t)
	p := launch(t, settings.RoleAPI, fast(db)...)
	code, body := p.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "database")
	code, _ = p.get("/notifications/" + uuid.NewString())
	require.Equal(t, http.StatusServiceUnavailable, code)
	server.Restart(t)
	until(t, "it is ready", func() bool { code, _ := p.get("/readyz"); return code == http.StatusOK })
	post(t, "http://"+p.address)
	require.Zero(t, p.end())
	requireNoCanary(t, p)
}

// A database that is away must not keep a process from ending.
func TestWorkerEndsWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	p := launch(t, settings.RoleWorker, "DATABASE_URL=postgres://canary:canary@127.0.0.1:1/canary")
	code, body := p.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "database")
	require.Zero(t, p.end())
	requireNoCanary(t, p)
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
