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
	m := newMetrics(t, Config{
		Source: &source{}, Routes: []string{"GET /notifications", "POST /notifications", "GET /notifications/{id}", "GET /panic"},
	})
	h := m.Count(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/notifications":
		default:
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "x")
		}
	}))
	ask := func(method, target string) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, target, nil))
	}
	for i := range 50 {
		id := uuid.NewString()
		ask(http.MethodGet, "/notifications/"+id+"?canary")
		ask(http.MethodPost, "/canary/"+id)
		ask(http.MethodPut, "/notifications/"+id)
		ask("CANARY"+strings.Repeat("X", i), "/notifications/"+id)
		ask(http.MethodGet, "//notifications/"+id)
	}
	ask(http.MethodPost, "/notifications")
	ask(http.MethodHead, "/notifications")
	require.Panics(t, func() { ask(http.MethodGet, "/panic") })
	require.Equal(t, 5, testutil.CollectAndCount(m.http.total))
	require.Equal(t, 3, testutil.CollectAndCount(m.http.duration), "none of what was refused")
	text := get(m, "").Body.String()
	require.NotContains(t, strings.ToLower(text), "canary")
	for _, line := range []string{
		`notifyq_http_requests_total{code="418",method="GET",route="/notifications/{id}"} 50`,
		`notifyq_http_requests_total{code="418",method="other",route="other"} 200`,
		`notifyq_http_requests_total{code="200",method="POST",route="/notifications"} 1`,
		`notifyq_http_requests_total{code="200",method="GET",route="/notifications"} 1`,
		`notifyq_http_requests_total{code="500",method="GET",route="/panic"} 1`,
		`notifyq_http_request_duration_seconds_count{method="POST",route="/notifications"} 1`,
	} {
		require.Contains(t, text, line+"\n")
	}
}

func TestRoutesAreCountedByMethodToo(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Source: &source{}, Routes: []string{"/notifications"}})
	require.ErrorContains(t, err, "Routes")
}
