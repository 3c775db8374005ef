package api

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/httpserver"
)

// notificationBody documents what is asked for, with notificationWords. It is read by decodeNotification, which a test
// holds to it.
type notificationBody struct {
	IdempotencyKey string          `json:"idempotencyKey" minLength:"1" maxLength:"255" example:"order-1234-confirmation"`
	Recipient      string          `json:"recipient" minLength:"1" maxLength:"320" example:"ann@example.com"`
	Channel        string          `json:"channel" minLength:"1" maxLength:"64" example:"EMAIL"`
	Payload        json.RawMessage `json:"payload"`
	Priority       string          `json:"priority,omitempty" enum:"LOW,NORMAL,HIGH" default:"NORMAL"`
	SendAt         time.Time       `json:"sendAt,omitempty" example:"2030-01-31T09:30:00Z"`
	DelaySeconds   int64           `json:"delaySeconds,omitempty" minimum:"0" maximum:"31536000"`
	ExpiresAt      time.Time       `json:"expiresAt,omitempty" example:"2030-02-01T00:00:00Z"`
	MaxAttempts    int             `json:"maxAttempts,omitempty" minimum:"1" maximum:"1000"`
	OnAmbiguous    string          `json:"onAmbiguous,omitempty" enum:"retry,park"`
}

func notificationWords() map[string]string {
	return map[string]string{
		"idempotencyKey": "Names the request within the tenant: 1 to 255 bytes, not blank, without control characters, " +
			"compared byte by byte",
		"recipient": "1 to 320 bytes, not blank, without control characters; handed to the provider as it is",
		"channel":   "One of those that this API serves",
		"payload": "Any JSON value of at most 64 KiB as sent and 64 levels, handed to the provider as it is, digits of " +
			"numbers included. Never returned",
		"sendAt": "The earliest time of delivery; one in the past means now. At most 365 days ahead. Not together with " +
			"delaySeconds",
		"delaySeconds": "The same from now on, by the database's clock. Written without fraction and exponent",
		"expiresAt":    "When delivering no longer makes sense. After the earliest time of delivery",
		"maxAttempts":  "How many attempts may be made. Default: the server's",
		"onAmbiguous":  "What to do when nobody knows whether an attempt delivered. Default: the server's",
	}
}

var priorities = map[string]notifyq.Priority{
	notifyq.PriorityLow.String():    notifyq.PriorityLow,
	notifyq.PriorityNormal.String(): notifyq.PriorityNormal,
	notifyq.PriorityHigh.String():   notifyq.PriorityHigh,
}

// notificationDecoder notes what the library can't tell from a Notification: what was given at all.
type notificationDecoder struct {
	decoder
	n     notifyq.Notification
	given []string
}

// decodeNotification reads one notification, which errors call whole. Its payload is a piece of value.
func (a *api) decodeNotification(whole string, value []byte) (notifyq.Notification, []httpserver.FieldError) {
	d := notificationDecoder{decoder: decoder{
		whole: whole, required: []string{"idempotencyKey", "recipient", "channel", "payload"},
	}}
	if !d.object(value) {
		return notifyq.Notification{}, d.broken
	}
	for name, member := range members(value) {
		d.member(string(name), member)
	}
	d.complete(d.given...)
	if slices.Contains(d.given, "sendAt") && slices.Contains(d.given, "delaySeconds") {
		d.fault("delaySeconds", "must not be given together with sendAt")
	}
	if d.broken == nil && !a.serves(d.n.Channel) {
		d.fault("channel", "must be one of "+a.channelNames())
	}
	return d.n, d.broken
}

func (d *notificationDecoder) member(name string, value []byte) {
	switch name {
	case "idempotencyKey":
		d.n.IdempotencyKey = d.text(name, value)
	case "recipient":
		d.n.Recipient = d.text(name, value)
	case "channel":
		d.n.Channel = notifyq.Channel(d.text(name, value))
	case "payload":
		d.n.Payload = value
	case "priority":
		if word := d.text(name, value); value[0] == '"' {
			d.n.Priority = d.priority(name, word)
		}
	case "sendAt":
		d.n.SendAt = d.time(name, value)
	case "delaySeconds":
		d.n.Delay = d.delay(name, value)
	case "expiresAt":
		d.n.ExpiresAt = d.time(name, value)
	case "maxAttempts":
		d.n.MaxAttempts = d.count(name, value, notifyq.MaxAttemptsLimit)
	case "onAmbiguous":
		d.n.OnAmbiguous = notifyq.AmbiguousPolicy(d.filter(name, value))
	default:
		d.unknown()
		return
	}
	d.given = append(d.given, name)
}

func (d *decoder) priority(name, word string) notifyq.Priority {
	priority, ok := priorities[word]
	if !ok {
		d.fault(name, "must be LOW, NORMAL or HIGH")
	}
	return priority
}

// delay is a number of seconds, cut to what a Duration can hold: the library refuses much less.
func (d *decoder) delay(name string, value []byte) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	seconds := d.integer(name, value)
	return time.Duration(max(-most, min(seconds, most))) * time.Second
}

// serves reports whether notifications may name a channel.
func (a *api) serves(channel notifyq.Channel) bool {
	return len(a.cfg.Channels) == 0 || slices.Contains(a.cfg.Channels, channel)
}

func (a *api) channelNames() string {
	names := make([]string, len(a.cfg.Channels))
	for i, channel := range a.cfg.Channels {
		names[i] = string(channel)
	}
	return strings.Join(names, ", ")
}

// batchBody documents many at once.
type batchBody struct {
	Notifications []notificationBody `json:"notifications" nullable:"false" maxItems:"1000"`
}

// maxBatch is how many notifications one request may have.
const maxBatch = 1000

// decodeBatch splits a batch into its notifications, which are still to be read.
func decodeBatch(body []byte) ([][]byte, error) {
	d := decoder{whole: "body", required: []string{"notifications"}}
	if !d.object(body) {
		return nil, d.err()
	}
	var items [][]byte
	var given []string
	for name, value := range members(body) {
		if string(name) != "notifications" {
			d.unknown()
			continue
		}
		given = append(given, string(name))
		if d.is(value[0] == '[', "notifications", value, "must be an array") {
			items = splitBatch(&d, value)
		}
	}
	d.complete(given...)
	return items, d.err()
}

func splitBatch(d *decoder, array []byte) (items [][]byte) {
	for item := range elements(array) {
		if len(items) == maxBatch {
			d.fault("notifications", fmt.Sprintf("must be at most %d", maxBatch))
			return nil
		}
		items = append(items, item)
	}
	return items
}

// resultBody is the answer to one notification of a batch: id and replayed, or error.
type resultBody struct {
	_        struct{}         `additionalProperties:"true"`
	ID       string           `json:"id,omitempty" format:"uuid"`
	Replayed *bool            `json:"replayed,omitempty" doc:"The same request had been made before"`
	Error    *resultErrorBody `json:"error,omitempty" doc:"It was not stored"`
}

// resultErrorBody says why one was not stored, in the words of a problem.
type resultErrorBody struct {
	_      struct{}                `additionalProperties:"true"`
	Code   string                  `json:"code" example:"invalid_request"`
	Errors []httpserver.FieldError `json:"errors" nullable:"false"`
}

func refusedResult(err error) resultBody {
	f := refusalOf(err)
	return resultBody{Error: &resultErrorBody{Code: f.code, Errors: append([]httpserver.FieldError{}, f.errors...)}}
}
