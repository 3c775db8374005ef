// Package demo holds what shows notifyq at work and has no place in a service.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/signature"
	"github.com/notifyq/notifyq/internal/store"
)

const (
	// maxBodyBytes has room for the largest event, 1 MiB.
	maxBodyBytes = 1<<20 + 4<<10
	// tolerance is how far the clocks of sender and receiver may be apart.
	tolerance = 5 * time.Minute
	// databaseTimeout is less than senders wait for an answer.
	databaseTimeout = 5 * time.Second
	retryAfter      = "5" // seconds, while the database is away

	headerEventID = "X-Webhook-Event-Id"
)

// Receiver is an http.Handler for the POSTs of a webhook. It does what a receiver has to do: it checks the signature,
// keeps the ids of events, and answers a repeated one with a 2xx without acting on it again. It keeps no bodies.
type Receiver struct {
	pool   *pgxpool.Pool
	keys   []signature.Key
	logger *slog.Logger
	refuse func(w http.ResponseWriter, r *http.Request, status int, detail string)
	sql    statements
}

// ReceiverConfig is what NewReceiver needs beside a pool.
type ReceiverConfig struct {
	Schema string // where the table is, or will be
	// Secrets are those of the sender, one of which must have signed a request. With none everything is taken.
	Secrets []string
	Logger  *slog.Logger // nil is silent
	// Refuse writes a refusal in the form of the server that the receiver is part of. Nil: by RFC 9457.
	Refuse func(w http.ResponseWriter, r *http.Request, status int, detail string)
}

// ReceiverStats counts since the table was made.
type ReceiverStats struct {
	Events       int64 // ids
	Redeliveries int64 // requests beyond the first of an id
}

// NewReceiver touches nothing. Setup has to be called before the first request.
func NewReceiver(pool *pgxpool.Pool, cfg ReceiverConfig) (*Receiver, error) {
	if !schema.ValidName(cfg.Schema) {
		return nil, &schema.Error{Problem: schema.NameInvalid, Schema: cfg.Schema}
	}
	r := &Receiver{pool: pool, logger: cfg.Logger, refuse: cfg.Refuse, sql: render(cfg.Schema)}
	if r.refuse == nil {
		r.refuse = writeProblem
	}
	if r.logger == nil {
		r.logger = slog.New(slog.DiscardHandler)
	}
	if len(cfg.Secrets) > 0 {
		keys, err := signature.ParseSecrets(cfg.Secrets)
		if err != nil {
			return nil, fmt.Errorf("secrets %w", err)
		}
		r.keys = keys
	}
	return r, nil
}

// statements are the texts for one schema.
type statements struct{ lock, create, record, stats string }

func render(name string) statements {
	table := schema.Quote(name) + ".demo_webhook_events"
	return statements{
		// Two that find no table and create it at once would meet in the catalog, where IF NOT EXISTS does not look.
		lock: `select pg_advisory_xact_lock(hashtextextended('notifyq demo', 0))`,
		create: `create table if not exists ` + table + ` (
			event_id         uuid primary key,
			received_at      timestamptz not null default now(),
			last_received_at timestamptz not null default now(),
			redeliveries     bigint not null default 0
		)`,
		// One statement: of two requests with one id exactly one is the first, whatever else happens.
		record: `insert into ` + table + ` as e (event_id) values ($1)
			on conflict (event_id) do update set redeliveries = e.redeliveries + 1, last_received_at = now()
			returning redeliveries`,
		stats: `select count(*), coalesce(sum(redeliveries), 0)::bigint from ` + table,
	}
}

// Setup creates the table, unless it is there. The schema must exist.
func (r *Receiver) Setup(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, r.sql.lock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, r.sql.create)
		return err
	})
	if err != nil {
		return fmt.Errorf("create the demo receiver's table: %s", store.Describe(err))
	}
	return nil
}

// Stats counts what was received.
func (r *Receiver) Stats(ctx context.Context) (stats ReceiverStats, err error) {
	if err := r.pool.QueryRow(ctx, r.sql.stats).Scan(&stats.Events, &stats.Redeliveries); err != nil {
		return stats, fmt.Errorf("count the demo receiver's events: %s", store.Describe(err))
	}
	return stats, nil
}

// ServeHTTP answers 200 with {"duplicate": bool, "redeliveries": n}, or with a problem: 400, 401, 405, 413, 415, and 503
// while the database is away.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	id, refused := r.accept(w, req)
	if refused != nil {
		r.refuse(w, req, refused.status, refused.detail)
		return
	}
	redeliveries, err := r.record(req.Context(), id)
	if err != nil {
		r.logger.WarnContext(req.Context(), "demo.unavailable", "eventId", id, "error", store.Describe(err))
		w.Header().Set("Retry-After", retryAfter)
		r.refuse(w, req, http.StatusServiceUnavailable, "the event can't be stored now")
		return
	}
	r.logger.InfoContext(req.Context(), "demo.received", "eventId", id, "redeliveries", redeliveries)
	writeJSON(w, "application/json", http.StatusOK, map[string]any{"duplicate": redeliveries > 0, "redeliveries": redeliveries})
}

// accept returns the event's id, or why the request is refused.
func (r *Receiver) accept(w http.ResponseWriter, req *http.Request) (uuid.UUID, *problem) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return uuid.Nil, &problem{http.StatusMethodNotAllowed, "events are sent by POST"}
	}
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return uuid.Nil, &problem{http.StatusUnsupportedMediaType, "Content-Type must be application/json"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBodyBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return uuid.Nil, &problem{http.StatusRequestEntityTooLarge, "the body is too large"}
	case err != nil:
		return uuid.Nil, &problem{http.StatusBadRequest, "the body can't be read"}
	}
	if err := r.verify(req.Header, body); err != nil {
		return uuid.Nil, &problem{http.StatusUnauthorized, err.Error()}
	}
	if !json.Valid(body) {
		return uuid.Nil, &problem{http.StatusBadRequest, "the body must be JSON"}
	}
	return eventID(req.Header)
}

// verify does what notifyq.VerifyWebhook does; this package is below it.
func (r *Receiver) verify(header http.Header, body []byte) error {
	if r.keys == nil {
		return nil
	}
	return signature.Verify(r.keys, signature.Message{
		ID:         header.Get(signature.HeaderID),
		Timestamp:  header.Get(signature.HeaderTimestamp),
		Signatures: strings.Join(header.Values(signature.HeaderSignature), " "),
		Body:       body,
	}, time.Now(), tolerance)
}

// eventID takes the id from either header. Of the two only the first is signed, so they have to agree.
func eventID(header http.Header) (uuid.UUID, *problem) {
	signed, plain := header.Get(signature.HeaderID), header.Get(headerEventID)
	switch {
	case signed == "" && plain == "":
		return uuid.Nil, &problem{http.StatusBadRequest, "webhook-id or X-Webhook-Event-Id is required"}
	case signed == "":
		signed = plain
	case plain != "" && signed != plain:
		return uuid.Nil, &problem{http.StatusBadRequest, "webhook-id and X-Webhook-Event-Id must be equal"}
	}
	id, err := uuid.Parse(signed)
	if err != nil || len(signed) != len(id.String()) { // Parse knows spellings in braces and as URNs too
		return uuid.Nil, &problem{http.StatusBadRequest, "the event's id must be a UUID"}
	}
	return id, nil
}

func (r *Receiver) record(ctx context.Context, id uuid.UUID) (redeliveries int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	err = r.pool.QueryRow(ctx, r.sql.record, pgtype.UUID{Bytes: id, Valid: true}).Scan(&redeliveries)
	return redeliveries, err
}

// problem is a refusal. It repeats nothing of the request.
type problem struct {
	status int
	detail string
}

func writeProblem(w http.ResponseWriter, _ *http.Request, status int, detail string) {
	writeJSON(w, "application/problem+json", status, map[string]any{
		"title": http.StatusText(status), "status": status, "detail": detail,
	})
}

func writeJSON(w http.ResponseWriter, contentType string, status int, body map[string]any) {
	text, _ := json.Marshal(body) // strings, numbers and booleans
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
