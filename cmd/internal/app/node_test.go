package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// One process with everything in it, as -dev runs it: its worker posts events to its own receiver.
func TestNodeWithEverythingInIt(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	base := "http://" + listener.Addr().String()
	s, err := settings.Load(append(fast(db), "DEMO=true"), settings.Options{Role: settings.RoleAPI, Dev: true})
	require.NoError(t, err)
	s.WebhookURL, s.WebhookSecrets = base+"/webhooks/mock", []string{canarySecret}
	s.WebhookAllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	out := &buffer{}
	node, err := NewNode(t.Context(), NodeConfig{
		Name: "notifyq-api", Settings: s, Logger: NewLogger(out, s.LogLevel), API: true, Worker: true,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx, listener) }()

	id := post(t, base)
	client := newClient(t, db)
	ends(t, client, id, notifyq.StatusSent)
	until(t, "the receiver has the event", func() bool { return strings.Contains(out.String(), "demo.received") })
	stop()
	require.NoError(t, <-ended)
	require.NotContains(t, strings.ToLower(out.String()), "canary")
}

// post schedules a notification over HTTP, with these headers.
func post(t *testing.T, base string, header ...string) uuid.UUID {
	t.Helper()
	body := fmt.Sprintf(`{"idempotencyKey":%q,"recipient":%q,"channel":"SMS","payload":%s}`,
		canaryKey, canaryRecipient, canaryPayload)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/notifications", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	require.Equal(t, http.StatusCreated, answer.StatusCode)
	var job struct{ ID uuid.UUID }
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&job))
	return job.ID
}

// A server that can't go on ends the worker too.
func TestNodeEndsWithItsListener(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	s, err := settings.Load(append(fast(db), "PORT=0"), settings.Options{Role: settings.RoleWorker})
	require.NoError(t, err)
	node, err := NewNode(t.Context(), NodeConfig{
		Name: "notifyq-worker", Settings: s, Logger: slog.New(slog.DiscardHandler), Worker: true,
	})
	require.NoError(t, err)
	listener, err := node.Listen(t.Context())
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	require.ErrorContains(t, node.Run(t.Context(), listener), "serve HTTP")
}

func TestPortThatIsTakenIsNamed(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	out, code := command(t, []string{"DATABASE_URL=postgres://nobody:canary@127.0.0.1:1/x", "PORT=" + port})
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "PORT: ")
	require.NotContains(t, out, "canary")
}

func TestHealthcheckAsksTheProcessNextDoor(t *testing.T) {
	t.Parallel()
	p := launch(t, settings.RoleWorker, "DATABASE_URL=postgres://nobody@127.0.0.1:1/x", "HOST=0.0.0.0")
	_, port, err := net.SplitHostPort(p.address)
	require.NoError(t, err)
	for path, want := range map[string]int{"": exitOK, "/livez": exitOK, "/readyz": exitFailed, "/health": exitFailed} {
		out, code := command(t, []string{"HOST=0.0.0.0", "PORT=" + port}, strings.Fields("healthcheck "+path)...)
		require.Equal(t, want, code, path+out)
	}
	require.Zero(t, p.end())
	require.Equal(t, "::1", Reachable("::"))
	require.Equal(t, "10.0.0.1", Reachable("10.0.0.1"))
	require.Equal(t, "localhost", Reachable("localhost"))
}

func TestLogHoldsNothingOfTheDatabaseOrANotification(t *testing.T) {
	t.Parallel()
	out := &buffer{}
	log := NewLogger(out, slog.LevelInfo)
	_, broken := pgconn.ParseConfig("postgres://nobody:canary@h:port/x")
	refused := &pgconn.PgError{Code: "23505", Message: "canary", Detail: "canary"}
	log.Info("x", "error", fmt.Errorf("wrapped: %w", refused), "parse", broken)
	inner := log.With("recipient", "canary").WithGroup("g")
	inner.Info("x", "payload", []byte("canary"), slog.Group("h", "password", "canary"))
	log.Info("x", "error", errors.New("harmless"))
	require.NotContains(t, out.String(), "canary")
	require.Contains(t, out.String(), "database error 23505")
	require.Contains(t, out.String(), "harmless")
}

func TestErrorsOfTheDatabaseAreExplained(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"28P01": "DATABASE_URL: the server refuses the user or the password (28P01)",
		"3D000": "DATABASE_URL: the database does not exist (3D000)", "42501": "the role lacks a right",
		"53300": "database error 53300",
	} {
		err := fmt.Errorf("canary: %w", &pgconn.PgError{Code: code, Message: "canary"})
		require.Contains(t, explain(err), want)
		require.NotContains(t, safe(err), "canary")
	}
	require.Equal(t, "database call timed out", explain(context.DeadlineExceeded))
	require.Contains(t, explain(&net.DNSError{Name: "canary"}), "can't be looked up")
}
