package notifyqtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/store"
)

const (
	pollEvery = 10 * time.Millisecond
	// soon is how far ahead a due time still counts as now: retries wait about a millisecond here.
	soon = 50 * time.Millisecond
)

// RunDue delivers everything that is due in the channels of cfg.Providers, one job after another, highest priority first
// and oldest due time first, and returns when none is due any more. Retries follow at once instead of after their
// backoff, so a job runs to its end: SENT, FAILED, DEAD_LETTERED, or a wait that a provider or a rate limit asked for.
// Jobs for later stay as they are. With a cfg.Publisher the events that are due are published too, those of PublishTx among
// them.
//
// cfg needs Providers; its Concurrency, BatchSize, PollInterval and Retry are replaced, and Logger is silent if nil. A
// provider that keeps answering Misconfigured keeps its jobs due: give ctx a deadline.
func RunDue(ctx context.Context, pool *pgxpool.Pool, cfg notifyq.WorkerConfig) error {
	cfg.Schema = cmp.Or(cfg.Schema, notifyq.DefaultSchema)
	cfg.Concurrency, cfg.BatchSize, cfg.PollInterval, cfg.PollOnly = 1, 1, pollEvery, true
	cfg.Retry = notifyq.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}
	if cfg.Publisher != nil {
		cfg.Relay.PollInterval, cfg.Relay.Retry = pollEvery, cfg.Retry
	}
	cfg.Providers = maps.Clone(cfg.Providers)
	for channel, p := range cfg.Providers {
		p.Concurrency = 0
		cfg.Providers[channel] = p
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	worker, err := notifyq.NewWorker(pool, cfg)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- worker.Run(running) }()
	err = awaitQuiet(ctx, pool, cfg, done)
	stop()
	return errors.Join(err, <-done)
}

// awaitQuiet returns when nothing is due and nothing is being delivered or published.
func awaitQuiet(ctx context.Context, pool *pgxpool.Pool, cfg notifyq.WorkerConfig, done chan error) error {
	queue := store.New(cfg.Schema, store.Guards{})
	channels := make([]string, 0, len(cfg.Providers))
	for channel := range cfg.Providers {
		channels = append(channels, string(channel))
	}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		left, err := queue.DueSoon(ctx, pool, channels, soon)
		if err == nil && left == 0 && cfg.Publisher != nil {
			left, err = queue.EventsDueSoon(ctx, pool, soon)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("notifyqtest: jobs or events are still due: %w", ctx.Err())
		case err != nil:
			return fmt.Errorf("notifyqtest: %s", store.Describe(err))
		case left == 0:
			return nil
		}
		select {
		case err := <-done: // the worker gave up
			done <- nil
			return err
		case <-ctx.Done():
			return fmt.Errorf("notifyqtest: jobs or events are still due: %w", ctx.Err())
		case <-ticker.C:
		}
	}
}
