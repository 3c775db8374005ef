package app

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// openNode runs an API, with everything that it can have, in this process.
func openNode(t *testing.T, environ ...string) (base string) {
	t.Helper()
	environ = append(environ, "PORT=0", "DEMO=true", "WEBHOOK_SECRET="+canarySecret)
	s, err := settings.Load(environ, settings.Options{Role: settings.RoleAPI})
	require.NoError(t, err)
	node, err := NewNode(t.Context(), NodeConfig{
		Name: "notifyq-api", Settings: s, Logger: slog.New(slog.DiscardHandler), API: true,
	})
	require.NoError(t, err)
	listener, err := node.Listen(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return "http://" + listener.Addr().String()
}

// exchange is a request and its answer, without a kept connection.
func exchange(t *testing.T, method, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for pair := range slices.Chunk(header, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, answer.Header, string(text)
}

// paths is what the OpenAPI document says: statuses by path and method.
type paths map[string]map[string]struct{ Responses map[string]any }

func documented(t *testing.T, base string) paths {
	t.Helper()
	status, _, text := exchange(t, http.MethodGet, base+"/openapi.json", "")
	require.Equal(t, http.StatusOK, status)
	var document struct{ Paths paths }
	require.NoError(t, json.Unmarshal([]byte(text), &document))
	return document.Paths
}

// answers has a documented status, and, if it is a refusal, the one form that refusals have.
func (p paths) answers(t *testing.T, base, method, path, body string, header ...string) (status int) {
	t.Helper()
	target := strings.NewReplacer("{id}", "01890000-0000-7000-8000-000000000001", "{channel}", "EMAIL", "{name}", "x").Replace(path)
	status, got, text := exchange(t, method, base+target, body, header...)
	known := slices.Collect(maps.Keys(p[path][strings.ToLower(method)].Responses))
	require.Contains(t, known, strconv.Itoa(status), method+" "+path+text)
	probe := slices.Contains(probes(), http.MethodGet+" "+path) // whose bodies are what orchestrators know
	if status < http.StatusBadRequest || probe {
		return status
	}
	var problem map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &problem), text)
	for _, member := range []string{"type", "title", "status", "detail", "code", "errors", "requestId"} {
		require.NotNil(t, problem[member], "%s %s: no %s in %s", method, path, member, text)
	}
	require.Equal(t, "application/problem+json", got.Get("Content-Type"))
	require.Equal(t, got.Get("X-Request-Id"), problem["requestId"])
	return status
}

// What is mounted beside the API's own routes answers as the document says too, and every route is counted under its name.
func TestDocumentHoldsForTheWholeProcess(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	base := openNode(t, fast(db)...)
	document := documented(t, base)
	for path, operations := range document {
		for method := range operations {
			document.answers(t, base, strings.ToUpper(method), path, "")
		}
	}
	const receiver = "/webhooks/mock"
	for status, c := range map[int]struct{ body, kind string }{
		http.StatusUnsupportedMediaType:  {"{}", "text/plain"},
		http.StatusUnauthorized:          {"{}", "application/json"},
		http.StatusRequestEntityTooLarge: {strings.Repeat(" ", 2<<20), "application/json"},
	} {
		require.Equal(t, status, document.answers(t, base, http.MethodPost, receiver, c.body, "Content-Type", c.kind))
	}
	exchange(t, http.MethodGet, base+"/docs", "")
	exchange(t, http.MethodGet, base+"/docs/start.js", "")
	_, _, text := exchange(t, http.MethodGet, base+"/metrics", "")
	require.NotContains(t, text, `route="other"`)
	for path := range document {
		if path != "/metrics" { // this scrape is its first
			require.Contains(t, text, `route="`+path+`"`)
		}
	}
}

func TestDocumentHoldsWithoutADatabase(t *testing.T) {
	t.Parallel()
	base := openNode(t, "DATABASE_URL=postgres://nobody@127.0.0.1:1/x")
	document := documented(t, base)
	for _, path := range []string{"/health", "/readyz", "/metrics", "/notifications"} {
		status := document.answers(t, base, http.MethodGet, path, "", "Accept", "application/json")
		require.Equal(t, http.StatusServiceUnavailable, status, path)
	}
	require.Equal(t, http.StatusOK, document.answers(t, base, http.MethodGet, "/livez", ""))
}
