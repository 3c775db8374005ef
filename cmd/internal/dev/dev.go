// Package dev runs the whole system in one process, with nothing set up: a PostgreSQL of its own, the schema, the API, a
// worker with the mock provider, and the receiver of its webhook.
package dev

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/cmd/internal/app"
	"github.com/notifyq/notifyq/cmd/internal/httpserver"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/migrate"
)

// Run works until ctx ends, and leaves nothing behind. What people read goes to d.Stdout, the log to d.Stderr.
func Run(ctx context.Context, d app.Development) (err error) {
	s := d.Settings
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(d.Stdout, format+"\n", args...) }
	// The port first: if it is taken, there is no need to start a database.
	listener, err := httpserver.Listen(ctx, net.JoinHostPort(s.Host, strconv.Itoa(s.Port)))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // by the node otherwise
	if s.DatabaseURL == "" {
		say("Starting PostgreSQL ...")
	}
	db, err := openDatabase(ctx, s.DatabaseURL)
	if err != nil {
		return stopped(ctx, err)
	}
	defer func() { err = errors.Join(err, db.Stop()) }()
	s.DatabaseURL = db.URL()
	if err := migrated(ctx, s); err != nil {
		return stopped(ctx, err)
	}
	base := "http://" + listener.Addr().String()
	receive(&s, base)
	node, err := app.NewNode(ctx, app.NodeConfig{
		Name: "notifyq-api", Settings: s, Logger: app.NewLogger(d.Stderr, s.LogLevel), API: true, Worker: true,
	})
	if err != nil {
		return err
	}
	welcome(d.Stdout, base)
	if len(s.APIKeys) > 0 {
		say("API_KEYS is set: add -H 'Authorization: Bearer ...' with one of them to each line.\n")
	}
	err = node.Run(ctx, listener)
	say("Stopped; nothing is left behind.")
	return err
}

// stopped is nil for an error that Ctrl-C made.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func migrated(ctx context.Context, s settings.Settings) error {
	pool, err := pgxpool.New(ctx, s.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = migrate.Up(ctx, pool, migrate.Options{Schema: s.DatabaseSchema})
	return err
}

// receive lets the process be the receiver of its own webhook, unless another one is set.
func receive(s *settings.Settings, base string) {
	s.Demo = true
	if s.WebhookURL != "" {
		return
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	s.WebhookURL = base + "/webhooks/mock"
	s.WebhookSecrets = []string{"whsec_" + base64.StdEncoding.EncodeToString(secret)}
	s.WebhookAllowCIDRs = append(s.WebhookAllowCIDRs, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
}

// welcome prints lines to paste. Each is whole on its own and, without API_KEYS, ends with success.
func welcome(w io.Writer, base string) {
	_, _ = io.WriteString(w, strings.ReplaceAll(`
notifyq is running, with a mock provider and a receiver of its webhook. Try:

  curl -sS BASE/notifications -H 'Content-Type: application/json' -d '{"idempotencyKey":"welcome-1","recipient":"ann@example.com","channel":"EMAIL","payload":{"subject":"Welcome"}}'
  curl -sS 'BASE/notifications?idempotencyKey=welcome-1'
  curl -sS 'BASE/notifications?status=SENT&limit=5'
  curl -sS BASE/notifications -H 'Content-Type: application/json' -d '{"idempotencyKey":"later-1","recipient":"ann@example.com","channel":"SMS","payload":{"text":"Tomorrow"},"delaySeconds":86400}'
  curl -sS BASE/metrics -H 'Accept: application/json'
  curl -sS BASE/readyz

The API is described at BASE/docs and BASE/openapi.json. Ctrl-C stops it.

`, "BASE", base))
}
