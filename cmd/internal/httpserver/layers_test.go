package httpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wrapped serves one request and returns the answer and what was logged.
func wrapped(t *testing.T, h http.HandlerFunc, r *http.Request) (w *httptest.ResponseRecorder, lines []map[string]any) {
	t.Helper()
	var logs bytes.Buffer
	w = httptest.NewRecorder()
	func() {
		defer func() {
			if reason := recover(); reason != nil {
				require.Equal(t, http.ErrAbortHandler, reason)
			}
		}()
		Wrap(slog.New(slog.NewJSONHandler(&logs, nil)), h).ServeHTTP(w, r)
	}()
	for line := range strings.Lines(logs.String()) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		lines = append(lines, m)
	}
	return w, lines
}

func get(target string) *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	for given, kept := range map[string]bool{
		"abc": true, "A-b_c.9": true, strings.Repeat("x", 128): true,
		"": false, strings.Repeat("x", 129): false, "a b": false, "a\tb": false, "é": false, `a"b`: false, "a/b": false, "{}": false, "a,b": false,
	} {
		r := get("/")
		r.Header.Set("X-Request-ID", given)
		var seen string
		w, lines := wrapped(t, func(_ http.ResponseWriter, r *http.Request) { seen = RequestID(r.Context()) }, r)
		require.Equal(t, seen, w.Header().Get("X-Request-ID"))
		require.Equal(t, seen, lines[0]["requestId"])
		require.Equal(t, kept, seen == given, given)
		require.NotEmpty(t, seen)
	}
	twice := get("/")
	twice.Header["X-Request-Id"] = []string{"a", "b"}
	w, _ := wrapped(t, func(http.ResponseWriter, *http.Request) {}, twice)
	require.Len(t, w.Header().Get("X-Request-ID"), 36)
}

func TestEveryRequestIsOneLine(t *testing.T) {
	t.Parallel()
	for status, level := range map[int]string{200: "INFO", 201: "INFO", 304: "INFO", 400: "WARN", 404: "WARN", 499: "WARN", 500: "ERROR", 503: "ERROR"} {
		_, lines := wrapped(t, func(w http.ResponseWriter, r *http.Request) {
			Explain(r.Context(), "why")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(status)
		}, get("/notifications?recipient=secret"))
		require.Len(t, lines, 1)
		require.Equal(t, "http.request", lines[0]["msg"])
		require.Equal(t, level, lines[0]["level"])
		require.EqualValues(t, status, lines[0]["status"])
		require.Equal(t, "why", lines[0]["error"])
		require.Contains(t, lines[0], "durationMs")
	}
	_, lines := wrapped(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }, get("/docs"))
	require.EqualValues(t, 200, lines[0]["status"])
	_, lines = wrapped(t, func(http.ResponseWriter, *http.Request) {}, httptest.NewRequest("SECRET", "/"+strings.Repeat("a/", 1000), nil))
	require.Equal(t, "OTHER", lines[0]["method"])
}

// What stands in a path can be anything: clients put keys and addresses there by mistake.
func TestPathIsLoggedAsItsRouteWithIDs(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	for _, pattern := range []string{"GET /jobs", "GET /jobs/{id}", "GET /jobs/{id}/attempts/{number}"} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	mux.HandleFunc("GET /panics/{id}", func(http.ResponseWriter, *http.Request) { panic("x") })
	const id = "01890000-0000-7000-8000-000000000001"
	for target, path := range map[string]string{
		"/jobs": "/jobs", "/jobs?secret": "/jobs", "/jobs/" + id: "/jobs/" + id, "/jobs/" + strings.ToUpper(id[:8]) + id[8:]: "/jobs/" + id,
		"/jobs/secret": "/jobs/{id}", "/jobs/order-key-jane.doe": "/jobs/{id}", "/jobs/{" + id + "}": "/jobs/{id}",
		"/jobs/" + id + "%2Fsecret": "/jobs/{id}", "/jobs/secret%2F" + id: "/jobs/{id}",
		"/jobs/" + id + "/attempts/" + id:           "/jobs/" + id + "/attempts/" + id,
		"/jobs/" + id + "/attempts/7":               "/jobs/" + id + "/attempts/{number}",
		"/jobs/secret%2F" + id + "/attempts/secret": "/jobs/{id}/attempts/{number}",
		"/": "*", "/secret": "*", "/jobs/": "*", "//jobs": "*", "/jobs/secret/": "*", "/jobs/" + id + "/secret": "*",
	} {
		_, lines := wrapped(t, Routes(mux).ServeHTTP, get(target))
		require.Len(t, lines, 1)
		require.Equal(t, path, lines[0]["path"], target)
	}
	_, lines := wrapped(t, Routes(mux).ServeHTTP, httptest.NewRequest(http.MethodPost, "/jobs/secret", nil))
	require.Equal(t, "*", lines[0]["path"], "a method that the path does not have")
	_, lines = wrapped(t, Routes(mux).ServeHTTP, get("/panics/"+id))
	require.Equal(t, "/panics/"+id, lines[1]["path"])
}

func TestProbesAreLoggedOnlyIfTheyBreak(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/health", "/livez", "/readyz", "/metrics"} {
		_, lines := wrapped(t, func(http.ResponseWriter, *http.Request) {}, get(target))
		require.Empty(t, lines)
		_, lines = wrapped(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, get(target))
		require.Empty(t, lines)
		_, lines = wrapped(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, get(target))
		require.Len(t, lines, 1)
	}
}

func TestPanicsBecomeProblemsWithoutWhatWasPanickedWith(t *testing.T) {
	t.Parallel()
	for _, reason := range []any{"SECRET", errors.New("SECRET"), []string{"SECRET"}} {
		w, lines := wrapped(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			panic(reason)
		}, get("/"))
		require.Equal(t, http.StatusInternalServerError, w.Code)
		require.Equal(t, ContentTypeProblem, w.Header().Get("Content-Type"))
		var p Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		require.Equal(t, CodeInternal, p.Code)
		require.Len(t, lines, 2)
		require.Equal(t, "http.panic", lines[0]["msg"])
		require.Contains(t, lines[0]["stack"], "layers_test.go")
		require.EqualValues(t, 500, lines[1]["status"])
		require.NotContains(t, w.Body.String()+lines[0]["stack"].(string)+lines[0]["type"].(string), "SECRET")
	}
	_, lines := wrapped(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("begun"))
		panic("late")
	}, get("/"))
	require.Len(t, lines, 2)
	_, lines = wrapped(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, get("/"))
	require.Len(t, lines, 1)
	require.EqualValues(t, 500, lines[0]["status"])
}

func TestHandlerMayReachItsWriter(t *testing.T) {
	t.Parallel()
	w, _ := wrapped(t, func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, get("/"))
	require.True(t, w.Flushed)
}

func TestRoutesAnswerWithProblems(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a/{id}", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.PathValue("id"))) })
	mux.HandleFunc("POST /a/{id}", func(http.ResponseWriter, *http.Request) {})
	serve := func(method, target string) *httptest.ResponseRecorder {
		w, _ := wrapped(t, Routes(mux).ServeHTTP, httptest.NewRequest(method, target, nil))
		return w
	}
	require.Equal(t, "7", serve(http.MethodGet, "/a/7").Body.String())
	w := serve(http.MethodPut, "/a/7")
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, HEAD, POST", w.Header().Get("Allow"))
	for _, target := range []string{"/", "/b", "/a", "/a/", "//a/7", "/a/../a/7", "/a//7", "/a/7/", "/a/%2e%2e/7"} {
		w := serve(http.MethodGet, target)
		require.Equal(t, http.StatusNotFound, w.Code, target)
		require.Equal(t, ContentTypeProblem, w.Header().Get("Content-Type"))
		require.Empty(t, w.Header().Get("Location"))
	}
	r := httptest.NewRequest(http.MethodOptions, "/", nil)
	r.URL.Path, r.RequestURI = "*", "*"
	w, _ = wrapped(t, Routes(mux).ServeHTTP, r)
	require.Equal(t, http.StatusNotFound, w.Code)
}
