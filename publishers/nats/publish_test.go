package nats

import (
	"context"
	"strings"
	"sync"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestMessageCarriesTheEvent(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url(), func(c *Config) { c.SubjectPrefix, c.Stream = "test.", testStream })
	e := event()
	e.Topic, e.Key, e.Body = "order.placed", "kündin 7: ✓", nil
	for i := range 256 {
		e.Body = append(e.Body, byte(i))
	}
	require.NoError(t, publish(t, p, e))

	stored := b.stored(0)
	require.Len(t, stored, 1)
	require.Equal(t, "test.order.placed", stored[0].Subject)
	require.Equal(t, e.Body, stored[0].Data)
	require.Equal(t, natsgo.Header{
		"Nats-Msg-Id":          {e.ID.String()},
		"Nats-Expected-Stream": {testStream},
		"Notifyq-Topic":        {"order.placed"},
		"Notifyq-Key":          {"kündin 7: ✓"},
	}, stored[0].Header)
}

func TestSubjectOfAnEventsOwn(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url(), func(c *Config) {
		c.SubjectPrefix = "test."
		c.Subject = func(e notifyq.Event) string { return "customer." + e.Key }
	})
	e := event()
	e.Key = "7"
	require.NoError(t, publish(t, p, e))
	e = event()
	e.Key = ""
	requireClass(t, "not sent, permanent", publish(t, p, e))

	stored := b.stored(0)
	require.Len(t, stored, 1)
	require.Equal(t, "test.customer.7", stored[0].Subject)
	require.Equal(t, testTopic, stored[0].Header.Get(HeaderTopic))
}

func TestDuplicateIsSuccess(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url())
	e := event()
	for e.Attempt = range 3 {
		require.NoError(t, publish(t, p, e))
	}
	b.requireStored(e)
}

// The client's own limit of acknowledgements waited for is 4,000.
func TestThousandsAreOnTheirWayAtOnce(t *testing.T) {
	t.Parallel()
	b, px := between(t)
	p := connect(t, px.url())
	all := events(5000)
	px.be(true, false)
	started := start(t, p, all...)
	px.be(false, false)
	for _, pending := range started {
		require.NoError(t, wait(t, pending))
	}
	stream, err := b.js.Stream(t.Context(), testStream)
	require.NoError(t, err)
	require.EqualValues(t, len(all), stream.CachedInfo().State.Msgs)
}

func TestConcurrentPublishersDoNotMix(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url())
	all := events(200)
	var wg sync.WaitGroup
	for i := range all {
		all[i].Body = []byte(all[i].ID.String())
		if i%2 == 0 {
			all[i].Topic = "elsewhere"
		}
		wg.Go(func() {
			pending, err := p.Start(context.Background(), all[i])
			if err == nil {
				err = pending.Wait(context.Background())
			}
			// No acknowledgement of another event's gets here.
			if i%2 == 0 && !notifyq.IsRejected(err) || i%2 == 1 && err != nil {
				t.Errorf("%s: %v", all[i].Topic, err)
			}
		})
	}
	wg.Wait()
	for _, msg := range b.stored(0) {
		require.Equal(t, msg.Header.Get(jetstream.MsgIDHeader), string(msg.Data))
	}
}

func TestPoisonIsPermanentAndNotSent(t *testing.T) { // C104
	t.Parallel()
	// Nobody listens: what is poison is so without a broker.
	p := connect(t, "nats://127.0.0.1:1")
	for _, topic := range []string{
		"", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\r\nPUB x 0", "a\x00b", "a\x7fb", "a\u0085b", "a\u00a0b", "a\u2028b",
		"\xff", "*", "a.*", "a*b", ">", "a.>", "a>b", "$SYS.a", "$JS.API.STREAM.DELETE.EVENTS", "_INBOX.a",
		strings.Repeat("a", MaxSubjectBytes+1),
	} {
		e := event()
		e.Topic = topic
		_, err := p.Start(t.Context(), e)
		requireClass(t, "not sent, permanent", err)
	}
	for _, key := range []string{" ", "k ", " k", "\tk", "k\r\nNats-Msg-Id: x", "k\x00", "\xff"} {
		e := event()
		e.Key = key
		_, err := p.Start(t.Context(), e)
		requireClass(t, "not sent, permanent", err)
	}
	_, err := p.Start(t.Context(), event())
	requireClass(t, "unavailable", err)
}

func TestTopicThatIsNoHeaderIsPermanent(t *testing.T) {
	t.Parallel()
	p := connect(t, "nats://127.0.0.1:1", func(c *Config) {
		c.Subject = func(notifyq.Event) string { return testTopic }
	})
	e := event()
	e.Topic = "a\r\nNats-Msg-Id: x"
	_, err := p.Start(t.Context(), e)
	requireClass(t, "not sent, permanent", err)
}

func TestLongestSubjectPasses(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url(), func(c *Config) { c.SubjectPrefix = "test." })
	e := event()
	e.Topic = strings.Repeat("a", MaxSubjectBytes-len("test."))
	e.Key = strings.Repeat("k", notifyq.MaxEventKeyBytes)
	require.NoError(t, publish(t, p, e))
	b.requireStored(e)
}

// Only the prefix, which is the operator's, leads to subjects of the server's own.
func TestPrefixMayBeReserved(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	bucket, err := b.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "state"})
	require.NoError(t, err)
	p := connect(t, b.url(), func(c *Config) { c.SubjectPrefix = "$KV.state." })
	require.NoError(t, publish(t, p, event()))
	entry, err := bucket.Get(t.Context(), testTopic)
	require.NoError(t, err)
	require.Equal(t, "body", string(entry.Value()))
}
