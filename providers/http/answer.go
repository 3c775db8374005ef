package httpprovider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/retryafter"
)

const (
	// maxAnswerBytes is how much of an answer is read. The rest costs its connection.
	maxAnswerBytes = 64 << 10
	// maxReadTime is for how long it is read once its status is known.
	maxReadTime = 2 * time.Second
)

// StatusError is an answer that is not a 2xx. It is inside the error of Deliver; errors.As finds it.
type StatusError struct {
	// Status is the status code.
	Status int
	// Code is the member "code" of a JSON object in the answer, or empty.
	Code string
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("http provider: %d", e.Status)
	if known := http.StatusText(e.Status); known != "" {
		text += " " + known
	}
	if e.Status/100 == 3 {
		text += ": a redirect, not followed"
	}
	if e.Code != "" {
		text += ": " + e.Code
	}
	return text
}

// members reads what is of interest of an answer. What is no JSON object has none of it.
func members(answer *http.Response) (found struct{ ID, Code json.RawMessage }) {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	if err != nil {
		return found
	}
	_ = json.Unmarshal(bytes.TrimSpace(body), &found)
	return found
}

// providerID is what the endpoint calls the message. To have none is no failure: the endpoint has accepted.
func providerID(answer *http.Response) string {
	id := members(answer).ID
	var text string
	var number json.Number
	switch {
	case json.Unmarshal(id, &text) == nil:
		return text
	case json.Unmarshal(id, &number) == nil:
		return number.String()
	default:
		return ""
	}
}

// refusal gives an answer that is not a 2xx its class.
func refusal(answer *http.Response, d notifyq.Delivery, now time.Time) error {
	found := &StatusError{Status: answer.StatusCode}
	if answer.StatusCode == http.StatusSwitchingProtocols { // which has no body, but the connection
		return notifyq.Ambiguous(found)
	}
	found.Code = code(members(answer).Code, d)
	switch status := answer.StatusCode; {
	case status == http.StatusTooManyRequests, status/100 == 5:
		return notifyq.RetryAfter(found, retryafter.Of(answer.Header, now))
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return notifyq.Misconfigured(found)
	case status/100 == 4, status/100 == 3:
		return notifyq.Permanent(found)
	default:
		return notifyq.Ambiguous(found)
	}
}

var codeForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.:-]{0,63}$`)

// code is the machine's word for a refusal. An endpoint that puts something of the notification there is not repeated.
func code(raw json.RawMessage, d notifyq.Delivery) string {
	var text string
	if json.Unmarshal(raw, &text) != nil || !codeForm.MatchString(text) {
		return ""
	}
	for _, personal := range []string{d.Recipient, string(d.Payload), d.Tenant} {
		if strings.Contains(personal, text) {
			return ""
		}
	}
	if d.Recipient != "" && strings.Contains(text, d.Recipient) {
		return ""
	}
	return text
}

// notSent is the outcome of an attempt that has not left. It is marked, since a worker takes an unmarked error at the end
// of its context for one of an unknown outcome.
func notSent(reason error) error {
	err := errors.New("http provider: no connection")
	if reason != nil {
		err = fmt.Errorf("http provider: no connection: %w", reason)
	}
	return notifyq.RetryAfter(err, 0)
}
