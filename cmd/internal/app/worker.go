package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/provider"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/publishers/webhook"
)

const (
	day = 24 * time.Hour
	// schemaPause is how often a worker looks for a schema that fits.
	schemaPause = 2 * time.Second
	// relayMargin is what the relay waits longer than the webhook, so that the webhook tells what happened.
	relayMargin = time.Second
	// beatMargin is how much later than a poll interval a loop may beat: a claim on a busy database takes its time.
	beatMargin = 30 * time.Second
)

// worker is a notifyq.Worker, or, where the schema has to be waited for, one after the other.
type worker struct {
	cfg       notifyq.WorkerConfig
	pool      *pgxpool.Pool
	log       *slog.Logger
	providers provider.Set
	current   atomic.Pointer[notifyq.Worker]
}

// newWorker checks everything that running it will need.
func newWorker(s settings.Settings, pool *pgxpool.Pool, client *notifyq.Client, log *slog.Logger) (*worker, error) {
	providers, err := provider.New(s, pool, log)
	if err != nil {
		return nil, err
	}
	w := &worker{pool: pool, log: log, providers: providers}
	w.cfg = workerConfig(s)
	w.cfg.Providers, w.cfg.Logger, w.cfg.Client = providers.Channels, log, client
	if s.WebhookURL != "" {
		if w.cfg.Publisher, err = newPublisher(s); err != nil {
			return nil, err
		}
		w.cfg.Relay = notifyq.RelayConfig{
			PollInterval: s.WebhookPollInterval, Timeout: s.WebhookTimeout + relayMargin, Retry: w.cfg.Retry,
		}
	}
	if err := w.renew(); err != nil {
		return nil, err
	}
	if len(providers.Unserved) > 0 {
		log.Warn("worker.channels_left", "channels", providers.Unserved, "provider", s.Provider)
	}
	return w, nil
}

func workerConfig(s settings.Settings) notifyq.WorkerConfig {
	cfg := notifyq.WorkerConfig{
		Schema: s.DatabaseSchema, Concurrency: s.WorkerConcurrency, BatchSize: s.WorkerBatchSize,
		PollInterval: s.WorkerPollInterval, Lease: s.VisibilityTimeout, RecoveryInterval: s.RecoveryInterval,
		ShutdownTimeout: s.WorkerShutdownTimeout, LowPriorityShare: s.LowPriorityShare,
		Retry:          notifyq.RetryPolicy{BaseDelay: s.BaseRetryDelay, MaxDelay: s.MaxRetryDelay},
		Retention:      time.Duration(s.RetentionDays) * day,
		EventRetention: time.Duration(s.EventRetentionDays) * day,
	}
	if s.RateLimitMax > 0 {
		cfg.RateLimits = []notifyq.RateLimit{{Max: s.RateLimitMax, Window: s.RateLimitWindow}}
	}
	return cfg
}

func newPublisher(s settings.Settings) (*webhook.Publisher, error) {
	publisher, err := webhook.New(webhook.Config{
		URL: s.WebhookURL, Secrets: s.WebhookSecrets, Timeout: s.WebhookTimeout, MaxAttempts: s.WebhookMaxAttempts,
		AllowCIDRs: s.WebhookAllowCIDRs,
	})
	if err != nil {
		return nil, fmt.Errorf("WEBHOOK_URL: %w", err)
	}
	return publisher, nil
}

// renew makes the worker that runs next: one runs only once.
func (w *worker) renew() error {
	made, err := notifyq.NewWorker(w.pool, w.cfg)
	if err != nil {
		return err
	}
	w.current.Store(made)
	return nil
}

// run works until ctx ends and it has drained. A schema that does not fit is waited for.
func (w *worker) run(ctx context.Context, migrateCommand string) error {
	defer w.closeIdle()
	for {
		err := w.current.Load().Run(ctx)
		if ctx.Err() != nil || !errors.Is(err, notifyq.ErrSchema) {
			return err
		}
		w.log.ErrorContext(ctx, "worker.schema_unfit", "error", err, "run", migrateCommand,
			"retryInMs", schemaPause.Milliseconds())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(schemaPause):
		}
		if err := w.renew(); err != nil {
			return err
		}
	}
}

func (w *worker) closeIdle() {
	if p, ok := w.cfg.Publisher.(*webhook.Publisher); ok {
		p.CloseIdleConnections()
	}
}

// stats is for the metrics.
func (w *worker) stats() (notifyq.WorkerStats, bool) { return w.current.Load().Stats(), true }

// beating reports whether the loops that claim work. They begin with their first poll.
func (w *worker) beating() bool {
	stats := w.current.Load().Stats()
	if w.cfg.Publisher != nil && !beats(stats.Relay.PolledAt, w.cfg.Relay.PollInterval) {
		return false
	}
	return beats(stats.PolledAt, w.cfg.PollInterval)
}

func beats(polled time.Time, interval time.Duration) bool {
	return !polled.IsZero() && time.Since(polled) < interval+beatMargin
}
