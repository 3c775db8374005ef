package nats

import (
	"context"
	"errors"
	"fmt"
	"net"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/notifyq/notifyq"
)

var (
	errClosed      = errors.New("nats: the publisher is closed")
	errNoStream    = errors.New("nats: no stream takes the subject")
	errWrongStream = errors.New("nats: another stream than the configured one acknowledged")
	errLost        = errors.New("nats: the connection was closed before an acknowledgement")
	errNoAck       = errors.New("nats: no acknowledgement in time")
)

// startError gives an error of handing a message to the client its class.
func startError(err error, limit func() int64) error {
	switch {
	case errors.Is(err, natsgo.ErrMaxPayload):
		return notifyq.Permanent(notifyq.Rejected(
			fmt.Errorf("%w: with its headers, the message is over the server's %d bytes", err, limit())))
	case errors.Is(err, jetstream.ErrTooManyStalledMsgs):
		return notifyq.NotSent(err)
	case errors.Is(err, natsgo.ErrReconnectBufExceeded), // no buffer: there is no connection now
		errors.Is(err, natsgo.ErrHeadersNotSupported), // that's what one says that was never connected
		errors.Is(err, natsgo.ErrConnectionClosed),
		errors.Is(err, natsgo.ErrConnectionDraining),
		errors.Is(err, natsgo.ErrInvalidConnection):
		return notifyq.Unavailable(err)
	}
	return fmt.Errorf("nats: publish: %w", plain(err)) // a write may have failed after the last byte
}

// ackError gives the answer to a message its class.
func ackError(err error) error {
	var refusal *jetstream.APIError
	switch {
	case errors.As(err, &refusal) && refusal.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return notifyq.Permanent(notifyq.Rejected(refusal))
	case errors.As(err, &refusal):
		return notifyq.Rejected(refusal)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return notifyq.Rejected(errNoStream)
	case errors.Is(err, jetstream.ErrAsyncPublishTimeout):
		return errNoAck
	}
	return err // disconnected, or an answer that is no acknowledgement: it may be stored
}

// pending is a message whose acknowledgement is to come.
type pending struct {
	future jetstream.PubAckFuture
	lost   <-chan struct{} // no answer comes any more
	stream string          // the only one that may acknowledge, or empty
}

// Wait returns nil once the message is in the stream. That it was there before, from an earlier attempt, is as good.
func (p *pending) Wait(ctx context.Context) error {
	select {
	case ack := <-p.future.Ok():
		return p.accepted(ack)
	case err := <-p.future.Err():
		return ackError(err)
	case <-p.lost:
	case <-ctx.Done():
	}
	select { // an answer that came at the same time is worth more
	case ack := <-p.future.Ok():
		return p.accepted(ack)
	case err := <-p.future.Err():
		return ackError(err)
	default:
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errNoAck, context.Cause(ctx))
	}
	return errLost
}

func (p *pending) accepted(ack *jetstream.PubAck) error {
	if p.stream != "" && ack.Stream != p.stream {
		return errWrongStream
	}
	return nil
}

// plain takes hosts and addresses out of a network error.
func plain(err error) error {
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		return fmt.Errorf("lookup: %s", lookup.Err)
	}
	var network *net.OpError
	if errors.As(err, &network) {
		return fmt.Errorf("%s: %w", network.Op, network.Err)
	}
	return err
}
