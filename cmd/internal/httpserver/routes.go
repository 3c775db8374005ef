package httpserver

import (
	"net/http"
	"path"
)

// Routes serves what mux has patterns for, and answers the rest with problems: 404, or 405 with Allow. A path that is
// not clean is a 404 too. The mux would redirect it, but a body that is sent twice is no favour.
func Routes(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Clean(r.URL.Path) != r.URL.Path {
			NotFound(w, r)
			return
		}
		handler, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r) // which, unlike handler, sets the path's values
			return
		}
		refusal := statusOnly{header: http.Header{}, status: http.StatusOK}
		handler.ServeHTTP(&refusal, r)
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
