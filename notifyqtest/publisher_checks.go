package notifyqtest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/notifyq/notifyq"
)

// publisherCheck is one promise of the contract.
type publisherCheck struct {
	name string
	try  func(*trial)
}

func publisherChecks() []publisherCheck {
	return []publisherCheck{
		{"AcceptedEventArrivesUnchanged", checkAccepted},
		{"RepeatedEventKeepsItsID", checkRepeated},
		{"SilenceEndsWithTheContext", checkSilent},
		{"CancelledContextIsNoAcknowledgement", checkCancelled},
		{"RefusalIsRejected", checkRejected},
		{"AwayIsAnErrorAndEnds", checkAway},
		{"LostConnectionIsAnErrorAndEnds", checkLost},
		{"EndedContextSendsNothing", checkEnded},
		{"HundredAtOnceArriveOnceEach", checkHundred},
		{"PoisonHarmsNobody", checkPoison},
		{"EndpointIsStable", checkEndpoint},
	}
}

// run returns what broke the contract, joined.
func (c publisherCheck) run(ctx context.Context, h PublisherHarness, l limits) error {
	tr := &trial{PublisherHarness: h, ctx: ctx, publisher: h.Publisher(), limits: l}
	c.try(tr)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return errors.Join(tr.faults...)
}

func checkAccepted(tr *trial) {
	for range 3 {
		tr.deliver(uglyEvent())
	}
	all := tr.Received()
	if len(all) != 3 {
		tr.faultf("3 events were sent, and %d accepted", len(all))
	}
}

func checkRepeated(tr *trial) {
	e := uglyEvent()
	tr.Behave(Rejects)
	ctx, cancel := tr.within(tr.limits.accept)
	defer cancel()
	if tr.send(ctx, e) == nil {
		tr.faultf("Wait returned nil, and the receiver refused the event")
	}
	tr.Behave(Accepts)
	for range 2 {
		e = e.again()
		tr.deliver(e)
	}
	for _, got := range tr.Received() {
		if got.ID != e.ID {
			tr.faultf("an attempt of an event arrived under another id")
		}
	}
}

func checkSilent(tr *trial) {
	tr.deliver(uglyEvent()) // the connection is there
	tr.Behave(Silent)
	e := uglyEvent()
	ctx, cancel := tr.within(tr.limits.silence)
	defer cancel()
	pending, err := tr.start(ctx, e)
	if err != nil {
		tr.faultf("Start, with a receiver that takes the event and does not answer: %w", err)
		return
	}
	err = tr.wait(ctx, e, pending)
	switch {
	case err == nil:
		tr.faultf("Wait returned nil without an acknowledgement")
	case notifyq.IsNotSent(err), notifyq.IsRejected(err), notifyq.IsPermanent(err):
		tr.faultf("nobody answered, and the outcome is not left unknown: %w", err)
	}
	tr.Behave(Accepts)
	tr.deliverAgain(e)
}

func checkCancelled(tr *trial) {
	tr.deliver(uglyEvent())
	ended, end := context.WithCancel(tr.ctx)
	end()
	for _, c := range []struct {
		what         string
		before, then Behaviour
		wait         context.Context // nil for one that lasts
	}{
		{"a context cancelled after Start", Silent, Silent, nil},
		{"a context cancelled after Start", Silent, Accepts, nil},
		{"a context cancelled after Start", Accepts, Accepts, nil},
		{"a Wait whose context has ended", Silent, Silent, ended},
		{"a Wait whose context has ended", Accepts, Accepts, ended},
	} {
		tr.Behave(c.before)
		e := uglyEvent()
		starting, cancel := context.WithCancel(tr.ctx)
		pending, err := tr.start(starting, e)
		cancel()
		if err != nil {
			tr.faultf("Start: %w", err)
			return
		}
		tr.Behave(c.then)
		waiting, done := tr.within(tr.limits.silence)
		if c.wait != nil {
			done()
			waiting = c.wait
		}
		err = tr.wait(waiting, e, pending)
		done()
		if err == nil && (c.then == Silent || len(tr.copies(e)) == 0) {
			tr.faultf("%s, with a receiver that was %v and then %v: Wait returned nil without an acknowledgement",
				c.what, c.before, c.then)
		}
	}
	tr.Behave(Accepts)
	tr.deliverAgain(uglyEvent())
}

func checkRejected(tr *trial) {
	tr.Behave(Rejects)
	for range 3 {
		e := uglyEvent()
		ctx, cancel := tr.within(tr.limits.accept)
		err := tr.send(ctx, e)
		cancel()
		switch {
		case err == nil:
			tr.faultf("Wait returned nil, and the receiver refused the event")
		case !notifyq.IsRejected(err):
			tr.faultf("a refusal is not marked by notifyq.Rejected: %w", err)
		}
		if len(tr.copies(e)) > 0 {
			tr.faultf("the harness is wrong: its receiver refuses and has accepted")
		}
	}
	tr.Behave(Accepts)
	tr.deliver(uglyEvent())
}

func checkAway(tr *trial) {
	tr.deliver(uglyEvent())
	tr.Behave(Away)
	e := uglyEvent()
	ctx, cancel := tr.within(tr.limits.away)
	defer cancel()
	tr.judgeAway(tr.send(ctx, e))
	tr.Behave(Accepts)
	tr.deliverAgain(e)
}

func checkLost(tr *trial) {
	tr.deliver(uglyEvent())
	tr.Behave(Silent)
	e := uglyEvent()
	ctx, cancel := tr.within(tr.limits.away)
	defer cancel()
	pending, err := tr.start(ctx, e)
	if err != nil {
		tr.faultf("Start: %w", err)
		return
	}
	tr.Behave(Away)
	tr.judgeAway(tr.wait(ctx, e, pending))
	tr.Behave(Accepts)
	tr.deliverAgain(e)
}

func (tr *trial) judgeAway(err error) {
	switch {
	case err == nil:
		tr.faultf("Wait returned nil, and the receiver is away")
	case notifyq.IsRejected(err), notifyq.IsPermanent(err):
		tr.faultf("the receiver is away, and the error says that it refused: %w", err)
	}
}

func checkEnded(tr *trial) {
	tr.deliver(uglyEvent())
	ctx, cancel := context.WithCancel(tr.ctx)
	cancel()
	e := uglyEvent()
	switch err := tr.send(ctx, e); {
	case err == nil:
		tr.faultf("a context that had ended before Start led to no error")
	case !notifyq.IsNotSent(err):
		tr.faultf("a context that had ended before Start led to an error that is not marked by notifyq.NotSent: %w", err)
	}
	tr.deliver(uglyEvent()) // whatever was sent before has arrived
	if len(tr.copies(e)) > 0 {
		tr.faultf("an event was sent under a context that had ended before Start")
	}
}

func checkHundred(tr *trial) {
	events := make([]event, 100)
	var group sync.WaitGroup
	for i := range events {
		events[i] = uglyEvent()
		group.Go(func() { tr.deliver(events[i]) })
	}
	group.Wait()
	for _, e := range events {
		if n := len(tr.copies(e)); n > 1 {
			tr.faultf("an event that was sent once was accepted %d times", n)
		}
	}
	if n := len(tr.Received()); n != len(events) {
		tr.faultf("%d events were sent, and %d accepted", len(events), n)
	}
}

// poison is what no topic, key or body should be, and one day is.
func poison() []event {
	body := []byte(canary)
	var events []event
	for _, topic := range []string{
		"", " ", "a b", "a..b", ".", "*", ">", "a.*", "$SYS.a", strings.Repeat("a", 300), "a\r\nX-Evil: 1", "a\x00b", "\xff", "é\u2028",
	} {
		events = append(events, newEvent(topic, "key-"+canary, body))
	}
	for _, key := range []string{
		"", " ", "k\r\nX-Evil: " + canary, "k\x00" + canary, canary + "\xff", strings.Repeat(canary, 50),
	} {
		events = append(events, newEvent("test.event", key, body))
	}
	large := append([]byte(canary), bytes.Repeat([]byte{0, 0xff, '\n', 'x'}, notifyq.MaxEventBodyBytes/4)...)
	for _, body := range [][]byte{nil, {}, []byte("\r\n\r\n"), large[:notifyq.MaxEventBodyBytes]} {
		events = append(events, newEvent("test.event", "key-"+canary, body))
	}
	return events
}

func checkPoison(tr *trial) {
	ctx, cancel := tr.within(tr.limits.accept)
	defer cancel()
	bad := poison()
	var ending sync.WaitGroup
	for _, e := range bad {
		pending, err := tr.start(ctx, e)
		if err != nil {
			continue
		}
		ending.Go(func() {
			if tr.wait(ctx, e, pending) == nil {
				tr.expectReceived(e)
			}
		})
	}
	for range 20 {
		tr.deliver(uglyEvent())
	}
	ending.Wait()
	tr.deliver(uglyEvent())
}

func checkEndpoint(tr *trial) {
	publisher, ok := tr.publisher.(notifyq.EndpointPublisher)
	if !ok {
		return
	}
	for _, e := range append(poison(), uglyEvent()) {
		later := e.again()
		later.ID = newEvent("", "", nil).ID
		first, second := publisher.Endpoint(e.Event), publisher.Endpoint(later.Event)
		switch {
		case first != second:
			tr.faultf("Endpoint answers differently for equal topics, keys and bodies: %+v, %+v", first, second)
		case first.Name == "" || len(first.Name) > 255 || len(first.Target) > 255:
			tr.faultf("Endpoint.Name must be 1 to 255 bytes and Target at most 255: %d, %d", len(first.Name), len(first.Target))
		case strings.Contains(first.Name+first.Target, canary):
			tr.faultf("Endpoint repeats the event's body or key")
		case first.Concurrency < 0 || first.MaxAttempts < 0 || first.DisableAfter < 0:
			tr.faultf("Endpoint has a negative limit")
		}
	}
}
