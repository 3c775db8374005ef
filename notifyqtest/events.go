package notifyqtest

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/notifyq/notifyq"
)

// Publisher keeps every event it is asked for, in order, and accepts it unless Answer says otherwise. Its zero value is
// ready; it is safe for concurrent use.
type Publisher struct {
	// Answer, if set before the first event, decides what becomes of one. It may return what any Publisher may.
	Answer func(notifyq.Event) error

	mu     sync.Mutex
	events []notifyq.Event
}

// Start implements notifyq.Publisher.
func (p *Publisher) Start(_ context.Context, e notifyq.Event) (notifyq.Pending, error) {
	e.Body = bytes.Clone(e.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	return answered{p, e}, nil
}

type answered struct {
	p *Publisher
	e notifyq.Event
}

func (a answered) Wait(context.Context) error {
	if a.p.Answer == nil {
		return nil
	}
	return a.p.Answer(a.e)
}

// Events is a copy of what was published so far, failed attempts included.
func (p *Publisher) Events() []notifyq.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

// Of is what was published under one topic.
func (p *Publisher) Of(topic string) []notifyq.Event {
	return slices.DeleteFunc(p.Events(), func(e notifyq.Event) bool { return e.Topic != topic })
}
