package notifyqtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq"
)

// canary is in every body and key, and must be in no error.
const canary = "canary-6f0d2b9ae1"

// maxFaults is how many a check reports: what happens to one event of a hundred mostly happens to all.
const maxFaults = 10

// limits is how long things may take.
type limits struct {
	start   time.Duration // Start, which only begins
	late    time.Duration // a Wait, after its context has ended
	accept  time.Duration // an acknowledgement
	silence time.Duration // how long a receiver that never answers is listened to
	away    time.Duration // the context of an event whose receiver is away
	recover time.Duration // until a publisher delivers again
}

func patient() limits {
	return limits{
		start: 5 * time.Second, late: 5 * time.Second, accept: 30 * time.Second,
		silence: 500 * time.Millisecond, away: 2 * time.Second, recover: 30 * time.Second,
	}
}

var errStuck = errors.New("it did not return in time")

// trial is one check on its way. What breaks the contract is collected as faults.
type trial struct {
	PublisherHarness
	ctx       context.Context
	publisher notifyq.Publisher
	limits    limits

	mu     sync.Mutex
	faults []error
}

// event is one that is to be published, with what its body has to stay.
type event struct {
	notifyq.Event
	want []byte
}

func newEvent(topic, key string, body []byte) event {
	return event{
		Event: notifyq.Event{
			ID: uuid.New(), Topic: topic, Key: key, Body: bytes.Clone(body), CreatedAt: time.Now(), Attempt: 1,
		},
		want: body,
	}
}

// uglyEvent has what encoders, trimmers and line readers trip over.
func uglyEvent() event {
	body := []byte(canary + "\x00\xff\xfe\r\n \u2028\u2029<&> é\u0301 \U0001F600 {\"b\":1.0,  \"a\":1e2}\r\n\r\n.\r\n\x00")
	return newEvent("test.event", "key-"+canary, body)
}

// again is e for its next attempt.
func (e event) again() event {
	e.Body = bytes.Clone(e.want)
	e.Attempt++
	return e
}

func (tr *trial) faultf(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.faults) < maxFaults {
		tr.faults = append(tr.faults, fmt.Errorf(format, args...))
	}
}

func (tr *trial) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(tr.ctx, d)
}

// start calls Start and judges what every call of it has to keep.
func (tr *trial) start(ctx context.Context, e event) (notifyq.Pending, error) {
	now := make(chan struct{})
	close(now)
	pending, err := call(now, tr.limits.start, func() (notifyq.Pending, error) { return tr.publisher.Start(ctx, e.Event) })
	tr.judge("Start", e, err)
	if err == nil && pending == nil {
		tr.faultf("Start returned neither a Pending nor an error")
		return nil, errStuck
	}
	return pending, err
}

// wait calls Wait, and then overwrites the body, which the publisher has no claim to any more.
func (tr *trial) wait(ctx context.Context, e event, pending notifyq.Pending) error {
	_, err := call(ctx.Done(), tr.limits.late, func() (struct{}, error) { return struct{}{}, pending.Wait(ctx) })
	tr.judge("Wait", e, err)
	if errors.Is(err, errStuck) {
		return err
	}
	if !bytes.Equal(e.Body, e.want) {
		tr.faultf("the publisher changed the event's Body")
	}
	for i := range e.Body {
		e.Body[i] = '!'
	}
	return err
}

func (tr *trial) send(ctx context.Context, e event) error {
	pending, err := tr.start(ctx, e)
	if err != nil {
		return err
	}
	return tr.wait(ctx, e, pending)
}

// deliver sends what has to be accepted, and looks at once whether it was.
func (tr *trial) deliver(e event) {
	ctx, cancel := tr.within(tr.limits.accept)
	defer cancel()
	if err := tr.send(ctx, e); err != nil {
		tr.faultf("attempt %d of an event that the receiver accepts: %w", e.Attempt, err)
		return
	}
	tr.expectReceived(e)
}

// deliverAgain makes attempts until one is accepted, as a relay would.
func (tr *trial) deliverAgain(e event) {
	over, cancel := tr.within(tr.limits.recover)
	defer cancel()
	for {
		e = e.again()
		ctx, done := context.WithTimeout(over, tr.limits.away)
		err := tr.send(ctx, e)
		done()
		if err == nil {
			tr.expectReceived(e)
			return
		}
		select {
		case <-over.Done():
			tr.faultf("the receiver is back, and the publisher does not deliver to it: %w", err)
			return
		case <-time.After(pollEvery):
		}
	}
}

func (tr *trial) expectReceived(e event) {
	copies := tr.copies(e)
	if len(copies) == 0 {
		tr.faultf("Wait returned nil, and the receiver has not accepted an event of that id")
	}
	for _, got := range copies {
		if !bytes.Equal(got.Body, e.want) {
			tr.faultf("the receiver got another body:\n got %q\nwant %q", head(got.Body), head(e.want))
		}
	}
}

func (tr *trial) copies(e event) (found []notifyq.Event) {
	for _, got := range tr.Received() {
		if got.ID == e.ID {
			found = append(found, got)
		}
	}
	return found
}

// judge collects what no call may do, whatever comes of the event.
func (tr *trial) judge(method string, e event, err error) {
	var panicked *panicError
	switch {
	case err == nil:
	case errors.Is(err, errStuck):
		tr.faultf("%s: %w: topic %q, %d bytes", method, err, head([]byte(e.Topic)), len(e.want))
	case errors.As(err, &panicked):
		tr.faultf("%s: %w: topic %q, %d bytes", method, err, head([]byte(e.Topic)), len(e.want))
	case strings.Contains(fmt.Sprintf("%s %v %+v", err, err, err), canary):
		tr.faultf("%s: the error repeats the event's body or key: %w", method, err)
	}
}

type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// call returns what f does, or errStuck if f has not returned when ended has been closed for as long as late.
func call[T any](ended <-chan struct{}, late time.Duration, f func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if v := recover(); v != nil {
				o.err = &panicError{v}
			}
			done <- o
		}()
		o.value, o.err = f()
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ended:
	}
	timer := time.NewTimer(late)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.value, o.err
	case <-timer.C:
		var none T
		return none, errStuck
	}
}

// head is as much of a text as a test's output should show.
func head(text []byte) []byte { return text[:min(len(text), 100)] }
