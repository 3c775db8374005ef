package app

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/cmd/internal/api"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// Every series is stored for weeks by who scrapes, so that somebody without a key must not be able to make many.
func TestStrangersCannotMakeManySeries(t *testing.T) {
	t.Parallel()
	s, err := settings.Load(append(fast(dbtest.New(t)), "DEMO=true", "API_KEYS=stranger-01234567:*:read"),
		settings.Options{Role: settings.RoleAPI})
	require.NoError(t, err)
	node, err := NewNode(t.Context(), NodeConfig{
		Name: "notifyq-api", Settings: s, Logger: slog.New(slog.DiscardHandler), API: true,
	})
	require.NoError(t, err)
	defer node.Close()
	ask := func(method, target string) string {
		w := httptest.NewRecorder()
		node.handler.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader("x")))
		return w.Body.String()
	}
	patterns, err := api.Patterns()
	require.NoError(t, err)
	for _, pattern := range patterns {
		path := pattern[strings.Index(pattern, "/"):]
		for _, method := range []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
			http.MethodConnect, http.MethodOptions, http.MethodTrace, "STRANGE",
		} {
			for _, target := range []string{path, path + "/", "/" + path, path + "/x", path + "?x=y"} {
				ask(method, target)
			}
		}
	}
	series := 0
	for line := range strings.Lines(ask(http.MethodGet, "/metrics")) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	require.Less(t, series, 300)
}
