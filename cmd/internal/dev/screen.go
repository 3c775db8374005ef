package dev

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq/cmd/internal/settings"
)

// screen is what people read.
type screen struct{ w io.Writer }

func (s screen) say(format string, args ...any) { _, _ = fmt.Fprintf(s.w, format+"\n", args...) }

// database tells which one is used, once it has let us in: parts of a URL with a slip in it can be anything. Of one that
// holds, only what names the database is shown.
func (s screen) database(at *pgx.ConnConfig, schema string) {
	s.say("DATABASE_URL is set: using database %s at %s, schema %s. What is made there stays there.", at.Database,
		net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))), schema)
}

// welcome prints lines to paste. Each is whole on its own and, without API_KEYS, ends with success.
func (s screen) welcome(set settings.Settings, base string) {
	s.say("\nnotifyq is running, with %s and %s. Try:\n", deliverer(set), receiver(set, base))
	_, _ = io.WriteString(s.w, strings.ReplaceAll(`  curl -sS BASE/notifications -H 'Content-Type: application/json' -d '{"idempotencyKey":"welcome-1","recipient":"ann@example.com","channel":"EMAIL","payload":{"subject":"Welcome"}}'
  curl -sS 'BASE/notifications?idempotencyKey=welcome-1'
  curl -sS 'BASE/notifications?status=SENT&limit=5'
  curl -sS BASE/notifications -H 'Content-Type: application/json' -d '{"idempotencyKey":"later-1","recipient":"ann@example.com","channel":"SMS","payload":{"text":"Tomorrow"},"delaySeconds":86400}'
  curl -sS BASE/metrics -H 'Accept: application/json'
  curl -sS BASE/readyz
`, "BASE", base))
	if set.Docs {
		s.say("\nThe API is described at %s/docs and %s/openapi.json. Ctrl-C stops it.\n", base, base)
	} else {
		s.say("\nCtrl-C stops it.\n")
	}
	if len(set.APIKeys) > 0 {
		s.say("API_KEYS is set: add -H 'Authorization: Bearer ...' with one of them to each line.\n")
	}
}

func deliverer(set settings.Settings) string {
	if set.Provider == settings.ProviderMock {
		return "a mock provider"
	}
	return "the " + set.Provider + " provider, which really sends,"
}

func receiver(set settings.Settings, base string) string {
	if set.WebhookURL == base+ownWebhook {
		return "a receiver of its webhook"
	}
	return "the webhook of WEBHOOK_URL"
}

// farewell promises only what is true: another's database keeps what was made, and a server that did not stop is left.
func (s screen) farewell(own bool, err error) {
	switch {
	case err != nil:
	case own:
		s.say("Stopped; nothing is left behind.")
	default:
		s.say("Stopped. What was made in the database of DATABASE_URL is still there.")
	}
}
