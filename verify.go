package notifyq

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/notifyq/notifyq/internal/signature"
)

// DefaultWebhookTolerance is how far the clocks of a webhook's sender and receiver may be apart, the way included.
const DefaultWebhookTolerance = 5 * time.Minute

// ErrWebhookSignature is a webhook request that is not to be trusted: answer 401 and do nothing else. Its text names the
// rule that was broken, and nothing of the request or the secrets.
var ErrWebhookSignature = errors.New("notifyq: the webhook is not verified")

// VerifyWebhook is for those who receive the events that package publishers/webhook sends: it checks that a request was
// signed with one of the secrets, at most tolerance before or after now, and returns the event's id, the one to
// de-duplicate by. The same event comes again, under the same id, until it was answered with a 2xx.
//
//	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 2<<20))
//	...
//	id, err := notifyq.VerifyWebhook(r.Header, body, secrets, 0)
//	if err != nil {
//		http.Error(w, "unauthorized", http.StatusUnauthorized)
//		return
//	}
//
// body is the body as it came, before anything has parsed it. secrets are 24 to 64 bytes in base64, with or without
// "whsec_", at most 10; those of a rotation may all be given, in any order, and white space around one is ignored. Zero
// tolerance is DefaultWebhookTolerance. The scheme is that of Standard Webhooks 1.0.0, so that requests of other senders
// can be checked too: of several signatures one must match, and those of other versions are skipped. Signatures are
// compared in constant time.
//
// The error is ErrWebhookSignature, or an *InvalidError if the secrets or the tolerance are wrong. A request that is
// sent again by somebody else within the tolerance passes; de-duplication is what stops it.
func VerifyWebhook(header http.Header, body []byte, secrets []string, tolerance time.Duration) (eventID string, err error) {
	keys, err := signature.ParseSecrets(secrets)
	if err != nil {
		return "", invalid("secrets", err.Error())
	}
	switch {
	case tolerance < 0:
		return "", invalid("tolerance", "must not be negative")
	case tolerance == 0:
		tolerance = DefaultWebhookTolerance
	}
	id, timestamp := webhookHeader(header, signature.HeaderID), webhookHeader(header, signature.HeaderTimestamp)
	if len(id) > 1 || len(timestamp) > 1 {
		return "", fmt.Errorf("%w: %s and %s must not be repeated", ErrWebhookSignature, signature.HeaderID, signature.HeaderTimestamp)
	}
	message := signature.Message{
		ID:         strings.Join(id, ""),
		Timestamp:  strings.Join(timestamp, ""),
		Signatures: strings.Join(webhookHeader(header, signature.HeaderSignature), " "),
		Body:       body,
	}
	if err := signature.Verify(keys, message, time.Now(), tolerance); err != nil {
		return "", fmt.Errorf("%w: %w", ErrWebhookSignature, err)
	}
	return message.ID, nil
}

// webhookHeader finds the values in any spelling: not every header map was filled by net/http.
func webhookHeader(header http.Header, name string) (values []string) {
	for key, list := range header {
		if strings.EqualFold(key, name) {
			values = append(values, list...)
		}
	}
	return values
}
