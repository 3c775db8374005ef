package notifyqtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// memory is a publisher and a receiver without anything between them: the contract and nothing else.
type memory struct {
	mu       sync.Mutex
	now      Behaviour
	received []notifyq.Event
	cut      chan struct{} // closed when the receiver goes away
}

var errLost = errors.New("connection lost")

func newMemory() *memory { return &memory{cut: make(chan struct{})} }

func (m *memory) Publisher() notifyq.Publisher { return m }

func (m *memory) Behave(b Behaviour) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = b
	if b == Away {
		close(m.cut)
		m.cut = make(chan struct{})
	}
}

func (m *memory) Received() []notifyq.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.received)
}

func (m *memory) Start(ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
	if err := ctx.Err(); err != nil {
		return nil, notifyq.NotSent(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	answer := make(chan error, 1)
	switch m.now {
	case Accepts:
		e.Body = bytes.Clone(e.Body)
		m.received = append(m.received, e)
		answer <- nil
	case Rejects:
		answer <- notifyq.Rejected(errors.New("no"))
	case Away:
		return nil, notifyq.Unavailable(errors.New("connection refused"))
	case Silent:
	}
	return memoryPending{answer, m.cut}, nil
}

// memoryPending is settled by the answer, by the loss of the connection, or by its context.
type memoryPending struct {
	answer <-chan error
	cut    <-chan struct{}
}

func (p memoryPending) Wait(ctx context.Context) error {
	select {
	case err := <-p.answer:
		return err
	default:
	}
	select {
	case err := <-p.answer:
		return err
	case <-p.cut:
		return errLost
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Endpoint makes it an EndpointPublisher.
func (m *memory) Endpoint(notifyq.Event) notifyq.Endpoint { return notifyq.Endpoint{Name: "memory"} }

func TestReferencePublisher(t *testing.T) {
	t.Parallel()
	TestPublisher(t, func(*testing.T) PublisherHarness { return newMemory() })
}

// broken is a memory whose publisher breaks the contract in one way.
type broken struct {
	*memory
	start    func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error)
	endpoint func(e notifyq.Event) notifyq.Endpoint
}

func (b *broken) Publisher() notifyq.Publisher { return b }

func (b *broken) Start(ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
	if b.start == nil {
		return b.memory.Start(ctx, e)
	}
	return b.start(b.memory, ctx, e)
}

func (b *broken) Endpoint(e notifyq.Event) notifyq.Endpoint {
	if b.endpoint == nil {
		return b.memory.Endpoint(e)
	}
	return b.endpoint(e)
}

type waitFunc func(ctx context.Context) error

func (f waitFunc) Wait(ctx context.Context) error { return f(ctx) }

// hurried is patient for receivers that answer at once.
func hurried() limits {
	const short = 100 * time.Millisecond
	return limits{start: short, late: short, accept: 2 * time.Second, silence: short / 2, away: short, recover: 2 * short}
}

// answers changes what Start and Wait return.
func answers(change func(m *memory, e notifyq.Event, err error) error) *broken {
	return &broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
		p, err := m.Start(ctx, e)
		if err != nil {
			if err = change(m, e, err); err != nil {
				return nil, err
			}
			return waitFunc(func(context.Context) error { return nil }), nil
		}
		return waitFunc(func(ctx context.Context) error { return change(m, e, p.Wait(ctx)) }), nil
	}}
}

// sends changes what is sent.
func sends(change func(m *memory, e *notifyq.Event)) *broken {
	return &broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
		change(m, &e)
		return m.Start(ctx, e)
	}}
}

// hang is a Wait that ends only when the receiver goes away once more, which the tests make it do at their end.
func (m *memory) hang() notifyq.Pending {
	m.mu.Lock()
	defer m.mu.Unlock()
	cut := m.cut
	return waitFunc(func(context.Context) error {
		<-cut
		return errLost
	})
}

func brokenPublishers() map[string]struct {
	publisher *broken
	caught    string
} {
	type row = struct {
		publisher *broken
		caught    string
	}
	return map[string]row{
		"acknowledges what it does not send": {&broken{start: func(*memory, context.Context, notifyq.Event) (notifyq.Pending, error) {
			return waitFunc(func(context.Context) error { return nil }), nil
		}}, "AcceptedEventArrivesUnchanged"},
		"sends after the acknowledgement": {&broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
			time.AfterFunc(20*time.Millisecond, func() { _, _ = m.Start(context.WithoutCancel(ctx), e) })
			return waitFunc(func(context.Context) error { return nil }), nil
		}}, "AcceptedEventArrivesUnchanged"},
		"cuts the body at NUL": {sends(func(_ *memory, e *notifyq.Event) {
			e.Body, _, _ = bytes.Cut(e.Body, []byte{0})
		}), "AcceptedEventArrivesUnchanged"},
		"mends the body": {sends(func(_ *memory, e *notifyq.Event) {
			e.Body = bytes.ToValidUTF8(e.Body, nil)
		}), "AcceptedEventArrivesUnchanged"},
		"trims the body": {sends(func(_ *memory, e *notifyq.Event) {
			e.Body = bytes.TrimRight(e.Body, "\r\n\x00")
		}), "AcceptedEventArrivesUnchanged"},
		"changes the caller's body": {&broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
			p, err := m.Start(ctx, e)
			copy(e.Body, "x")
			return p, err
		}}, "AcceptedEventArrivesUnchanged"},
		"keeps the caller's body": {&broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
			p, err := m.Start(ctx, e)
			m.mu.Lock()
			defer m.mu.Unlock()
			if len(m.received) > 0 {
				m.received[len(m.received)-1].Body = e.Body
			}
			return p, err
		}}, "RepeatedEventKeepsItsID"},
		"makes an id per attempt": {sends(func(_ *memory, e *notifyq.Event) {
			if e.Attempt > 1 {
				e.ID = uuid.New()
			}
		}), "RepeatedEventKeepsItsID"},
		"returns no Pending": {&broken{start: func(*memory, context.Context, notifyq.Event) (notifyq.Pending, error) {
			return nil, nil
		}}, "AcceptedEventArrivesUnchanged"},
		"waits in Start": {&broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
			p, err := m.Start(ctx, e)
			if err == nil {
				err = p.Wait(context.WithoutCancel(ctx))
			}
			return waitFunc(func(context.Context) error { return nil }), err
		}}, "SilenceEndsWithTheContext"},
		"ignores the context of Wait": {&broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
			p, err := m.Start(ctx, e)
			return waitFunc(func(ctx context.Context) error { return p.Wait(context.WithoutCancel(ctx)) }), err
		}}, "SilenceEndsWithTheContext"},
		"takes silence for consent": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if errors.Is(err, context.DeadlineExceeded) {
				return nil
			}
			return err
		}), "SilenceEndsWithTheContext"},
		"takes silence for not sent": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if errors.Is(err, context.DeadlineExceeded) {
				return notifyq.NotSent(err)
			}
			return err
		}), "SilenceEndsWithTheContext"},
		"takes silence for a refusal": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if errors.Is(err, context.DeadlineExceeded) {
				return notifyq.Rejected(err)
			}
			return err
		}), "SilenceEndsWithTheContext"},
		"parks after silence": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if errors.Is(err, context.DeadlineExceeded) {
				return notifyq.Permanent(err)
			}
			return err
		}), "SilenceEndsWithTheContext"},
		"takes a cancelled Start for an acknowledgement": {&broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
			p, err := m.Start(ctx, e)
			return waitFunc(func(waiting context.Context) error {
				if err := p.Wait(waiting); ctx.Err() == nil {
					return err
				}
				return nil
			}), err
		}}, "CancelledContextIsNoAcknowledgement"},
		"takes a cancelled Wait for an acknowledgement": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}), "CancelledContextIsNoAcknowledgement"},
		"does not mark refusals": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if notifyq.IsRejected(err) {
				return errors.New("no")
			}
			return err
		}), "RefusalIsRejected"},
		"overlooks refusals": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if notifyq.IsRejected(err) {
				return nil
			}
			return err
		}), "RefusalIsRejected"},
		"overlooks that the receiver is away": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if notifyq.IsUnavailable(err) {
				return nil
			}
			return err
		}), "AwayIsAnErrorAndEnds"},
		"parks when the receiver is away": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if notifyq.IsUnavailable(err) {
				return notifyq.Permanent(err)
			}
			return err
		}), "AwayIsAnErrorAndEnds"},
		"hangs when the receiver is away": {&broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
			p, err := m.Start(ctx, e)
			if notifyq.IsUnavailable(err) {
				return m.hang(), nil
			}
			return p, err
		}}, "AwayIsAnErrorAndEnds"},
		"never comes back": {onceAway(), "AwayIsAnErrorAndEnds"},
		"takes a lost connection for an acknowledgement": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if errors.Is(err, errLost) {
				return nil
			}
			return err
		}), "LostConnectionIsAnErrorAndEnds"},
		"takes a lost connection for a refusal": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if errors.Is(err, errLost) {
				return notifyq.Rejected(err)
			}
			return err
		}), "LostConnectionIsAnErrorAndEnds"},
		"sends under an ended context": {&broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
			p, err := m.Start(context.WithoutCancel(ctx), e)
			return waitFunc(func(waiting context.Context) error {
				if err := ctx.Err(); err != nil {
					return notifyq.NotSent(err)
				}
				return p.Wait(waiting)
			}), err
		}}, "EndedContextSendsNothing"},
		"does not mark what was not sent": {answers(func(_ *memory, _ notifyq.Event, err error) error {
			if notifyq.IsNotSent(err) {
				return errors.New("ended")
			}
			return err
		}), "EndedContextSendsNothing"},
		"sends twice": {&broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
			_, _ = m.Start(ctx, e)
			return m.Start(ctx, e)
		}}, "HundredAtOnceArriveOnceEach"},
		"mixes events up": {mixing(), "HundredAtOnceArriveOnceEach"},
		"panics at a strange topic": {sends(func(_ *memory, e *notifyq.Event) {
			if len(e.Topic) > 255 {
				panic("too long")
			}
		}), "PoisonHarmsNobody"},
		"panics in Wait": {answers(func(_ *memory, e notifyq.Event, err error) error {
			if e.Topic == "*" {
				panic("wildcard")
			}
			return err
		}), "PoisonHarmsNobody"},
		"cuts large bodies": {sends(func(_ *memory, e *notifyq.Event) {
			e.Body = e.Body[:min(len(e.Body), 1<<16)]
		}), "PoisonHarmsNobody"},
		"hangs at a strange topic": {&broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
			if e.Topic == "a..b" {
				return m.hang(), nil
			}
			return m.Start(ctx, e)
		}}, "PoisonHarmsNobody"},
		"lets poison stop the others": {poisoned(), "PoisonHarmsNobody"},
		"tells the body": {answers(func(_ *memory, e notifyq.Event, err error) error {
			if err != nil {
				return fmt.Errorf("%w: %s", err, e.Body)
			}
			return nil
		}), "RefusalIsRejected"},
		"tells the key": {answers(func(_ *memory, e notifyq.Event, err error) error {
			if err != nil {
				return fmt.Errorf("%w: %s", err, e.Key)
			}
			return nil
		}), "AwayIsAnErrorAndEnds"},
		"has an endpoint an event": {&broken{endpoint: func(e notifyq.Event) notifyq.Endpoint {
			return notifyq.Endpoint{Name: e.ID.String()}
		}}, "EndpointIsStable"},
		"has an endpoint without a name": {&broken{endpoint: func(notifyq.Event) notifyq.Endpoint {
			return notifyq.Endpoint{}
		}}, "EndpointIsStable"},
		"has an endpoint named by keys": {&broken{endpoint: func(e notifyq.Event) notifyq.Endpoint {
			return notifyq.Endpoint{Name: "a" + e.Key[:min(len(e.Key), 200)]}
		}}, "EndpointIsStable"},
	}
}

// onceAway never sends again after its receiver was away.
func onceAway() *broken {
	var mu sync.Mutex
	var dead error
	return &broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
		mu.Lock()
		defer mu.Unlock()
		if dead != nil {
			return nil, dead
		}
		p, err := m.Start(ctx, e)
		if notifyq.IsUnavailable(err) {
			dead = err
		}
		return p, err
	}}
}

// mixing keeps one event for all calls, as a publisher with a shared buffer would.
func mixing() *broken {
	var mu sync.Mutex
	var last notifyq.Event
	return &broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
		mu.Lock()
		last = e
		last.Body = bytes.Clone(e.Body)
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		return m.Start(ctx, last)
	}}
}

// poisoned refuses everything behind an event without a topic.
func poisoned() *broken {
	var mu sync.Mutex
	var stopped bool
	return &broken{start: func(m *memory, ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
		mu.Lock()
		defer mu.Unlock()
		stopped = stopped || e.Topic == ""
		if stopped {
			return nil, notifyq.NotSent(errors.New("stopped"))
		}
		return m.Start(ctx, e)
	}}
}

func TestBrokenPublishersAreCaught(t *testing.T) {
	t.Parallel()
	for what, c := range brokenPublishers() {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c.publisher.memory = newMemory()
			checks := publisherChecks()
			i := slices.IndexFunc(checks, func(check publisherCheck) bool { return check.name == c.caught })
			require.GreaterOrEqual(t, i, 0, c.caught)
			defer c.publisher.Behave(Away)
			err := checks[i].run(t.Context(), c.publisher, hurried())
			require.Error(t, err)
			t.Log(err)
		})
	}
}

func TestEveryCheckCatchesSomething(t *testing.T) {
	t.Parallel()
	for _, check := range publisherChecks() {
		found := false
		for _, c := range brokenPublishers() {
			found = found || c.caught == check.name
		}
		require.True(t, found, check.name)
		require.NoError(t, check.run(t.Context(), newMemory(), hurried()), check.name)
	}
}

func TestLeaksAreFound(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	left := leaksWithin(20*time.Millisecond, func() {
		go func() { // a child of one that has ended
			go func() { <-stop }()
		}()
	})
	require.Contains(t, left, "TestLeaksAreFound")
	close(stop)
	require.Empty(t, withoutLeaks(func() { go func() {}() }))
}
