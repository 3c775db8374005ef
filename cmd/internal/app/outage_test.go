package app

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

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
