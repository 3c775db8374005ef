// Command nats is a shop that tells the rest of the company about its orders through NATS JetStream: an order and its
// event are written in one transaction, a relay publishes the event, and a receiver handles it once.
//
//	go run ./examples/nats
//
// It needs nothing set up: PostgreSQL is started from local binaries, or DATABASE_URL names one, and the NATS server runs
// inside. It ends by itself, and nothing is left behind.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/publishers/nats"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	db, err := openDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	broker, err := startBroker(ctx)
	if err != nil {
		return err
	}
	defer broker.stop()

	logger := slog.New(slog.DiscardHandler) // yours, in earnest
	client, err := notifyq.NewClient(db.pool, notifyq.ClientConfig{Schema: db.schema, Logger: logger})
	if err != nil {
		return err
	}
	publisher, err := nats.New(nats.Config{URL: broker.url(), SubjectPrefix: "shop.", Stream: streamName, Logger: logger})
	if err != nil {
		return err
	}
	defer publisher.Close()
	relay, err := notifyq.NewRelay(db.pool, notifyq.RelayConfig{
		Publisher: publisher, Schema: db.schema, Client: client, Logger: logger,
	})
	if err != nil {
		return err
	}
	work, drain := context.WithCancel(ctx)
	drained := make(chan error, 1)
	go func() { drained <- relay.Run(work) }()
	defer func() {
		drain()
		err = errors.Join(err, <-drained)
	}()

	shop := &shop{db: db, client: client}
	if err := shop.sell(ctx, out); err != nil {
		return err
	}
	return receive(ctx, broker, out, 2)
}

// shop is the service. Its orders are its own business, and so are its events.
type shop struct {
	db     *database
	client *notifyq.Client
}

var errOutOfStock = errors.New("out of stock")

// sell places two orders, and a third that fails after its event was written.
func (s *shop) sell(ctx context.Context, out io.Writer) error {
	for id, item := range []string{"tea", "cups", "a kettle"} {
		err := s.placeOrder(ctx, id+1, item)
		switch {
		case errors.Is(err, errOutOfStock):
			fmt.Fprintf(out, "order %d: %s, %v: rolled back, and its event with it\n", id+1, item, err)
		case err != nil:
			return err
		default:
			fmt.Fprintf(out, "order %d: %s\n", id+1, item)
		}
	}
	return nil
}

func (s *shop) placeOrder(ctx context.Context, id int, item string) error {
	err := pgx.BeginFunc(ctx, s.db.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into "+s.db.orders+" (id, item) values ($1, $2)", id, item); err != nil {
			return err
		}
		body, err := json.Marshal(map[string]any{"order": id, "item": item})
		if err != nil {
			return err
		}
		_, err = s.client.PublishTx(ctx, tx, notifyq.Event{
			Topic: "order.placed", Key: fmt.Sprintf("order-%d", id), Body: body,
		})
		if err == nil && item == "a kettle" {
			return errOutOfStock
		}
		return err
	})
	if err == nil {
		s.client.Wake() // the relay need not wait for its next poll
	}
	return err
}
