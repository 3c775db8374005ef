package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/app"
	"github.com/notifyq/notifyq/cmd/internal/dev"
	"github.com/notifyq/notifyq/cmd/internal/metrics"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// screen is all that a process prints. It calls told with each line of the log.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	told func(msg, address string)
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	_, _ = s.text.Write(p)
	s.mu.Unlock()
	var line struct{ Msg, Address string }
	if s.told != nil && json.Unmarshal(p, &line) == nil {
		s.told(line.Msg, line.Address)
	}
	return len(p), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// run runs a binary with a command line until it ends, or until it has found that there is no such database.
func run(t *testing.T, role settings.Role, environ []string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &screen{}
	var asked sync.WaitGroup
	out.told = func(msg, address string) {
		switch msg {
		case "process.started":
			asked.Go(func() { ask(ctx, address) })
		case "worker.database_away", "demo.setup_failed", "demo.unavailable":
			cancel()
		}
	}
	p := app.Process{Role: role, Args: args, Environ: environ, Stdout: out, Stderr: out}
	if role == settings.RoleAPI {
		p.Dev = dev.Run
	}
	code := p.Run(ctx)
	cancel()
	asked.Wait()
	return out.String(), code
}

// ask makes an API look for its database in all the ways that it has. The last one ends it: see run.
func ask(ctx context.Context, address string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	for _, target := range []string{
		"GET /readyz", "GET /metrics", "GET /notifications", "GET /webhook-endpoints", "POST /webhooks/mock",
	} {
		method, path, _ := strings.Cut(target, " ")
		r, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader("{}"))
		if err != nil {
			return
		}
		r.Header.Set("Accept", "application/json")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Webhook-Id", "01890000-0000-7000-8000-000000000001")
		if method == http.MethodGet {
			r.Body = http.NoBody
		}
		if answer, err := client.Do(r); err == nil {
			_ = answer.Body.Close()
		}
	}
}

// Every form in which a password comes, right and wrong, and every process and command that connects.
func TestNoFormOfDatabaseURLIsEverPrinted(t *testing.T) {
	t.Parallel()
	server := strings.Replace(dbtest.NewDatabase(t), "postgres://", "", 1)
	_, place, _ := strings.Cut(server, "@")
	hostPort, _, _ := strings.Cut(place, "/")
	host, port, _ := strings.Cut(hostPort, ":")
	for _, url := range []string{
		"postgres://nobody:canary@" + hostPort + "/nowhere",
		"postgresql://nobody:canary%40canary@127.0.0.1:1/nowhere",
		"postgres://127.0.0.1:1/nowhere?user=nobody&password=canary",
		"postgres://nobody:canary@127.0.0.1:1,127.0.0.1:2/nowhere",
		"host=127.0.0.1 port=1 user=nobody password=canary dbname=nowhere",
		"host=" + host + " port=" + port + " user=nobody password='canary canary' dbname=nowhere",
		"host=127.0.0.1 port=1 password=canary sslmode=canary",
		"host=127.0.0.1 port=1 password='canary",
		"postgres://nobody:can ary@canary:1/nowhere",
		"postgres://nobody:canary%zz@127.0.0.1:1/nowhere",
		"postgres://nobody:canary@127.0.0.1:canary/nowhere",
		"postgres://nobody:canary#canary@127.0.0.1:1/nowhere",
		"postgres://nobody:canary@127.0.0.1:1/nowhere?sslmode=canary",
		"postgres://nobody:canary@127.0.0.1:1/nowhere?sslrootcert=/canary",
		"postgres://nobody:canary@127.0.0.1:1/nowhere?pool_max_conns=canary",
		"mysql://nobody:canary@127.0.0.1:1/nowhere",
		"canary",
	} {
		environ := []string{"DATABASE_URL=" + url, "PORT=0", "LOG_LEVEL=debug", "DEMO=true"}
		for _, c := range []struct {
			role settings.Role
			args string
		}{
			{settings.RoleWorker, "migrate up"},
			{settings.RoleWorker, "migrate status"},
			{settings.RoleWorker, ""}, // wrong settings, a refusal, or an end in good order
			{settings.RoleAPI, ""},
			{settings.RoleAPI, "-dev"},
		} {
			out, code := run(t, c.role, environ, strings.Fields(c.args)...)
			require.NotEmpty(t, out, url)
			for _, word := range []string{"canary", "nobody", "nowhere"} { // errors of connections hold users and databases too
				require.NotContains(t, out, word, "%s %s %s", c.role, c.args, url)
			}
			require.True(t, c.args == "" || code != 0, "%s: %s", c.args, url)
		}
	}
}

// refused is a source of metrics whose database quotes values.
type refused struct{}

func (refused) Stats(context.Context) (notifyq.Stats, error) {
	return notifyq.Stats{}, fmt.Errorf("stats: %w", &pgconn.PgError{Code: "23505", Message: "canary", Detail: "canary"})
}

// The logger takes out the server's words, which it can only if it gets an error and not its text.
func TestSampleThatFailsIsLoggedWithoutTheServersWords(t *testing.T) {
	t.Parallel()
	out := &screen{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out.told = func(msg, _ string) {
		if msg == "metrics.sample_failed" {
			cancel()
		}
	}
	m, err := metrics.New(metrics.Config{Source: refused{}, Logger: app.NewLogger(out, slog.LevelDebug)})
	require.NoError(t, err)
	m.Run(ctx)
	require.Contains(t, out.String(), "database error 23505")
	require.NotContains(t, out.String(), "canary")
}
