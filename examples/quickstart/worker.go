package main

import (
	"context"
	"time"

	"github.com/notifyq/notifyq"
)

// startWorker runs a worker until the returned function is called, which drains it.
//
//nolint:contextcheck // an interrupt ends the story first, and then the worker
func startWorker(db *database, mails *mailing, client *notifyq.Client, show *screen) (stop func() error, err error) {
	worker, err := notifyq.NewWorker(db.pool, notifyq.WorkerConfig{
		Schema: db.schema,
		Client: client,
		Logger: show.logger(),
		Providers: map[notifyq.Channel]notifyq.ProviderConfig{
			notifyq.ChannelEmail: {Provider: mails.provider, Timeout: 10 * time.Second},
		},
		Concurrency:  2,
		PollInterval: 200 * time.Millisecond,
		Retry:        notifyq.RetryPolicy{BaseDelay: 300 * time.Millisecond, MaxDelay: 2 * time.Second},
		RateLimits:   []notifyq.RateLimit{{Max: 3, Window: 4 * time.Second}},
	})
	if err != nil {
		return nil, err
	}
	show.title("A worker delivers them: two at a time, at most three per recipient in any four seconds")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}, nil
}
