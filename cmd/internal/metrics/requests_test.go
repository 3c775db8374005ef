package metrics

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// However many ids, methods and paths clients think of, the labels stay few.
func TestRequestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, Config{Source: &source{}, Routes: []string{"/notifications", "/notifications/{id}"}})
	h := m.Count(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/silent":
		default:
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "x")
		}
	}))
	for i := range 50 {
		id := uuid.NewString()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/notifications/"+id+"?canary", nil))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/canary/"+id, nil))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("CANARY"+strings.Repeat("X", i), "/notifications", nil))
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/silent", nil))
	require.Panics(t, func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/panic", nil))
	})
	require.Equal(t, 5, testutil.CollectAndCount(m.http.total))
	text := get(m, "").Body.String()
	require.NotContains(t, strings.ToLower(text), "canary")
	for _, line := range []string{
		`notifyq_http_requests_total{code="418",method="GET",route="/notifications/{id}"} 50`,
		`notifyq_http_requests_total{code="418",method="POST",route="other"} 50`,
		`notifyq_http_requests_total{code="418",method="other",route="/notifications"} 50`,
		`notifyq_http_requests_total{code="200",method="GET",route="other"} 1`,
		`notifyq_http_requests_total{code="500",method="GET",route="other"} 1`,
		`notifyq_http_request_duration_seconds_count{method="GET",route="/notifications/{id}"} 50`,
	} {
		require.Contains(t, text, line+"\n")
	}
}
