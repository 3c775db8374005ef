package main

import (
	"context"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"
)

// receive is another service. It handles as many events as it is told to, each of them once: an event can come again, when
// the relay or the receiver was interrupted, and has the same id then.
func receive(ctx context.Context, b *broker, out io.Writer, events int) error {
	consumer, err := b.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "billing"})
	if err != nil {
		return err
	}
	handled := make(map[string]bool) // in earnest a table, written in the transaction that handles the event
	for again := 0; len(handled) < events || again == 0; {
		msg, err := consumer.Next(jetstream.FetchContext(ctx))
		if err != nil {
			return err
		}
		id := msg.Headers().Get(jetstream.MsgIDHeader)
		if handled[id] {
			fmt.Fprintf(out, "%s came again, and is known\n", msg.Subject())
			again++
			if err := msg.Ack(); err != nil {
				return err
			}
			continue
		}
		handled[id] = true
		fmt.Fprintf(out, "%s: %s\n", msg.Subject(), msg.Data())
		acknowledge := msg.Ack
		if len(handled) == 1 {
			acknowledge = msg.Nak // as if this process had died before it could acknowledge
		}
		if err := acknowledge(); err != nil {
			return err
		}
	}
	return nil
}
