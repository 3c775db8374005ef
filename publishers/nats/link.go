package nats

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	connectionName = "notifyq"
	// writeTimeout bounds how long a server that reads nothing holds up Start. The client's own is a minute.
	writeTimeout = 5 * time.Second
	// A connection that went silent is given up after two to three of these. The client's own are 2 min.
	pingInterval = 20 * time.Second
	// maxInFlight only stops a runaway: how many events are on their way is the relay's business. The client's own limit
	// of 4,000 would hold up a relay with more slots.
	maxInFlight = 1 << 16
)

var errNotConnected = errors.New("nats: not connected")

// link is one connection of the client, and the futures of what was sent over it.
type link struct {
	conn *natsgo.Conn
	js   jetstream.JetStream
	log  *slog.Logger

	// up is kept here because the client holds its lock while it looks up names and dials: to ask it would hang.
	up    atomic.Bool
	cause atomic.Pointer[error] // why it is not up, if that is known
	dead  chan struct{}         // closed when the client has closed the connection for good
	lost  chan struct{}         // closed when nothing more comes from it
}

// dial opens a connection. If no server answers it returns all the same, and connects in the background.
func dial(cfg Config, inFlight int) (*link, error) {
	l := &link{log: cfg.Logger, dead: make(chan struct{}), lost: make(chan struct{})}
	options := append(l.defaults(), cfg.Options...)
	conn, err := natsgo.Connect(cfg.URL, append(options, l.rules)...)
	if err != nil {
		var malformed *url.Error
		if errors.As(err, &malformed) { // it quotes the URL
			err = malformed.Err
		}
		return nil, fmt.Errorf("nats: connect: %w", err)
	}
	l.conn = conn
	l.js, err = jetstream.New(conn,
		jetstream.WithPublishAsyncTimeout(cfg.AckTimeout), jetstream.WithPublishAsyncMaxPending(inFlight))
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("nats: %w", err)
	}
	if conn.IsConnected() { // before the client calls back
		l.up.Store(true)
	}
	return l, nil
}

// close ends the connection, once. What is pending hears of it from us: the client leaves it to its timeout.
func (l *link) close() {
	l.up.Store(false)
	close(l.lost)
	l.conn.Close()
}

func (l *link) defaults() []natsgo.Option {
	return []natsgo.Option{
		natsgo.Name(connectionName),
		natsgo.FlusherTimeout(writeTimeout),
		natsgo.PingInterval(pingInterval),
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
			l.log.Warn("nats.error", "error", plain(err))
		}),
	}
}

// rules are what a relay needs of a connection.
func (l *link) rules(o *natsgo.Options) error {
	o.ReconnectBufSize = -1 // what is buffered goes out after it was reported as failed, or never
	o.AllowReconnect, o.MaxReconnect = true, -1
	o.RetryOnFailedConnect = true
	o.IgnoreAuthErrorAbort = true    // else two refusals in a row, as in a rotation of credentials, are the end
	o.ReconnectOnFlusherError = true // else what a failed write swallowed is noticed by its timeout only

	connected, reconnected, disconnected := o.ConnectedCB, o.ReconnectedCB, o.DisconnectedErrCB
	failed, closed := o.ReconnectErrCB, o.ClosedCB
	o.ConnectedCB = func(c *natsgo.Conn) { l.connected(); call(connected, c) }
	o.ReconnectedCB = func(c *natsgo.Conn) { l.connected(); call(reconnected, c) }
	o.DisconnectedErrCB = func(c *natsgo.Conn, err error) { l.disconnected(err); callErr(disconnected, c, err) }
	o.ReconnectErrCB = func(c *natsgo.Conn, err error) { l.failed(err); callErr(failed, c, err) }
	o.ClosedCB = func(c *natsgo.Conn) { l.closed(c.LastError()); call(closed, c) }
	return nil
}

func (l *link) connected() {
	l.cause.Store(nil)
	l.up.Store(true)
	l.log.Info("nats.connected")
}

func (l *link) disconnected(err error) {
	l.up.Store(false)
	l.failed(err)
}

// failed keeps and logs why there is no connection, once for all attempts that fail in the same way.
func (l *link) failed(err error) {
	if err == nil {
		return // disconnected by ourselves
	}
	err = plain(err)
	if last := l.cause.Swap(&err); last == nil || (*last).Error() != err.Error() {
		l.log.Warn("nats.not_connected", "error", err)
	}
}

func (l *link) closed(err error) {
	l.up.Store(false)
	select {
	case <-l.lost: // it was our own doing
	default:
		l.failed(err)
	}
	close(l.dead)
}

func call(handler natsgo.ConnHandler, c *natsgo.Conn) {
	if handler != nil {
		handler(c)
	}
}

func callErr(handler natsgo.ConnErrHandler, c *natsgo.Conn, err error) {
	if handler != nil {
		handler(c, err)
	}
}
