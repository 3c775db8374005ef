package notifyq

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Provider hands one notification to the outside: an email server, an SMS gateway, a push service.
//
// Deliver may be called from many goroutines at once. It must return when ctx ends; a call that does not is abandoned
// and its late result ignored. A nil error means the provider accepted the notification. Any other error is transient
// and leads to a retry, unless it was made by Permanent, RetryAfter, Ambiguous or Misconfigured. A panic counts as
// ambiguous.
//
// The same Delivery.Key comes with every attempt, after a crash and after a redrive too: a provider that honours
// idempotency keys delivers once, and one that does not may deliver twice when a worker dies between acceptance and
// record.
type Provider interface {
	Deliver(ctx context.Context, d Delivery) (Receipt, error)
}

// ProviderFunc makes a Provider of a function.
type ProviderFunc func(ctx context.Context, d Delivery) (Receipt, error)

// Deliver calls f.
func (f ProviderFunc) Deliver(ctx context.Context, d Delivery) (Receipt, error) { return f(ctx, d) }

// Delivery is one attempt.
type Delivery struct {
	// Key is the job's id: the delivery key, equal in every attempt.
	Key uuid.UUID
	// Attempt counts from 1 in each redrive generation.
	Attempt int
	// FirstAttemptAt is when the first attempt of the job began, by the database's clock, over all generations. A
	// provider whose keys are forgotten after a while can tell from it whether the key still protects.
	FirstAttemptAt time.Time
	Tenant         string
	Recipient      string
	Channel        Channel
	Payload        json.RawMessage
	// TraceContext is what ClientConfig.TraceContext read when the job was scheduled; empty without one.
	TraceContext string
}

// Receipt is what an accepting provider answers.
type Receipt struct {
	// ProviderID is the provider's own id of the message, kept with the job. At most 255 bytes; more is cut.
	ProviderID string
}

// deliveryError carries a class beside the provider's own error.
type deliveryError struct {
	class deliveryClass
	after time.Duration
	err   error
}

type deliveryClass string

const (
	classSent          deliveryClass = "sent"
	classTransient     deliveryClass = "transient"
	classPermanent     deliveryClass = "permanent"
	classAmbiguous     deliveryClass = "ambiguous"
	classMisconfigured deliveryClass = "misconfigured"
	classTimeout       deliveryClass = "timeout"
	classPanic         deliveryClass = "panic"
)

func (e *deliveryError) Error() string { return e.err.Error() }
func (e *deliveryError) Unwrap() error { return e.err }

// Permanent marks an error that no repetition can mend: the job becomes FAILED at once. A nil err stays nil.
func Permanent(err error) error { return classify(classPermanent, 0, err) }

// RetryAfter marks a transient error whose sender asked to wait. The job waits for the longer of d and its own
// backoff, and at most 24 hours. A nil err stays nil.
func RetryAfter(err error, d time.Duration) error { return classify(classTransient, d, err) }

// Ambiguous marks an error after which the provider may have accepted: the request was written and no answer came.
// The notification's OnAmbiguous decides. A nil err stays nil.
func Ambiguous(err error) error { return classify(classAmbiguous, 0, err) }

// Misconfigured marks a fault of the provider's account or settings, not of the notification: wrong credentials, an
// unverified sender, no credit. The provider is paused, with growing pauses, and no job's attempt is used up. The job
// that met it goes back to wait with err as its LastError, since logs don't hold it. A nil err stays nil.
func Misconfigured(err error) error { return classify(classMisconfigured, 0, err) }

func classify(class deliveryClass, after time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &deliveryError{class: class, after: after, err: err}
}

// IsPermanent reports whether err was marked by Permanent.
func IsPermanent(err error) bool { return classOf(err) == classPermanent }

// IsAmbiguous reports whether err was marked by Ambiguous.
func IsAmbiguous(err error) bool { return classOf(err) == classAmbiguous }

// IsMisconfigured reports whether err was marked by Misconfigured.
func IsMisconfigured(err error) bool { return classOf(err) == classMisconfigured }

// IsTransient reports whether err leads to a retry: every error does that is not marked otherwise.
func IsTransient(err error) bool { return classOf(err) == classTransient }

// RetryDelay is the wait that RetryAfter put into err.
func RetryDelay(err error) (time.Duration, bool) {
	var marked *deliveryError
	if errors.As(err, &marked) && marked.after > 0 {
		return marked.after, true
	}
	return 0, false
}

// classOf is the mark nearest to the surface, or transient for an error without one, or empty for nil.
func classOf(err error) deliveryClass {
	if err == nil {
		return ""
	}
	var marked *deliveryError
	if errors.As(err, &marked) {
		return marked.class
	}
	return classTransient
}
