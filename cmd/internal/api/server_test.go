package api

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
	"github.com/notifyq/notifyq/cmd/internal/httpserver"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// server is an API on a real socket over a database of the test's own.
type server struct {
	db     *dbtest.DB
	client *notifyq.Client
	logs   *logs
	url    string
	http   *http.Client
}

// logs is what was logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func serve(t *testing.T, change func(*Config)) *server {
	t.Helper()
	return serveOn(t, dbtest.New(t), change)
}

func serveOn(t *testing.T, db *dbtest.DB, change func(*Config)) *server {
	t.Helper()
	s := &server{db: db, logs: &logs{}}
	logger := slog.New(slog.NewJSONHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	s.client, err = notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema, Logger: logger})
	require.NoError(t, err)
	cfg := Config{
		Client: s.client, Docs: true, Logger: logger,
		Channels: []notifyq.Channel{notifyq.ChannelEmail, notifyq.ChannelSMS, notifyq.ChannelPush},
	}
	if change != nil {
		change(&cfg)
	}
	handler, err := New(cfg)
	require.NoError(t, err)
	listening := httptest.NewServer(handler)
	t.Cleanup(listening.Close)
	s.url, s.http = listening.URL, listening.Client()
	return s
}

// answered is an answer read to its end.
type answered struct {
	status int
	header http.Header
	body   string
}

// do sends a request. Headers are name and value by turns; a body is JSON unless they say otherwise.
func (s *server) do(t *testing.T, method, target, body string, headers ...string) answered {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+target, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		if pair[1] == "" {
			r.Header.Del(pair[0])
			continue
		}
		r.Header.Set(pair[0], pair[1])
	}
	return s.send(t, r)
}

func (s *server) send(t *testing.T, r *http.Request) answered {
	t.Helper()
	response, err := s.http.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return answered{response.StatusCode, response.Header, string(b)}
}

func (s *server) get(t *testing.T, target string, headers ...string) answered {
	t.Helper()
	return s.do(t, http.MethodGet, target, "", headers...)
}

func (s *server) post(t *testing.T, target, body string, headers ...string) answered {
	t.Helper()
	return s.do(t, http.MethodPost, target, body, headers...)
}

// schedule makes a job and returns it.
func (s *server) schedule(t *testing.T, body string, headers ...string) map[string]any {
	t.Helper()
	a := s.post(t, "/notifications", body, headers...)
	require.Equal(t, http.StatusCreated, a.status, a.body)
	return a.object(t)
}

// stored counts what there is.
func (s *server) stored(t *testing.T) (count int) {
	t.Helper()
	require.NoError(t, s.db.Pool.QueryRow(t.Context(), "select count(*) from "+s.db.Schema+".notifications").Scan(&count))
	return count
}

func (a answered) object(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &object), a.body)
	return object
}

// requireProblem fails unless the answer is a problem of the form that all have.
func (a answered) requireProblem(t *testing.T, status int, code string) httpserver.Problem {
	t.Helper()
	require.Equal(t, status, a.status, a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	keys := slices.Sorted(maps.Keys(a.object(t)))
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == "currentStatus" })
	require.Equal(t, []string{"code", "detail", "errors", "requestId", "status", "title", "type"}, keys)
	var p httpserver.Problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	require.Equal(t, status, p.Status)
	require.Equal(t, code, p.Code, a.body)
	require.Equal(t, http.StatusText(status), p.Title)
	require.NotEmpty(t, p.Detail)
	require.NotEmpty(t, p.RequestID)
	require.Equal(t, a.header.Get("X-Request-ID"), p.RequestID)
	return p
}

// requireFault fails unless the answer is a 400 about one field.
func (a answered) requireFault(t *testing.T, field string) {
	t.Helper()
	require.Equal(t, http.StatusBadRequest, a.status, a.body)
	p := a.requireProblem(t, http.StatusBadRequest, a.object(t)["code"].(string))
	require.Len(t, p.Errors, 1, a.body)
	require.Equal(t, field, p.Errors[0].Field, a.body)
	require.NotEmpty(t, p.Errors[0].Rule)
}

// body is a valid notification with members changed: a value of raw JSON, or nothing to leave it out.
func body(changes ...string) string {
	members := map[string]string{
		"idempotencyKey": `"k"`, "recipient": `"u@example.test"`, "channel": `"EMAIL"`, "payload": `{"t":1}`,
	}
	order := []string{"idempotencyKey", "recipient", "channel", "payload"}
	for pair := range slices.Chunk(changes, 2) {
		if _, known := members[pair[0]]; !known {
			order = append(order, pair[0])
		}
		members[pair[0]] = pair[1]
	}
	var parts []string
	for _, name := range order {
		if members[name] != "" {
			parts = append(parts, `"`+name+`":`+members[name])
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func keys(t *testing.T, text string) func(*Config) {
	t.Helper()
	parsed, err := auth.ParseKeys(text)
	require.NoError(t, err)
	return func(c *Config) { c.Keys = parsed }
}
