package app

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

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

// A balancer that keeps a connection open, and has said nothing on it yet.
func TestSilentConnectionDoesNotMakeADrainedWorkerFail(t *testing.T) {
	t.Parallel()
	p := launch(t, settings.RoleWorker, fast(dbtest.New(t))...)
	dialer := &net.Dialer{}
	connection, err := dialer.DialContext(t.Context(), "tcp", p.address)
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	code, _ := p.get("/livez") // which was accepted after it
	require.Equal(t, 200, code)
	require.Zero(t, p.end())
	require.Contains(t, p.stdout(), "process.probes_cut_off")
	require.Contains(t, p.stdout(), "process.stopped")
}

// An API has nothing to drain, and its port is closed first. What listens to probes alone has to be told before: preStop.
func TestAPITakesNoConnectionsOnceItIsToldToStop(t *testing.T) {
	t.Parallel()
	p := launch(t, settings.RoleAPI, fast(dbtest.New(t))...)
	dialer := &net.Dialer{}
	connection, err := dialer.DialContext(t.Context(), "tcp", p.address)
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	code, _ := p.get("/livez")
	require.Equal(t, 200, code)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM)) // the silent connection keeps it up for a while
	until(t, "the port is closed", func() bool { code, _ := p.get("/readyz"); return code == 0 })
	require.NoError(t, connection.Close())
	require.Zero(t, p.code())
}
