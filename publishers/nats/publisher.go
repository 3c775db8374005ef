package nats

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/notifyq/notifyq"
)

// Publisher sends events to JetStream. It is safe for concurrent use, and can serve several relays.
type Publisher struct {
	cfg      Config // with defaults filled in
	inFlight int
	link     atomic.Pointer[link]
	stop     func()
	stopped  chan struct{}
	done     chan struct{}
}

var _ notifyq.Publisher = (*Publisher)(nil)

// New checks the configuration, connects, and returns without an error if no server answers: each is waited for at most
// 2 s (nats.Timeout), and then tried again in the background for as long as it takes. The error for a bad field is a
// *notifyq.InvalidError, which names it and never shows its value; any other is of one of the Options. Close ends the
// connection.
func New(cfg Config) (*Publisher, error) { return open(cfg, maxInFlight) }

func open(cfg Config, inFlight int) (*Publisher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.AckTimeout = cmp.Or(cfg.AckTimeout, DefaultAckTimeout)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Subject == nil {
		cfg.Subject = func(e notifyq.Event) string { return e.Topic }
	}
	l, err := dial(cfg, inFlight)
	if err != nil {
		return nil, err
	}
	p := &Publisher{cfg: cfg, inFlight: inFlight, stopped: make(chan struct{}), done: make(chan struct{})}
	p.stop = sync.OnceFunc(func() { close(p.stopped) })
	p.link.Store(l)
	go p.keep(l)
	return p, nil
}

// Start hands an event to the connection and returns. The package comment has the outcomes. It does not wait for the
// server, but for up to 5 s (nats.FlusherTimeout) while that reads nothing of what it is sent.
func (p *Publisher) Start(ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
	msg, err := p.message(e)
	if err != nil {
		return nil, notifyq.Permanent(notifyq.NotSent(fmt.Errorf("nats: %w", err)))
	}
	if ctx.Err() != nil {
		return nil, notifyq.NotSent(fmt.Errorf("nats: %w", context.Cause(ctx)))
	}
	l := p.link.Load()
	if !l.up.Load() {
		return nil, p.away(l)
	}
	// The client is not to repeat it when no stream answers: that's the relay's work, and a repetition that meets a
	// disconnect can leave the client locked for ever.
	future, err := l.js.PublishMsgAsync(msg, jetstream.WithRetryAttempts(0))
	if err != nil {
		return nil, startError(err, l.conn.MaxPayload)
	}
	msg.Data = nil // it has been copied, and the future outlives a Wait that gives up
	return &pending{future: future, lost: l.lost, stream: p.cfg.Stream}, nil
}

// away is the error of an event that is not sent because there is no connection.
func (p *Publisher) away(l *link) error {
	err := errNotConnected
	if cause := l.cause.Load(); cause != nil {
		err = fmt.Errorf("%w: %w", err, *cause)
	}
	select {
	case <-p.stopped:
		err = errClosed
	default:
	}
	return notifyq.Unavailable(err)
}

// Close ends the connection and waits for that. What still waits for its acknowledgement gets an unknown outcome, and
// every later Start is Unavailable, so it belongs after the end of the relay. It may be called more than once.
func (p *Publisher) Close() {
	p.stop()
	<-p.done
}

// String is the servers without user, password and token.
func (p *Publisher) String() string { return p.cfg.String() }

// keep replaces the connection whenever the client has given it up. It does that at any complaint of the server that it
// does not know to be harmless: the one about a message over the limit is of these, and comes when the limit was lowered
// after the server had announced it.
func (p *Publisher) keep(l *link) {
	defer close(p.done)
	for l != nil {
		select {
		case <-l.dead:
			l.close()
			l = p.redial(l)
		case <-p.stopped:
			l.close()
			return
		}
	}
}

// redial returns the successor of l, or nil if the publisher is closed first.
func (p *Publisher) redial(l *link) *link {
	pause := time.NewTicker(max(l.conn.Opts.ReconnectWait, time.Millisecond))
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-p.stopped:
			return nil
		}
		next, err := dial(p.cfg, p.inFlight)
		if err == nil {
			p.link.Store(next)
			return next
		}
		l.failed(err)
	}
}
