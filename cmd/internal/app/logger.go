package app

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/notifyq/notifyq/internal/store"
)

// NewLogger writes JSON lines.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: redact}))
}

// redact is the net under those who log: nobody is to log a database's error or what belongs to a notification, and what
// gets here all the same does not get further.
func redact(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case "payload", "recipient", "idempotencyKey", "body", "password", "secret", "authorization":
		return slog.String(a.Key, "[redacted]")
	}
	if err, ok := a.Value.Any().(error); ok && ofDatabase(err) {
		return slog.String(a.Key, store.Describe(err))
	}
	return a
}

// ofDatabase tells errors that quote values, hosts, users, or what of a connection string could not be read.
func ofDatabase(err error) bool {
	var (
		server  *pgconn.PgError
		connect *pgconn.ConnectError
		parse   *pgconn.ParseConfigError
	)
	return errors.As(err, &server) || errors.As(err, &connect) || errors.As(err, &parse) ||
		errors.Is(err, context.DeadlineExceeded)
}
