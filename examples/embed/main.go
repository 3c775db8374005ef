// Command embed is an existing service with notifyq in it: an order and its message in one transaction, and a worker.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/devdb"
	"github.com/notifyq/notifyq/migrate"
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	db, err := devdb.Start(ctx, devdb.Config{URL: os.Getenv("DATABASE_URL")}) // your own database, or one for this demo
	check(err)
	defer func() { check(db.Stop()) }()
	pool, err := pgxpool.New(ctx, db.URL())
	check(err)
	defer pool.Close()
	_, err = migrate.Up(ctx, pool, migrate.Options{})
	check(err)

	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{})
	check(err)
	sent := make(chan notifyq.Delivery, 1)
	provider := notifyq.ProviderFunc(func(_ context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
		sent <- d // call your provider here, with d.Key as its idempotency key
		return notifyq.Receipt{ProviderID: "demo"}, nil
	})
	worker, err := notifyq.NewWorker(pool, notifyq.WorkerConfig{
		Client:    client, // optional: what it schedules is delivered at once instead of at the next poll
		Providers: map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelSMS: {Provider: provider}},
	})
	check(err)
	work, drain := context.WithCancel(ctx)
	drained := make(chan error)
	go func() { drained <- worker.Run(work) }()

	check(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // the service's own transaction
		_, err := client.ScheduleTx(ctx, tx, notifyq.Notification{
			IdempotencyKey: "order-" + time.Now().String(), Recipient: "+15550100", Channel: notifyq.ChannelSMS,
			Payload: []byte(`{"text":"Your order is on its way."}`),
		})
		return err // after an error, or a crash before the commit, the message never existed
	}))
	client.Wake()
	fmt.Printf("delivered %s\n", (<-sent).Payload)
	drain()
	check(<-drained)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
