// Package signature signs webhook requests and checks their signatures, by the symmetric scheme of Standard Webhooks
// 1.0.0: HMAC-SHA256 over "id.timestamp.body", in base64 behind "v1,".
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Names of the headers, spelled as the standard does.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// version is what a signature of this scheme begins with.
const version = "v1,"

// Sign returns the value of the signature header: a signature a key, in their order. The time counts in whole seconds.
func Sign(keys []Key, id string, at time.Time, body []byte) string {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(keys))
	for i, key := range keys {
		signatures[i] = version + base64.StdEncoding.EncodeToString(key.sum(id, timestamp, body))
	}
	return strings.Join(signatures, " ")
}

// Message is a request as it was received.
type Message struct {
	ID         string
	Timestamp  string
	Signatures string
	Body       []byte
}

// Verify checks that the message was signed with one of the keys, at a time that is at most tolerance before or after
// now. The error names the rule that is broken and nothing that was received.
func Verify(keys []Key, m Message, now time.Time, tolerance time.Duration) error {
	switch {
	case m.ID == "":
		return errors.New(HeaderID + " is missing")
	case m.Timestamp == "":
		return errors.New(HeaderTimestamp + " is missing")
	case m.Signatures == "":
		return errors.New(HeaderSignature + " is missing")
	case strings.Contains(m.ID, "."):
		// Else "a.1" at 2 and "a" at 1 with a body that begins with "2." are the same signed text.
		return errors.New(HeaderID + " must not contain a dot")
	}
	at, ok := parseTimestamp(m.Timestamp)
	if !ok {
		return errors.New(HeaderTimestamp + " must be whole seconds since 1970")
	}
	// The signature comes before the time: only its owner learns how far their clock is off.
	if !matches(keys, m) {
		return errors.New("no signature matches")
	}
	switch age := now.Sub(at); {
	case age > tolerance:
		return errors.New(HeaderTimestamp + " is too old")
	case age < -tolerance:
		return errors.New(HeaderTimestamp + " is too far in the future")
	}
	return nil
}

// parseTimestamp takes one spelling only. Twelve digits reach the year 33658.
func parseTimestamp(text string) (time.Time, bool) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 || len(text) > 12 || strconv.FormatInt(seconds, 10) != text {
		return time.Time{}, false
	}
	return time.Unix(seconds, 0), true
}

// matches compares every signature with every key, in a time that does not depend on where one matches.
func matches(keys []Key, m Message) bool {
	sums := make([][]byte, len(keys))
	for i, key := range keys {
		sums[i] = key.sum(m.ID, m.Timestamp, m.Body)
	}
	matched := false
	for word := range strings.FieldsSeq(m.Signatures) {
		encoded, ok := strings.CutPrefix(word, version)
		if !ok {
			continue // a scheme of today's others, or of tomorrow
		}
		got, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil {
			continue
		}
		for _, sum := range sums {
			matched = hmac.Equal(got, sum) || matched
		}
	}
	return matched
}

func (k Key) sum(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, k.raw)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}
