package dev

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/app"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const patience = 30 * time.Second

// output is written by what runs and read by a test.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// running is a -dev at work.
type running struct {
	screen, log output
	stop        context.CancelFunc
	ended       chan error
}

// run starts -dev on a test's database.
func run(t *testing.T, db *dbtest.DB, environ ...string) *running {
	t.Helper()
	s, err := settings.Load(append([]string{
		"DATABASE_URL=" + db.URL, "DATABASE_SCHEMA=" + db.Schema, "PORT=0", "WORKER_POLL_INTERVAL_MS=20", "WEBHOOK_POLL_INTERVAL_MS=20",
	}, environ...), settings.Options{Role: settings.RoleAPI, Dev: true})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, ended: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- Run(ctx, app.Development{Settings: s, Stdout: &r.screen, Stderr: &r.log})
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return r
}

func (r *running) end(t *testing.T) error {
	t.Helper()
	r.stop()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(patience):
		t.Fatal("it does not end")
		return nil
	}
}

// shows waits for something on the screen, or in the log.
func (r *running) shows(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(r.screen.String()+r.log.String(), text) }, patience,
		5*time.Millisecond, text)
}

func newClient(t *testing.T, db *dbtest.DB) *notifyq.Client {
	t.Helper()
	client, err := notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	return client
}

func schedule(t *testing.T, db *dbtest.DB) notifyq.Job {
	t.Helper()
	made, err := newClient(t, db).Schedule(t.Context(), notifyq.Notification{
		IdempotencyKey: "k", Recipient: "ann@example.com", Channel: notifyq.ChannelEmail, Payload: []byte(`1`),
	})
	require.NoError(t, err)
	return made.Job
}

// The mock provider would mark as sent what nobody got.
func TestWorkOfAnotherSystemIsNotTouched(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	job := schedule(t, db)
	r := run(t, db)
	select {
	case err := <-r.ended:
		require.ErrorContains(t, err, "DATABASE_URL: ")
		require.ErrorContains(t, err, db.Schema)
	case <-time.After(patience):
		t.Fatal("it works on it")
	}
	job, err := newClient(t, db).Get(t.Context(), job.ID)
	require.NoError(t, err)
	require.Equal(t, notifyq.StatusPending, job.Status)
	require.Zero(t, job.AttemptCount)
	require.NotContains(t, r.screen.String(), "nothing is left")
}

func TestDatabaseThatIsGivenIsNamedAndKept(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	r := run(t, db)
	r.shows(t, "notifyq is running, with a mock provider and a receiver of its webhook.")
	at := db.Pool.Config().ConnConfig
	require.Contains(t, r.screen.String(), "database "+at.Database+" at ")
	require.Contains(t, r.screen.String(), "schema "+db.Schema)
	require.NotContains(t, r.screen.String(), at.Password)
	require.NoError(t, r.end(t))
	require.Contains(t, r.screen.String(), "still there")
	require.NotContains(t, r.screen.String(), "nothing is left")

	job := schedule(t, db) // what a run left unfinished, the next one finishes
	again := run(t, db)
	again.shows(t, "notifyq is running")
	require.Eventually(t, func() bool {
		got, err := newClient(t, db).Get(t.Context(), job.ID)
		return err == nil && got.Status == notifyq.StatusSent
	}, patience, 5*time.Millisecond)
	require.NoError(t, again.end(t))
}

func TestEveryAddressIncludesItsOwn(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	const key = "dev-key-0123456789"
	r := run(t, db, "HOST=0.0.0.0", "API_KEYS="+key+":*:schedule+read+operate")
	r.shows(t, "/readyz")
	_, rest, _ := strings.Cut(r.screen.String(), "curl -sS ")
	base, _, _ := strings.Cut(rest, "/notifications")
	require.True(t, strings.HasPrefix(base, "http://127.0.0.1:"), base)
	body := `{"idempotencyKey":"k","recipient":"ann@example.com","channel":"EMAIL","payload":1}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/notifications", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusCreated, answer.StatusCode)
	r.shows(t, "demo.received") // over its own webhook
	require.NoError(t, r.end(t))
}

func TestOwnAddressCanBeCalled(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"127.0.0.1", "127.0.0.1:3000", "127.0.0.1:3000"},
		{"localhost", "127.0.0.1:3000", "127.0.0.1:3000"},
		{"0.0.0.0", "[::]:3000", "127.0.0.1:3000"},
		{"0.0.0.0", "0.0.0.0:3000", "127.0.0.1:3000"},
		{"::", "[::]:3000", "[::1]:3000"},
		{"every.example", "[::]:3000", "[::1]:3000"},
		{"10.1.2.3", "10.1.2.3:80", "10.1.2.3:80"},
		{"::1", "[::1]:80", "[::1]:80"},
	} {
		at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c[1]))
		require.Equal(t, c[2], ownAddress(c[0], at).String(), c)
	}
}

func TestScreenSaysWhatIsTrue(t *testing.T) {
	t.Parallel()
	const base = "http://127.0.0.1:3000"
	var w bytes.Buffer
	screen{&w}.welcome(settings.Settings{Provider: settings.ProviderSMTP, WebhookURL: "https://shop.example/hook"}, base)
	require.Contains(t, w.String(), "with the smtp provider, which really sends, and the webhook of WEBHOOK_URL.")
	require.NotContains(t, w.String(), "mock")
	require.NotContains(t, w.String(), "/docs")
	require.NotContains(t, w.String(), "shop.example")

	for text, how := range map[string]struct {
		own bool
		err error
	}{"nothing is left behind": {own: true}, "still there": {}, "": {own: true, err: errors.New("stuck")}} {
		w.Reset()
		screen{&w}.farewell(how.own, how.err)
		require.Contains(t, w.String(), text)
		require.Equal(t, text == "", w.Len() == 0)
	}
}
