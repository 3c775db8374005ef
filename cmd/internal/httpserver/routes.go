package httpserver

import (
	"net/http"
	"path"
)

// Match is the pattern of mux that serves a request, or empty. Nothing serves a path that is not clean: the mux would
// redirect it, but a body that is sent twice is no favour.
func Match(mux *http.ServeMux, r *http.Request) string {
	if !clean(r) {
		return ""
	}
	_, pattern := mux.Handler(r)
	return pattern
}

func clean(r *http.Request) bool { return path.Clean(r.URL.Path) == r.URL.Path }

// Routes serves what mux has patterns for, and answers the rest with problems: 404, or 405 with Allow.
func Routes(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pattern := Match(mux, r); pattern != "" {
			routed(r.Context(), pattern)
			mux.ServeHTTP(w, r)
			return
		}
		refusal := statusOnly{header: http.Header{}, status: http.StatusOK}
		if clean(r) {
			mux.ServeHTTP(&refusal, r)
		}
		if refusal.status != http.StatusMethodNotAllowed {
			NotFound(w, r)
			return
		}
		w.Header()["Allow"] = refusal.header["Allow"]
		WriteProblem(w, r, Problem{
			Status: http.StatusMethodNotAllowed, Code: CodeMethodNotAllowed, Detail: "This path does not have this method.",
		})
	})
}

// statusOnly takes down how a mux refuses a request.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }
