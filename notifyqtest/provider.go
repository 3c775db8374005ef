// Package notifyqtest helps services test what they schedule: a provider that keeps what it was given, and RunDue, which
// runs everything that is due to its end and returns, so that a test can look at what came of it without waiting.
//
//	provider := &notifyqtest.Provider{}
//	placeOrder(ctx, pool) // the code under test, which calls ScheduleTx
//	err := notifyqtest.RunDue(ctx, pool, notifyq.WorkerConfig{
//		Providers: map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelEmail: {Provider: provider}},
//	})
//	sent := provider.Deliveries()
//
// Publisher does the same for events. For those who write a notifyq.Publisher of their own, TestPublisher proves that it
// keeps the contract.
package notifyqtest

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/notifyq/notifyq"
)

// Provider keeps every delivery it is asked for, in order, and accepts it unless Answer says otherwise. Its zero value is
// ready; it is safe for concurrent use.
type Provider struct {
	// Answer, if set before the first delivery, decides what becomes of one. It may return what any provider may:
	// notifyq.Permanent(err), notifyq.Ambiguous(err), or panic.
	Answer func(notifyq.Delivery) (notifyq.Receipt, error)

	mu         sync.Mutex
	deliveries []notifyq.Delivery
}

// Deliver implements notifyq.Provider.
func (p *Provider) Deliver(_ context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	d.Payload = bytes.Clone(d.Payload)
	p.mu.Lock()
	p.deliveries = append(p.deliveries, d)
	p.mu.Unlock()
	if p.Answer == nil {
		return notifyq.Receipt{ProviderID: "test-" + d.Key.String()}, nil
	}
	return p.Answer(d)
}

// Deliveries is a copy of what was delivered so far, failed attempts included.
func (p *Provider) Deliveries() []notifyq.Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.deliveries)
}

// To is what was delivered to one recipient.
func (p *Provider) To(recipient string) []notifyq.Delivery {
	return slices.DeleteFunc(p.Deliveries(), func(d notifyq.Delivery) bool { return d.Recipient != recipient })
}
