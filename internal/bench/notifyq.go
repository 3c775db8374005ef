package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/migrate"
)

// The settings for throughput, of which the README's table tells what they cost.
const (
	fastConcurrency = 500
	fastBatchSize   = 4000
)

// queue is notifyq with its tables made.
type queue struct {
	pool   *pgxpool.Pool
	client *notifyq.Client
}

func openQueue(ctx context.Context, t task) (*queue, error) {
	pool, err := openPool(ctx, t.DSN)
	if err != nil {
		return nil, err
	}
	if _, err := migrate.Up(ctx, pool, migrate.Options{}); err != nil {
		return nil, err
	}
	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{})
	if err != nil {
		return nil, err
	}
	return &queue{pool, client}, nil
}

func openPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 20
	return pgxpool.NewWithConfig(ctx, cfg)
}

// notification is the i-th: every one to another recipient, as River's jobs are.
func notification(t task, i int) notifyq.Notification {
	return notifyq.Notification{
		IdempotencyKey: fmt.Sprintf("key-%d", i), Recipient: fmt.Sprintf("user%d@example.test", i),
		Channel: notifyq.ChannelEmail, Payload: []byte(fmt.Sprintf(`{"subject":"hi","body":%q}`, bodyText(t))),
	}
}

// bodyText is what a message says.
func bodyText(t task) string {
	if t.PayloadBytes == 0 {
		return "hello there"
	}
	return strings.Repeat("x", t.PayloadBytes)
}

// fill schedules t.Jobs, as many a call as may be.
func (q *queue) fill(ctx context.Context, t task, from int) error {
	const atOnce = 5000
	for i := 0; i < t.Jobs; i += atOnce {
		ns := make([]notifyq.Notification, min(atOnce, t.Jobs-i))
		for j := range ns {
			ns[j] = notification(t, from+i+j)
		}
		many, err := q.client.ScheduleMany(ctx, ns)
		if err != nil {
			return err
		}
		for _, s := range many {
			if s.Err != nil {
				return s.Err
			}
		}
	}
	return nil
}

// counting is a provider that accepts everything at once.
type counting struct{ n atomic.Int64 }

func (c *counting) Deliver(context.Context, notifyq.Delivery) (notifyq.Receipt, error) {
	c.n.Add(1)
	return notifyq.Receipt{}, nil
}

func (q *queue) worker(t task, p notifyq.Provider) (*notifyq.Worker, error) {
	cfg := notifyq.WorkerConfig{
		Client:      q.client,
		Providers:   map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelEmail: {Provider: p}},
		Concurrency: fastConcurrency, BatchSize: fastBatchSize, RecordEvents: true,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if t.Concurrency > 0 {
		cfg.Concurrency = t.Concurrency
	}
	if t.BatchSize > 0 {
		cfg.BatchSize = t.BatchSize
	}
	if t.Limited {
		cfg.RateLimits = []notifyq.RateLimit{{Max: 5, Window: time.Hour}}
	}
	return notifyq.NewWorker(q.pool, cfg)
}

// running runs a worker; the returned function stops it and returns what Run did.
func running(ctx context.Context, w *notifyq.Worker) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// drainNotifyq measures from the start of the workers until no due job is left in the queue.
func drainNotifyq(ctx context.Context, t task) (figures, error) {
	q, err := openQueue(ctx, t)
	if err != nil {
		return nil, err
	}
	defer q.pool.Close()
	if err := q.past(ctx, t); err != nil {
		return nil, err
	}
	if err := q.fill(ctx, t, 0); err != nil {
		return nil, err
	}
	m, err := settle(ctx, q.pool, t, "notifyq.notification_queue")
	if err != nil {
		return nil, err
	}
	p := &counting{}
	if t.Workers > 1 {
		p = nil
	}
	m.start(ctx)
	stop, err := q.startWorkers(ctx, t, p)
	if err != nil {
		return nil, err
	}
	const left = "select exists (select from notifyq.notification_queue where next_attempt_at <= now() or status = 1)"
	if err := emptied(ctx, q.pool, left, func() bool { return p == nil || p.n.Load() >= int64(t.Jobs) }); err != nil {
		return nil, err
	}
	out := figures{}
	if err := m.stop(ctx, t.Jobs, out); err != nil {
		return nil, err
	}
	if err := stop(); err != nil {
		return nil, err
	}
	return out, q.check(ctx, t)
}

// startWorkers runs one worker here, or several in processes of their own.
func (q *queue) startWorkers(ctx context.Context, t task, p *counting) (stop func() error, err error) {
	if p != nil {
		w, err := q.worker(t, p)
		if err != nil {
			return nil, err
		}
		return running(ctx, w), nil
	}
	t.Do = "notifyq worker"
	ctx, cancel := context.WithCancel(ctx)
	var all []*child
	for range t.Workers {
		c, err := startChild(ctx, t)
		if err != nil {
			cancel()
			return nil, err
		}
		all = append(all, c)
	}
	return func() (err error) {
		for _, c := range all {
			_ = c.cmd.Process.Signal(syscall.SIGTERM)
		}
		for _, c := range all {
			_, waited := c.wait(ctx)
			err = errors.Join(err, waited)
		}
		cancel()
		return err
	}, nil
}

// workNotifyq is one of several workers, until it is stopped.
func workNotifyq(ctx context.Context, t task) (figures, error) {
	pool, err := openPool(ctx, t.DSN)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{})
	if err != nil {
		return nil, err
	}
	q, p := &queue{pool, client}, &counting{}
	w, err := q.worker(t, p)
	if err != nil {
		return nil, err
	}
	err = w.Run(ctx)
	return figures{"jobs": float64(p.n.Load())}, err
}

// past makes a history of finished jobs, or jobs that are due tomorrow, straight in the tables.
func (q *queue) past(ctx context.Context, t task) error {
	rows := t.Finished + t.Tomorrow
	const atOnce = 250_000
	for from := 0; from < rows; from += atOnce {
		if _, err := q.pool.Exec(ctx, pastSQL, from, min(from+atOnce, rows)-1, t.Tomorrow > 0); err != nil {
			return err
		}
	}
	return nil
}

// pastSQL makes ids of a year ago that are in order, as they would have been then.
const pastSQL = `
with made as materialized (
    select (lpad(to_hex((extract(epoch from now() - interval '365 days') * 1000)::bigint + i / 10), 12, '0') || '7'
            || lpad(to_hex(i % 4096), 3, '0') || '8' || right(md5(i::text), 15))::uuid as id,
           i, case when $3 then now() + interval '1 day' else now() - interval '365 days' end as at
      from generate_series($1::int, $2::int) i
), asked as (
    insert into notifyq.notifications (id, idempotency_key, request_fingerprint, recipient, recipient_key, channel, payload,
                                       priority, scheduled_at, max_attempts, created_at)
    select id, 'past-' || i, sha256(i::text::bytea), 'past' || i || '@example.test', 'past' || i || '@example.test', 'EMAIL',
           '{"subject":"hi","body":"hello there"}', 2, at, 4, now() - interval '365 days' from made
), waiting as (
    insert into notifyq.notification_queue (id, next_attempt_at, updated_at, priority, max_attempts, tenant, channel)
    select id, at, now(), 2, 4, '', 'EMAIL' from made where $3
), ended as (
    insert into notifyq.notification_outcomes (id, finished_at, first_attempt_at, status, attempt_count, max_attempts, tenant)
    select id, at, at, 2, 1, 4, '' from made where not $3
)
insert into notifyq.outbox_events (id, job_id, status, redrive_count, created_at, next_attempt_at, published_at, body)
select notifyq.event_id(id, 2::smallint, 0), id, 2, 0, at, at, at, '{}' from made where not $3`

// check makes sure that the figure is one of work that was done.
func (q *queue) check(ctx context.Context, t task) error {
	var outcomes, events, broken int
	err := q.pool.QueryRow(ctx, `select (select count(*) from notifyq.notification_outcomes where status = 2),
		(select count(*) from notifyq.outbox_events),
		case when $1 then 0 else (select count(*) from notifyq.check_invariants()) end`, t.Finished+t.Tomorrow > 0).Scan(&outcomes, &events, &broken)
	if want := t.Jobs + t.Finished; err == nil && (outcomes != want || events != want || broken != 0) {
		err = fmt.Errorf("%d outcomes and %d events of %d jobs, %d invariants broken", outcomes, events, want, broken)
	}
	return err
}
