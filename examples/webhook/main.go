// Command webhook tells another service what became of a message: a worker with a webhook publisher, and a receiver that
// verifies what it gets, and does each thing once. It ends by itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/devdb"
	"github.com/notifyq/notifyq/migrate"
	"github.com/notifyq/notifyq/publishers/webhook"
)

const secret = "whsec_bm90aWZ5cSBleGFtcGxlIHNlY3JldCBrZXk=" // yours comes from your settings

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	db, err := devdb.Start(ctx, devdb.Config{URL: os.Getenv("DATABASE_URL")}) // your own database, or one for this demo
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Stop()) }()
	pool, err := pgxpool.New(ctx, db.URL())
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = migrate.Up(ctx, pool, migrate.Options{})
	if err != nil {
		return err
	}

	receiver := &receiver{seen: map[string]int{}, done: make(chan struct{})}
	server := httptest.NewServer(receiver)
	defer server.Close()
	publisher, err := webhook.New(webhook.Config{
		URL:        server.URL,
		Secrets:    []string{secret},
		AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // private addresses are refused otherwise
	})
	if err != nil {
		return err
	}
	defer publisher.CloseIdleConnections()

	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{})
	if err != nil {
		return err
	}
	worker, err := notifyq.NewWorker(pool, notifyq.WorkerConfig{
		Client:    client,
		Publisher: publisher, // records the outcomes, and publishes them
		Providers: map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelSMS: {Provider: notifyq.ProviderFunc(
			func(context.Context, notifyq.Delivery) (notifyq.Receipt, error) { return notifyq.Receipt{}, nil })}},
	})
	if err != nil {
		return err
	}
	work, drain := context.WithCancel(ctx)
	drained := make(chan error, 1)
	go func() { drained <- worker.Run(work) }()
	defer func() {
		drain()
		err = errors.Join(err, <-drained)
	}()

	_, err = client.Schedule(ctx, notifyq.Notification{
		IdempotencyKey: "order-" + time.Now().String(), Recipient: "+15550100", Channel: notifyq.ChannelSMS,
		Payload: []byte(`{"text":"Your order is on its way."}`),
	})
	if err != nil {
		return err
	}
	select {
	case <-receiver.done:
	case <-ctx.Done():
	}
	return nil
}

// receiver is the other service.
type receiver struct {
	mu   sync.Mutex
	seen map[string]int // in earnest a table, written in the transaction that acts on the event
	done chan struct{}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 2<<20))
	if err != nil {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	}
	id, err := notifyq.VerifyWebhook(req.Header, body, []string{secret}, 0)
	if err != nil {
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.seen[id]++; r.seen[id] {
	case 1:
		fmt.Printf("received %s\n", body)
		w.WriteHeader(http.StatusServiceUnavailable) // as if this service had died before it could answer
	case 2:
		fmt.Println("it came again under the same id, and is known: answered with 200")
		close(r.done)
	}
}
