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
// Pending.Wait when the receiver has accepted. Both return an error made by NotSent or Rejected where that much is
// known; any other error leaves the outcome unknown, and the event is sent again under the same ID.
type Publisher interface {
	Start(ctx context.Context, e Event) (Pending, error)
}

// Pending is an event on its way.
type Pending interface {
	Wait(ctx context.Context) error
}

type publishError struct {
	rejected bool
	err      error
}

func (e *publishError) Error() string { return e.err.Error() }
func (e *publishError) Unwrap() error { return e.err }

// NotSent marks an error before which nothing left the process. A nil err stays nil.
func NotSent(err error) error {
	if err == nil {
		return nil
	}
	return &publishError{err: err}
}

// Rejected marks an answer in which the receiver refused the event. A nil err stays nil.
func Rejected(err error) error {
	if err == nil {
		return nil
	}
	return &publishError{rejected: true, err: err}
}

// IsNotSent reports whether err was marked by NotSent.
func IsNotSent(err error) bool {
	var marked *publishError
	return errors.As(err, &marked) && !marked.rejected
}

// IsRejected reports whether err was marked by Rejected.
func IsRejected(err error) bool {
	var marked *publishError
	return errors.As(err, &marked) && marked.rejected
}
