package health

import (
	"encoding/json"
	"net/http"

	"github.com/notifyq/notifyq/cmd/internal/httpserver"
)

// ServeHTTP serves /livez, /readyz and /health. It is for the routes of GET.
func (c *Checker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/livez":
		write(w, http.StatusOK, map[string]string{"status": "ok"})
	case "/readyz":
		c.ready(w, r)
	case "/health":
		c.health(w, r)
	default:
		httpserver.NotFound(w, r)
	}
}

// readiness is the body of /readyz.
type readiness struct {
	Status  string   `json:"status"` // ready or unready
	Failing []string `json:"failing"`
}

func (c *Checker) ready(w http.ResponseWriter, r *http.Request) {
	failing := c.Failing(r.Context())
	if len(failing) == 0 {
		write(w, http.StatusOK, readiness{"ready", []string{}})
		return
	}
	w.Header().Set("Retry-After", "1")
	write(w, http.StatusServiceUnavailable, readiness{"unready", failing})
}

// report is the body of /health.
type report struct {
	Status  string               `json:"status"` // ok or error
	Info    map[string]component `json:"info"`   // what is up
	Error   map[string]component `json:"error"`  // what is not
	Details map[string]component `json:"details"`
}

type component struct {
	Status string `json:"status"` // up or down
}

func (c *Checker) health(w http.ResponseWriter, r *http.Request) {
	found, _ := c.look.at(r.Context())
	if found.up {
		up := map[string]component{"database": {"up"}}
		write(w, http.StatusOK, report{"ok", up, map[string]component{}, up})
		return
	}
	down := map[string]component{"database": {"down"}}
	w.Header().Set("Retry-After", "1")
	write(w, http.StatusServiceUnavailable, report{"error", map[string]component{}, down, down})
}

func write(w http.ResponseWriter, status int, body any) {
	text, _ := json.Marshal(body) // strings and what holds them
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
