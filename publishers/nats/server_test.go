package nats

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

const (
	testStream = "EVENTS"
	testTopic  = "test.event"
	// patience is for what has to happen; nothing waits for it to pass.
	patience = 10 * time.Second
	// silence is how long something is given that must not happen.
	silence = 50 * time.Millisecond
)

// broker is a NATS server inside the test, and a connection of the test's own that sees what is really stored.
type broker struct {
	t    *testing.T
	opts *server.Options
	srv  *server.Server
	conn *natsgo.Conn
	js   jetstream.JetStream
}

// startBroker starts a server whose stream takes test.>.
func startBroker(t *testing.T, configure ...func(*server.Options)) *broker {
	t.Helper()
	b := prepareBroker(t, configure...)
	b.start()
	b.createStream(jetstream.StreamConfig{Name: testStream, Subjects: []string{"test.>"}})
	return b
}

func prepareBroker(t *testing.T, configure ...func(*server.Options)) *broker {
	b := &broker{t: t, opts: &server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	for _, c := range configure {
		c(b.opts)
	}
	t.Cleanup(b.stop)
	return b
}

func (b *broker) start() {
	b.t.Helper()
	var err error
	b.srv, err = server.NewServer(b.opts.Clone())
	require.NoError(b.t, err)
	b.srv.Start()
	require.True(b.t, b.srv.ReadyForConnections(patience))
	b.opts.Port = b.srv.Addr().(*net.TCPAddr).Port // so that it comes back where it was
	user, password := b.opts.Username, b.opts.Password
	if len(b.opts.Users) > 0 {
		user, password = b.opts.Users[0].Username, b.opts.Users[0].Password
	}
	b.conn, err = natsgo.Connect(b.url(), natsgo.InProcessServer(b.srv), natsgo.NoReconnect(), natsgo.UserInfo(user, password))
	require.NoError(b.t, err)
	b.js, err = jetstream.New(b.conn)
	require.NoError(b.t, err)
}

func (b *broker) stop() {
	if b.srv == nil {
		return
	}
	b.conn.Close()
	b.srv.Shutdown()
	b.srv.WaitForShutdown()
	b.srv = nil
}

func (b *broker) reload(change func(*server.Options)) {
	b.t.Helper()
	change(b.opts)
	require.NoError(b.t, b.srv.ReloadOptions(b.opts.Clone()))
}

func (b *broker) url() string { return b.srv.ClientURL() }

func (b *broker) createStream(cfg jetstream.StreamConfig) {
	b.t.Helper()
	cfg.Storage = jetstream.FileStorage
	_, err := b.js.CreateOrUpdateStream(context.Background(), cfg)
	require.NoError(b.t, err)
}

// stored is what the stream holds behind a sequence number.
func (b *broker) stored(after uint64) []*jetstream.RawStreamMsg {
	b.t.Helper()
	stream, err := b.js.Stream(context.Background(), testStream)
	require.NoError(b.t, err)
	var all []*jetstream.RawStreamMsg
	for sequence := after + 1; sequence <= stream.CachedInfo().State.LastSeq; sequence++ {
		msg, err := stream.GetMsg(context.Background(), sequence)
		require.NoError(b.t, err)
		all = append(all, msg)
	}
	return all
}

// requireStored compares the ids in the stream with those of the events, in any order.
func (b *broker) requireStored(events ...notifyq.Event) {
	b.t.Helper()
	want, got := []string{}, []string{}
	for _, e := range events {
		want = append(want, e.ID.String())
	}
	for _, msg := range b.stored(0) {
		got = append(got, msg.Header.Get(jetstream.MsgIDHeader))
	}
	require.ElementsMatch(b.t, want, got)
}

// quick makes a publisher come back soon.
func quick() []natsgo.Option {
	return []natsgo.Option{natsgo.ReconnectWait(5 * time.Millisecond), natsgo.ReconnectJitter(0, 0)}
}

// connect makes a publisher that waits a minute for acknowledgements: what ends sooner was noticed.
func connect(t *testing.T, url string, change ...func(*Config)) *Publisher {
	t.Helper()
	cfg := Config{URL: url, Options: quick(), AckTimeout: time.Minute, Logger: discard()}
	for _, c := range change {
		c(&cfg)
	}
	p, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func event() notifyq.Event {
	return notifyq.Event{ID: uuid.New(), Topic: testTopic, Key: "k", Body: []byte("body"), CreatedAt: time.Now(), Attempt: 1}
}

func events(n int) []notifyq.Event {
	all := make([]notifyq.Event, n)
	for i := range all {
		all[i] = event()
	}
	return all
}

// start begins what has to begin.
func start(t *testing.T, p *Publisher, all ...notifyq.Event) []notifyq.Pending {
	t.Helper()
	var started []notifyq.Pending
	for _, e := range all {
		pending, err := p.Start(t.Context(), e)
		require.NoError(t, err)
		started = append(started, pending)
	}
	return started
}

func wait(t *testing.T, pending notifyq.Pending) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := pending.Wait(ctx)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	return err
}

func publish(t *testing.T, p *Publisher, e notifyq.Event) error {
	t.Helper()
	pending, err := p.Start(t.Context(), e)
	if err != nil {
		return err
	}
	return wait(t, pending)
}

// publishSoon makes attempts, as a relay does, until one is acknowledged.
func publishSoon(t *testing.T, p *Publisher, e notifyq.Event) {
	t.Helper()
	require.Eventually(t, func() bool { return publish(t, p, e) == nil }, patience, time.Millisecond)
}

func requireClass(t *testing.T, class string, err error) {
	t.Helper()
	got := "unknown"
	switch {
	case err == nil:
		got = "acknowledged"
	case notifyq.IsUnavailable(err):
		got = "unavailable"
	case notifyq.IsNotSent(err):
		got = "not sent"
	case notifyq.IsRejected(err):
		got = "rejected"
	}
	if notifyq.IsPermanent(err) {
		got += ", permanent"
	}
	require.Equal(t, class, got, "%v", err)
}
