package notifyq

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/notifyq/notifyq/internal/strictjson"
)

// check.go holds the rules for what comes from outside. Each names the field and the rule, never the value.

// checkText is for texts that become keys, headers or log-safe names: valid UTF-8 without control characters, line
// separators or characters that turn the direction of a line.
func checkText(field, value string, maxBytes int) error {
	switch {
	case len(value) > maxBytes:
		return invalid(field, fmt.Sprintf("must be at most %d bytes", maxBytes))
	case !utf8.ValidString(value):
		return invalid(field, "must be valid UTF-8")
	}
	for _, r := range value {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return invalid(field, "must not contain control characters")
		}
	}
	return nil
}

// checkName is checkText for something that must be there.
func checkName(field, value string, maxBytes int) error {
	if err := checkText(field, value, maxBytes); err != nil {
		return err
	}
	blank := strings.IndexFunc(value, func(r rune) bool {
		return !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r)
	}) < 0
	if blank {
		return invalid(field, "must not be empty or blank")
	}
	return nil
}

func checkChannel(field string, c Channel) error {
	letter := func(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }
	if len(c) == 0 || len(c) > MaxChannelBytes || !letter(c[0]) {
		return invalid(field, "must be 1 to 64 letters, digits, '_', '.' and '-', and start with a letter")
	}
	for i := range len(c) {
		b := c[i]
		if !letter(b) && (b < '0' || b > '9') && b != '_' && b != '.' && b != '-' {
			return invalid(field, "must be 1 to 64 letters, digits, '_', '.' and '-', and start with a letter")
		}
	}
	return nil
}

func checkPayload(payload []byte) error {
	if len(payload) == 0 {
		return invalid("Payload", "must be a JSON value")
	}
	err := strictjson.Check(payload, strictjson.Limits{MaxBytes: MaxPayloadBytes, MaxDepth: MaxPayloadDepth})
	var broken *strictjson.Error
	if errors.As(err, &broken) {
		return invalid("Payload", broken.Rule)
	}
	return err
}

// checkTime refuses what RFC 3339 can't hold as it is stored: rounding may lead into another year.
func checkTime(field string, t time.Time) error {
	if year := wholeMicros(t).Year(); year < 1 || year > 9999 {
		return invalid(field, "must be between the years 1 and 9999")
	}
	return nil
}

func checkDuration(field string, d, least, most time.Duration) error {
	if d < least || d > most {
		return invalid(field, fmt.Sprintf("must be between %v and %v", least, most))
	}
	return nil
}

func checkOperation(op Operation) error {
	if err := checkText("Actor", op.Actor, 255); err != nil {
		return err
	}
	return checkText("Reason", op.Reason, 255)
}

func (n *Notification) check() error {
	if err := checkName("IdempotencyKey", n.IdempotencyKey, MaxIdempotencyKeyBytes); err != nil {
		return err
	}
	if err := checkName("Recipient", n.Recipient, MaxRecipientBytes); err != nil {
		return err
	}
	if err := checkChannel("Channel", n.Channel); err != nil {
		return err
	}
	if err := checkText("Tenant", n.Tenant, MaxTenantBytes); err != nil {
		return err
	}
	if err := n.checkSchedule(); err != nil {
		return err
	}
	switch {
	case n.Priority < PriorityLow || n.Priority > PriorityHigh:
		return invalid("Priority", "must be low (1), normal (2) or high (3)")
	case n.MaxAttempts < 1 || n.MaxAttempts > MaxAttemptsLimit:
		return invalid("MaxAttempts", fmt.Sprintf("must be between 1 and %d", MaxAttemptsLimit))
	case n.OnAmbiguous != AmbiguousRetry && n.OnAmbiguous != AmbiguousPark:
		return invalid("OnAmbiguous", `must be "retry" or "park"`)
	}
	return checkPayload(n.Payload)
}

func (n *Notification) checkSchedule() error {
	if err := checkTime("SendAt", n.SendAt); err != nil {
		return err
	}
	if err := checkTime("ExpiresAt", n.ExpiresAt); err != nil {
		return err
	}
	switch {
	case !n.SendAt.IsZero() && n.Delay != 0:
		return invalid("Delay", "must not be given together with SendAt")
	case n.Delay < 0:
		return invalid("Delay", "must not be negative")
	case n.Delay > Horizon:
		return invalid("Delay", "must be at most 365 days")
	}
	return nil
}

// cleanError makes an outside text storable: valid UTF-8 without NUL, at most 2 KB.
func cleanError(text string) string { return cleanText(text, 2048) }

func cleanText(text string, maxBytes int) string {
	text = cut(text, 2*maxBytes) // before the costly part: it may be of any size
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.ReplaceAll(text, "\x00", "\uFFFD")
	return cut(text, maxBytes)
}

// cut shortens text to at most maxBytes, between characters.
func cut(text string, maxBytes int) string {
	if len(text) <= maxBytes {
		return text
	}
	for maxBytes > 0 && !utf8.RuneStart(text[maxBytes]) {
		maxBytes--
	}
	return text[:maxBytes]
}
