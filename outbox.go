package notifyq

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Topics of the events that notifyq writes itself, one per terminal state that is worth telling. A CANCELLED job
// writes none: whoever cancelled it knows.
const (
	TopicSent         = "notification.sent"
	TopicFailed       = "notification.failed"
	TopicDeadLettered = "notification.dead_lettered"
)

// Limits of an event of a caller's own.
const (
	MaxTopicBytes     = 255
	MaxEventKeyBytes  = 255
	MaxEventBodyBytes = 1 << 20
)

// Event is one row of the outbox. It is published at least once; ID is the same on every attempt and is what receivers
// de-duplicate by.
type Event struct {
	ID        uuid.UUID
	Topic     string
	Key       string // handed through to the broker; notifyq promises no order
	Body      []byte // the exact bytes to send
	CreatedAt time.Time
	Attempt   int // 1 is the first
}

// Publisher hands events to a broker or a webhook, in two phases: Start returns when sending has begun, and
// Pending.Wait when the receiver has accepted. It may be called from many goroutines at once.
//
// An error says what is known of the event by how it was made:
//
//	NotSent       nothing left the process
//	Rejected      the receiver refused it
//	Permanent     no repetition can help: it is parked at once
//	RetryAfter    the receiver asked to wait
//	Unavailable   it is not the event: nothing can be sent now, and the relay pauses
//	Gone          the receiver wants no more events: its endpoint is disabled
//
// They can be put around each other: RetryAfter(Rejected(err), d). Any other error leaves the outcome unknown. Whatever
// it is, an event that was not acknowledged stays in the outbox and is sent again under the same ID. A panic is an
// unknown outcome.
type Publisher interface {
	// Start hands e to the transport. After a nil error the outcome is unknown until Wait returns. It must not wait for
	// the acknowledgement, and not change or keep e.Body after Wait has returned.
	Start(ctx context.Context, e Event) (Pending, error)
}

// Pending is an event on its way. Wait is called once, and returns nil when the receiver has accepted the event, or an
// error when it has not, or when ctx ends.
type Pending interface {
	Wait(ctx context.Context) error
}

// EndpointPublisher is a Publisher whose receivers can fail, be slow and be switched off one by one, as those of webhooks
// can. The relay keeps what it knows of each in webhook_endpoints.
type EndpointPublisher interface {
	Publisher
	// Endpoint tells where e goes: the zero Endpoint if nowhere in particular. It does no I/O, and says the same of equal
	// names. It is also asked for the zero Event: a publisher with one endpoint only answers it, others with the zero Endpoint.
	Endpoint(e Event) Endpoint
}

// Endpoint is one receiver.
type Endpoint struct {
	// Name stands for the receiver in webhook_endpoints, metrics and logs: 1 to 255 bytes, nothing secret.
	Name string
	// Target changes when the receiver's address does; what was known of the old one is then forgotten. At most 255 bytes
	// and stored, so it is a hash of the address if that holds a secret.
	Target string
	// Concurrency is how many events one relay has on their way to it at once. Zero leaves it to the relay's.
	Concurrency int
	// MaxAttempts is after how many failures an event is parked. Zero leaves it to the relay's.
	MaxAttempts int
	// DisableAfter is for how long it may do nothing but fail before it is disabled. Zero never disables it.
	DisableAfter time.Duration
}

type publishError struct {
	class publishClass
	err   error
}

type publishClass uint8

const (
	classNotSent publishClass = iota + 1
	classUnavailable
	classRejected
	classGone
)

func (e *publishError) Error() string { return e.err.Error() }
func (e *publishError) Unwrap() error { return e.err }

// NotSent marks an error before which nothing left the process. A nil err stays nil.
func NotSent(err error) error { return ofPublish(classNotSent, err) }

// Rejected marks an answer in which the receiver refused the event. A nil err stays nil.
func Rejected(err error) error { return ofPublish(classRejected, err) }

// Unavailable marks an error that is not the event's: the broker is away. Nothing left the process. The event goes back
// without a failure counted, and the relay pauses for a growing while, up to 30 s. A nil err stays nil.
func Unavailable(err error) error { return ofPublish(classUnavailable, err) }

// Gone marks an answer in which the receiver asked for no more events. Its endpoint is disabled and the event kept for
// when it is enabled again; a publisher without endpoints is told apart no further than Rejected. A nil err stays nil.
func Gone(err error) error { return ofPublish(classGone, err) }

func ofPublish(class publishClass, err error) error {
	if err == nil {
		return nil
	}
	return &publishError{class: class, err: err}
}

// IsNotSent reports whether err was marked by NotSent or Unavailable.
func IsNotSent(err error) bool {
	class := publishClassOf(err)
	return class == classNotSent || class == classUnavailable
}

// IsUnavailable reports whether err was marked by Unavailable.
func IsUnavailable(err error) bool { return publishClassOf(err) == classUnavailable }

// IsRejected reports whether err was marked by Rejected or Gone.
func IsRejected(err error) bool {
	class := publishClassOf(err)
	return class == classRejected || class == classGone
}

// IsGone reports whether err was marked by Gone.
func IsGone(err error) bool { return publishClassOf(err) == classGone }

// publishClassOf is the mark nearest to the surface, or 0.
func publishClassOf(err error) publishClass {
	var marked *publishError
	if errors.As(err, &marked) {
		return marked.class
	}
	return 0
}
