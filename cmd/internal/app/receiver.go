package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/cmd/internal/httpserver"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/demo"
)

// receiver makes the demo receiver's table with the first request for which there is a database.
type receiver struct {
	*demo.Receiver
	log   *slog.Logger
	ready atomic.Bool
}

func newReceiver(s settings.Settings, pool *pgxpool.Pool, log *slog.Logger) (http.Handler, error) {
	made, err := demo.NewReceiver(pool, demo.ReceiverConfig{
		Schema: s.DatabaseSchema, Secrets: s.WebhookSecrets, Logger: log, Refuse: refuseEvent,
	})
	if err != nil {
		return nil, fmt.Errorf("DEMO: %w", err)
	}
	return &receiver{Receiver: made, log: log}, nil
}

// refuseEvent gives the receiver's refusals the form, and the codes, of the API's.
func refuseEvent(w http.ResponseWriter, r *http.Request, status int, detail string) {
	code := "invalid_request"
	switch status {
	case http.StatusUnauthorized:
		code = "unauthorized"
	case http.StatusRequestEntityTooLarge:
		code = "body_too_large"
	case http.StatusUnsupportedMediaType:
		code = "unsupported_media_type"
	case http.StatusServiceUnavailable:
		code = "database_unavailable"
	}
	httpserver.WriteProblem(w, r, httpserver.Problem{Status: status, Code: code, Detail: detail})
}

// ServeHTTP leaves the answer to the receiver, which has a 503 for a table that is not there.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !r.ready.Load() {
		if err := r.Setup(req.Context()); err != nil {
			r.log.WarnContext(req.Context(), "demo.setup_failed", "error", err)
		} else {
			r.ready.Store(true)
		}
	}
	r.Receiver.ServeHTTP(w, req)
}
