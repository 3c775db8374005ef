package nats

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestNoStreamIsRejected(t *testing.T) { // C107
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url())
	e := event()
	e.Topic = "elsewhere"
	requireClass(t, "rejected", publish(t, p, e))
	require.EqualValues(t, 1, p.link.Load().conn.Stats().OutMsgs, "the client repeats nothing by itself")

	b.createStream(jetstream.StreamConfig{Name: "ELSEWHERE", Subjects: []string{"elsewhere"}})
	require.NoError(t, publish(t, p, e))
}

// Somebody listens on the subject, and no stream: whatever is answered, nothing is stored.
func TestOnlyAStreamAcknowledges(t *testing.T) { // C107
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url(), func(c *Config) { c.Stream, c.AckTimeout = testStream, silence })
	for subject, answer := range map[string]string{
		"answers.nothing": "",
		"answers.ok":      "ok",
		"answers.json":    `{"status":"ok"}`,
		"answers.another": `{"stream":"ANOTHER","seq":1}`,
	} {
		_, err := b.conn.Subscribe(subject, func(msg *natsgo.Msg) {
			if answer != "" {
				_ = msg.Respond([]byte(answer))
			}
		})
		require.NoError(t, err)
		require.NoError(t, b.conn.Flush())
		e := event()
		e.Topic = subject
		requireClass(t, "unknown", publish(t, p, e))
	}
}

func TestAnotherStreamThanExpectedIsRejected(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url(), func(c *Config) { c.Stream = "ANOTHER" })
	requireClass(t, "rejected", publish(t, p, event()))
	b.requireStored()
}

func TestFullStreamIsRejected(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	full := jetstream.StreamConfig{
		Name: testStream, Subjects: []string{"test.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew,
	}
	b.createStream(full)
	p := connect(t, b.url())
	first, second := event(), event()
	require.NoError(t, publish(t, p, first))
	requireClass(t, "rejected", publish(t, p, second))
	var refusal *jetstream.APIError
	require.ErrorAs(t, publish(t, p, second), &refusal)

	full.MaxMsgs = 2
	b.createStream(full)
	require.NoError(t, publish(t, p, second))
	b.requireStored(first, second)
}

func TestTooManyInFlightIsNotSent(t *testing.T) {
	t.Parallel()
	b, px := between(t)
	p, err := open(Config{URL: px.url(), Options: quick(), Logger: discard()}, 2)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	px.be(true, false)
	all := events(3)
	started := start(t, p, all[:2]...)
	_, err = p.Start(t.Context(), all[2])
	requireClass(t, "not sent", err)

	px.be(false, false)
	for _, pending := range started {
		require.NoError(t, wait(t, pending))
	}
	b.requireStored(all[:2]...)
	require.NoError(t, publish(t, p, all[2]))
}

func TestOverTheServersLimitIsPermanent(t *testing.T) { // C105
	t.Parallel()
	const limit = 64 << 10
	b := startBroker(t, func(o *server.Options) { o.MaxPayload = limit })
	p := connect(t, b.url())
	e := event()
	require.NoError(t, publish(t, p, e))
	msg, err := p.message(e)
	require.NoError(t, err)
	headers := msg.Size() - len(msg.Subject) - len(msg.Data) // the server counts them

	fits, over := event(), event()
	fits.Body, over.Body = bytes.Repeat([]byte("<"), limit-headers), bytes.Repeat([]byte("<"), limit-headers+1)
	requireClass(t, "rejected, permanent", publish(t, p, over))
	require.NoError(t, publish(t, p, fits))
	b.requireStored(e, fits)
}

// The server does not announce a lower limit to those who are connected. It cuts off whoever breaks it, and the client
// then closes for good.
func TestLimitLoweredLive(t *testing.T) { // C105
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url())
	first := event()
	require.NoError(t, publish(t, p, first))
	b.reload(func(o *server.Options) { o.MaxPayload = 1 << 10 })

	over, good := event(), event()
	over.Body = make([]byte, 2<<10)
	requireClass(t, "unknown", publish(t, p, over))
	publishSoon(t, p, good)
	requireClass(t, "rejected, permanent", publish(t, p, over))
	b.requireStored(first, good)

	b.reload(func(o *server.Options) { o.MaxPayload = 1 << 20 })
	require.NoError(t, p.link.Load().conn.ForceReconnect()) // a raised limit is noticed by the next connection
	publishSoon(t, p, over)
}

func TestOverTheStreamsLimitIsPermanent(t *testing.T) { // C105
	t.Parallel()
	b := startBroker(t)
	b.createStream(jetstream.StreamConfig{Name: testStream, Subjects: []string{"test.>"}, MaxMsgSize: 1 << 10})
	p := connect(t, b.url())
	over, good := event(), event()
	over.Body = make([]byte, 1<<10)
	requireClass(t, "rejected, permanent", publish(t, p, over))
	require.NoError(t, publish(t, p, good))
	b.requireStored(good)
}

func TestAckTimeoutIsUnknown(t *testing.T) { // C106
	t.Parallel()
	b, px := between(t)
	p := connect(t, px.url(), func(c *Config) { c.AckTimeout = silence })
	px.be(true, false)
	e := event()
	requireClass(t, "unknown", publish(t, p, e))

	px.be(false, false)
	publishSoon(t, p, e)
	b.requireStored(e)
}

func TestEndOfWaitIsUnknown(t *testing.T) { // C106
	t.Parallel()
	b, px := between(t)
	p := connect(t, px.url())
	px.be(true, false)
	e := event()
	pending := start(t, p, e)[0]
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("no patience")
	cancel(reason)
	err := pending.Wait(ctx)
	requireClass(t, "unknown", err)
	require.ErrorIs(t, err, reason)

	px.be(false, false)
	require.NoError(t, publish(t, p, e))
	b.requireStored(e)
}

// An acknowledgement counts even if the context has ended by then.
func TestAckBeatsTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // a select would take the wrong one half of the time
		pending := start(t, p, event())[0]
		require.Eventually(t, func() bool { return p.link.Load().js.PublishAsyncPending() == 0 }, patience, time.Millisecond)
		require.NoError(t, pending.Wait(ended))
	}
}

// The acknowledgement of an attempt that was given up comes while another event is on its way.
func TestLateAckIsNobodyElses(t *testing.T) { // C106
	t.Parallel()
	b, px := between(t)
	_, err := b.conn.Subscribe("swallowed", func(*natsgo.Msg) {})
	require.NoError(t, err)
	require.NoError(t, b.conn.Flush())
	p := connect(t, px.url(), func(c *Config) { c.AckTimeout = silence })
	px.be(true, false)
	requireClass(t, "unknown", publish(t, p, event()))

	var started []notifyq.Pending
	for range 100 {
		e := event()
		e.Topic = "swallowed"
		started = append(started, start(t, p, e)...)
	}
	px.be(false, false)
	for _, pending := range started {
		requireClass(t, "unknown", wait(t, pending))
	}
	publishSoon(t, p, event()) // what came late has been read by now
}

func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	p := connect(t, b.url())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Start(ctx, event())
	requireClass(t, "not sent", err)
	require.ErrorIs(t, err, context.Canceled)
	e := event()
	require.NoError(t, publish(t, p, e))
	b.requireStored(e)
}
