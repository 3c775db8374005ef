package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// message is River's job: what a notification has, as River's users would write it.
type message struct {
	Recipient string            `json:"recipient"`
	Channel   string            `json:"channel"`
	Payload   map[string]string `json:"payload"`
}

func (message) Kind() string { return "notify" }

func newMessage(t task, i int) message {
	return message{
		Recipient: fmt.Sprintf("user%d@example.test", i), Channel: "EMAIL",
		Payload: map[string]string{"subject": "hi", "body": bodyText(t)},
	}
}

// messenger is its worker, which does nothing.
type messenger struct {
	river.WorkerDefaults[message]
	n  atomic.Int64
	on func(*river.Job[message])
}

func (m *messenger) Work(_ context.Context, job *river.Job[message]) error {
	if m.on != nil {
		m.on(job)
	}
	m.n.Add(1)
	return nil
}

// openRiver makes River's tables and a client set for throughput: 2,000 workers at a fetch cooldown of 2 ms were its best
// on two cores.
func openRiver(ctx context.Context, t task, w *messenger) (*pgxpool.Pool, *river.Client[pgx.Tx], error) {
	pool, err := openPool(ctx, t.DSN)
	if err != nil {
		return nil, nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, nil, err
	}
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, w); err != nil {
		return nil, nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		Workers:       workers,
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	return pool, client, err
}

func fillRiver(ctx context.Context, t task, client *river.Client[pgx.Tx]) error {
	const atOnce = 5000
	for i := 0; i < t.Jobs; i += atOnce {
		batch := make([]river.InsertManyParams, min(atOnce, t.Jobs-i))
		for j := range batch {
			batch[j].Args = newMessage(t, i+j)
		}
		if _, err := client.InsertManyFast(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func drainRiver(ctx context.Context, t task) (figures, error) {
	w := &messenger{}
	pool, client, err := openRiver(ctx, t, w)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := fillRiver(ctx, t, client); err != nil {
		return nil, err
	}
	out := figures{}
	m, err := settle(ctx, pool, t, "river_job")
	if err != nil {
		return nil, err
	}
	m.start(ctx)
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	const left = "select exists (select from river_job where state <> 'completed')"
	if err := emptied(ctx, pool, left, func() bool { return w.n.Load() >= int64(t.Jobs) }); err != nil {
		return nil, err
	}
	if err := m.stop(ctx, t.Jobs, out); err != nil {
		return nil, err
	}
	return out, client.Stop(ctx)
}
