package webhook

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/retryafter"
)

const (
	// maxDrainBytes is how much of a 2xx is read to keep its connection. Making a new one is cheaper than reading more.
	maxDrainBytes = 64 << 10
	// maxTextBytes is how much of another answer is read and kept.
	maxTextBytes = 4 << 10
)

// AnswerError is an answer that is not a 2xx. It is inside the error of Wait; errors.As finds it.
type AnswerError struct {
	// Status is the status code.
	Status int
	// Text is the beginning of the body, up to 4 KB: valid UTF-8, on one line, without control characters. What it
	// repeats of the event, the URL or the secrets is taken out.
	Text string
}

func (e *AnswerError) Error() string {
	text := fmt.Sprintf("webhook: %d", e.Status)
	if known := http.StatusText(e.Status); known != "" {
		text += " " + known
	}
	if e.Status/100 == 3 {
		text += ": a redirect, not followed"
	}
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// accepted reports whether an answer acknowledges the event, which is settled by its status.
func accepted(answer *http.Response) bool { return answer.StatusCode/100 == 2 }

// drain reads the rest of an answer, so that its connection can be used again. A longer one costs the connection.
func drain(body io.Reader) { _, _ = io.Copy(io.Discard, io.LimitReader(body, maxDrainBytes)) }

// refusal reads an answer that is not a 2xx and gives it its class.
func (p *Publisher) refusal(answer *http.Response, e notifyq.Event, now time.Time) error {
	found := &AnswerError{Status: answer.StatusCode}
	if answer.StatusCode != http.StatusSwitchingProtocols { // which has no body, but the connection
		found.Text = p.text(answer.Body, e)
	}
	var err error
	switch answer.StatusCode {
	case http.StatusGone:
		return notifyq.Gone(found)
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		err = found // the receiver behind the gateway may have accepted
	default:
		err = notifyq.Rejected(found)
	}
	if wait := retryafter.Of(answer.Header, now); wait > 0 {
		return notifyq.RetryAfter(err, wait)
	}
	return err
}

// text is what of an answer's body may be shown.
func (p *Publisher) text(body io.Reader, e notifyq.Event) string {
	raw, _ := io.ReadAll(io.LimitReader(body, maxTextBytes)) // what came before an error is better than nothing
	repeated := append([][]byte{e.Body, []byte(e.Key)}, p.private...)
	text := strings.ToValidUTF8(withoutEchoes(raw, repeated...), "\uFFFD")
	text = strings.Join(strings.Fields(text), " ")
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return '\uFFFD'
		}
		return r
	}, text)
	return cut(text, maxTextBytes) // a replacement may be longer than what it stands for
}

// cut shortens a valid text to at most maxBytes.
func cut(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	return strings.ToValidUTF8(text[:maxBytes], "")
}
