package nats

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestBrokerDownAtStart(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := prepareBroker(t, func(o *server.Options) { o.Port = ln.Addr().(*net.TCPAddr).Port })
	require.NoError(t, ln.Close())
	p := connect(t, "nats://"+ln.Addr().String())
	e := event()
	_, err = p.Start(t.Context(), e)
	requireClass(t, "unavailable", err)
	requireUnavailableBelow(t, p)

	b.start()
	b.createStream(jetstream.StreamConfig{Name: testStream, Subjects: []string{"test.>"}})
	publishSoon(t, p, e)
	b.requireStored(e)
}

func TestBrokerGoneInMidFlightAndBack(t *testing.T) {
	t.Parallel()
	b, px := between(t)
	p := connect(t, px.url())
	all := events(100)
	require.NoError(t, publish(t, p, all[0]))
	px.be(true, false)
	started := start(t, p, all[1:]...)
	b.stop()
	px.be(false, true)
	for _, pending := range started {
		requireClass(t, "unknown", wait(t, pending))
	}
	for _, e := range all {
		_, err := p.Start(t.Context(), e)
		requireClass(t, "unavailable", err)
	}

	b.start()
	px.be(false, false)
	for _, e := range all {
		publishSoon(t, p, e)
	}
	b.requireStored(all...)
}

// Everything is stored, and no acknowledgement arrives.
func TestReconnectWithPendingAcks(t *testing.T) {
	t.Parallel()
	b, px := between(t)
	p := connect(t, px.url())
	all := events(100)
	px.be(true, false)
	started := start(t, p, all...)
	require.Eventually(t, func() bool { return len(b.stored(0)) == len(all) }, patience, time.Millisecond)
	px.cut()
	px.be(false, false)
	for _, pending := range started {
		requireClass(t, "unknown", wait(t, pending))
	}
	for _, e := range all {
		publishSoon(t, p, e)
	}
	b.requireStored(all...)
}

func TestNothingIsBufferedWhileAway(t *testing.T) { // C107
	t.Parallel()
	b, px := between(t)
	p := connect(t, px.url(), func(c *Config) { c.Options = append(c.Options, natsgo.ReconnectBufSize(8<<20)) })
	px.be(false, true)
	require.Eventually(t, func() bool { return !p.link.Load().conn.IsConnected() }, patience, time.Millisecond)
	for _, e := range events(100) {
		_, err := p.Start(t.Context(), e)
		requireClass(t, "unavailable", err)
	}
	requireUnavailableBelow(t, p)

	px.be(false, false)
	e := event()
	publishSoon(t, p, e)
	b.requireStored(e)
}

// requireUnavailableBelow asks the client without our own look at the connection first, which can come too early.
func requireUnavailableBelow(t *testing.T, p *Publisher) {
	t.Helper()
	msg, err := p.message(event())
	require.NoError(t, err)
	l := p.link.Load()
	_, err = l.js.PublishMsgAsync(msg)
	requireClass(t, "unavailable", startError(err, l.conn.MaxPayload))
}

// The client closes for good over a complaint it does not know, and leaves what is pending to its timeout.
func TestConnectionThatTheClientGaveUpIsReplaced(t *testing.T) { // C106
	t.Parallel()
	b, px := between(t)
	p := connect(t, px.url())
	all := events(10)
	px.be(true, false)
	started := start(t, p, all...)
	require.Eventually(t, func() bool { return len(b.stored(0)) == len(all) }, patience, time.Millisecond)
	first := p.link.Load().conn
	px.say("-ERR 'Something New'")
	for _, pending := range started {
		requireClass(t, "unknown", wait(t, pending))
	}
	require.True(t, first.IsClosed())

	px.be(false, false)
	for _, e := range all {
		publishSoon(t, p, e)
	}
	b.requireStored(all...)
	require.NotSame(t, first, p.link.Load().conn)
}

func TestCredentialsRefusedForAWhile(t *testing.T) {
	t.Parallel()
	b := startBroker(t, func(o *server.Options) { o.Username, o.Password = "relay", "old" })
	var refused atomic.Int32
	p := connect(t, "nats://relay:old@"+b.srv.Addr().String(), func(c *Config) {
		c.Options = append(c.Options, natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
			if errors.Is(err, natsgo.ErrAuthorization) {
				refused.Add(1)
			}
		}))
	})
	require.NoError(t, publish(t, p, event()))
	b.reload(func(o *server.Options) { o.Password = "new" })
	require.Eventually(t, func() bool { return refused.Load() > 3 }, patience, time.Millisecond)
	require.False(t, p.link.Load().conn.IsClosed())
	_, err := p.Start(t.Context(), event())
	requireClass(t, "unavailable", err)

	b.reload(func(o *server.Options) { o.Password = "old" })
	publishSoon(t, p, event())
}

// The client holds its lock while it dials.
func TestStartDoesNotWaitForADial(t *testing.T) {
	t.Parallel()
	d := &stuckDialer{dialing: make(chan struct{}, 100), release: make(chan struct{})}
	p := connect(t, "nats://127.0.0.1:1", func(c *Config) { c.Options = append(c.Options, natsgo.SetCustomDialer(d)) })
	defer close(d.release)
	<-d.dialing
	started := time.Now()
	_, err := p.Start(t.Context(), event())
	requireClass(t, "unavailable", err)
	require.Less(t, time.Since(started), time.Second)
}

// stuckDialer fails at first, and hangs from then on.
type stuckDialer struct {
	dials            atomic.Int32
	dialing, release chan struct{}
}

func (d *stuckDialer) Dial(string, string) (net.Conn, error) {
	if d.dials.Add(1) > 1 {
		d.dialing <- struct{}{}
		<-d.release
	}
	return nil, io.ErrUnexpectedEOF
}

// A write that fails takes everything that was to be written with it.
func TestServerThatReadsNothing(t *testing.T) {
	t.Parallel()
	b, px := between(t)
	p := connect(t, px.url(), func(c *Config) { c.Options = append(c.Options, natsgo.FlusherTimeout(silence)) })
	px.beDeaf(true)
	var sent []notifyq.Event
	var started []notifyq.Pending
	for {
		e := event()
		e.Body = make([]byte, 256<<10)
		sent = append(sent, e)
		pending, err := p.Start(t.Context(), e)
		if err != nil {
			require.False(t, notifyq.IsRejected(err), "%v", err)
			break
		}
		started = append(started, pending)
	}
	for _, pending := range started {
		requireClass(t, "unknown", wait(t, pending))
	}

	px.beDeaf(false)
	for _, e := range sent {
		publishSoon(t, p, e)
	}
	b.requireStored(sent...)
}

func TestCloseEndsWhatIsPending(t *testing.T) {
	t.Parallel()
	b, px := between(t)
	p := connect(t, px.url())
	px.be(true, false)
	all := events(10)
	started := start(t, p, all...)
	p.Close()
	for _, pending := range started {
		requireClass(t, "unknown", wait(t, pending))
	}
	_, err := p.Start(t.Context(), all[0])
	requireClass(t, "unavailable", err)
	requireUnavailableBelow(t, p)
	p.Close()

	px.be(false, false)
	again := connect(t, px.url())
	for _, e := range all {
		require.NoError(t, publish(t, again, e))
	}
	b.requireStored(all...)
}

func TestCloseWhileTheConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	_, px := between(t)
	p := connect(t, px.url(), func(c *Config) { c.Options = append(c.Options, natsgo.ReconnectWait(time.Hour)) })
	px.say("-ERR 'Something New'")
	require.Eventually(t, p.link.Load().conn.IsClosed, patience, time.Millisecond)
	p.Close()
}
