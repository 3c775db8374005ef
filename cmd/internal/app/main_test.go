package app

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/schema"
)

// buffer is written to by many.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// command runs a worker's command line and returns all that it printed.
func command(t *testing.T, environ []string, args ...string) (string, int) {
	t.Helper()
	out := &buffer{}
	p := Process{Role: settings.RoleWorker, Args: args, Environ: environ, Stdout: out, Stderr: out}
	code := p.main(t.Context())
	return out.String(), code
}

func TestMigrateTellsWhatItDid(t *testing.T) {
	t.Parallel()
	environ := []string{"DATABASE_URL=" + dbtest.NewDatabase(t), "DATABASE_SCHEMA=mine", "PORT=wrong, and not its business"}
	out, code := command(t, environ, "migrate", "status")
	require.Zero(t, code, out)
	require.Contains(t, out, "schema mine: version 0 of")
	require.Contains(t, out, "pending")
	out, code = command(t, environ, "migrate", "up")
	require.Zero(t, code, out)
	require.Contains(t, out, "schema mine: version 0 -> ")
	out, code = command(t, environ, "migrate", "up")
	require.Zero(t, code, out)
	require.Contains(t, out, "nothing to do")
	out, code = command(t, environ, "migrate", "status")
	require.Zero(t, code, out)
	require.NotContains(t, out, "pending")
	out, code = command(t, []string{"DATABASE_SCHEMA=other"}, "migrate", "sql")
	require.Zero(t, code, out)
	require.Contains(t, out, `create schema if not exists "other"`)
	require.Equal(t, schema.Version, strings.Count(out, "set version = "))
}

func TestCommandLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"-help": {0, "DATABASE_URL"}, "-h": {0, "Exit codes"}, "--help": {0, "healthcheck"}, "help": {0, "migrate up"},
		"-version": {0, "notifyq-worker "}, "--version": {0, "notifyq-worker "},
		"-dev": {2, "flag provided but not defined"}, "start": {2, "unknown command"}, "migrate": {2, "unknown command"},
		"migrate down": {2, "there are up, status and sql"}, "migrate up now": {2, "unknown command"},
		"migrate up": {2, "DATABASE_URL: is required"}, "": {2, "DATABASE_URL: is required"},
		"healthcheck /": {2, "/readyz"}, "healthcheck": {1, "no answer"},
	} {
		out, code := command(t, []string{"PORT=1"}, strings.Fields(line)...)
		require.Equal(t, want.code, code, line+": "+out)
		require.Contains(t, out, want.text, line)
	}
}

// It writes to a database that is in the environment, perhaps for something else.
func TestHelpSaysWhatDevDoesWithADatabase(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	Process{Role: settings.RoleAPI, Dev: func(context.Context, Development) error { return nil }}.usage(&out)
	require.Contains(t, out.String(), "With DATABASE_URL set, -dev works in that database")
	out.Reset()
	Process{Role: settings.RoleWorker}.usage(&out)
	require.NotContains(t, out.String(), "-dev works")
}

func TestEverySettingIsInTheHelpOnceAndWithItsDefault(t *testing.T) {
	t.Parallel()
	out, _ := command(t, nil, "-help")
	for name, fallback := range map[string]string{
		"DATABASE_URL": "-", "DATABASE_SCHEMA": "notifyq", "DATABASE_POOL_MAX": "10", "HOST": "127.0.0.1", "PORT": "3000",
		"LOG_LEVEL": "info", "API_KEYS": "-", "WORKER_CONCURRENCY": "10", "WORKER_BATCH_SIZE": "100",
		"WORKER_POLL_INTERVAL_MS": "1000", "WORKER_SHUTDOWN_TIMEOUT_MS": "10000", "JOB_VISIBILITY_TIMEOUT_SECONDS": "300",
		"RECOVERY_INTERVAL_MS": "30000", "PROVIDER_TIMEOUT_MS": "10000", "MAX_RETRIES": "3", "BASE_RETRY_DELAY_MS": "1000",
		"MAX_RETRY_DELAY_MS": "300000", "PROVIDER": "mock", "MOCK_FAILURE_RATE": "0", "SMTP_URL": "-", "SMTP_FROM": "-",
		"PROVIDER_URL": "-", "CHANNELS": "EMAIL,SMS,PUSH", "AMBIGUOUS_POLICY": "retry", "LOW_PRIORITY_SHARE": "0",
		"RATE_LIMIT_MAX": "0", "RATE_LIMIT_WINDOW_SECONDS": "3600", "WEBHOOK_URL": "-", "WEBHOOK_SECRET": "-",
		"WEBHOOK_POLL_INTERVAL_MS": "1000", "WEBHOOK_TIMEOUT_MS": "15000", "WEBHOOK_MAX_ATTEMPTS": "10",
		"WEBHOOK_ALLOW_CIDRS": "-", "RETENTION_DAYS": "0", "EVENT_RETENTION_DAYS": "0", "DEMO": "false", "DOCS": "true",
	} {
		row := regexp.MustCompile(`(?m)^  ` + name + ` +` + regexp.QuoteMeta(fallback) + `  +\S`)
		require.Len(t, row.FindAllString(out, -1), 1, name)
	}
}

// Waiting would not help.
func TestWorkerEndsIfTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	url := dbtest.NewDatabase(t)
	url = url[:strings.LastIndex(url, "/")] + "/nowhere"
	out, code := command(t, []string{"DATABASE_URL=" + url, "PORT=0"})
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "DATABASE_URL: the database does not exist (3D000)")
}
