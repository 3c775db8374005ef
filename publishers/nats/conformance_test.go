package nats

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/notifyqtest"
)

// harness is a publisher whose stream refuses, and whose proxy is silent or away.
type harness struct {
	*broker
	proxy     *proxy
	publisher *Publisher

	mu       sync.Mutex
	received []notifyq.Event
}

func (h *harness) Publisher() notifyq.Publisher { return h.publisher }

func (h *harness) Behave(b notifyqtest.Behaviour) {
	stream := jetstream.StreamConfig{Name: testStream, Subjects: []string{"test.>"}, MaxMsgSize: -1}
	if b == notifyqtest.Rejects {
		stream.MaxMsgSize = 1
	}
	h.createStream(stream)
	h.proxy.be(b == notifyqtest.Silent, b == notifyqtest.Away)
}

func (h *harness) Received() []notifyq.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, msg := range h.stored(uint64(len(h.received))) {
		id, err := uuid.Parse(msg.Header.Get(jetstream.MsgIDHeader))
		require.NoError(h.t, err)
		h.received = append(h.received, notifyq.Event{
			ID: id, Topic: msg.Header.Get(HeaderTopic), Key: msg.Header.Get(HeaderKey), Body: msg.Data,
		})
	}
	return slices.Clone(h.received)
}

func TestContract(t *testing.T) {
	t.Parallel()
	notifyqtest.TestPublisher(t, func(t *testing.T) notifyqtest.PublisherHarness {
		b, p := between(t)
		return &harness{broker: b, proxy: p, publisher: connect(t, p.url())}
	})
}
