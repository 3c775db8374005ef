package app

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

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
	made, err := demo.NewReceiver(pool, demo.ReceiverConfig{Schema: s.DatabaseSchema, Secrets: s.WebhookSecrets, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("DEMO: %w", err)
	}
	return &receiver{Receiver: made, log: log}, nil
}

// ServeHTTP leaves the answer to the receiver, which has a 503 for a table that is not there.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !r.ready.Load() {
		if err := r.Setup(req.Context()); err != nil {
			r.log.WarnContext(req.Context(), "demo.setup_failed", "error", err.Error())
		} else {
			r.ready.Store(true)
		}
	}
	r.Receiver.ServeHTTP(w, req)
}
