package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// scheduleNotifyq measures Schedule from so many goroutines, or ScheduleMany if there are none.
func scheduleNotifyq(ctx context.Context, t task) (figures, error) {
	q, err := openQueue(ctx, t)
	if err != nil {
		return nil, err
	}
	defer q.pool.Close()
	return schedule(ctx, t, func() error { return q.fill(ctx, t, 0) }, func(ctx context.Context, i int) error {
		_, err := q.client.Schedule(ctx, notification(t, i))
		return err
	})
}

// scheduleRiver measures Insert, or InsertManyFast, which is a COPY.
func scheduleRiver(ctx context.Context, t task) (figures, error) {
	pool, client, err := openRiver(ctx, t, &messenger{})
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return schedule(ctx, t, func() error { return fillRiver(ctx, t, client) }, func(ctx context.Context, i int) error {
		_, err := client.Insert(ctx, newMessage(t, i), nil)
		return err
	})
}

func schedule(ctx context.Context, t task, bulk func() error, one func(ctx context.Context, i int) error) (figures, error) {
	began := time.Now()
	cpu := cpuTime()
	if t.Clients == 0 {
		if err := bulk(); err != nil {
			return nil, err
		}
	} else if err := each(ctx, t, one); err != nil {
		return nil, err
	}
	n := float64(t.Jobs)
	return figures{"scheduled/s": n / time.Since(began).Seconds(), "client CPU µs/job": float64((cpuTime() - cpu).Microseconds()) / n}, nil
}

// each does one for every number up to t.Jobs, from t.Clients goroutines.
func each(ctx context.Context, t task, one func(ctx context.Context, i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, t.Clients)
	for range t.Clients {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(t.Jobs); i = next.Add(1) {
				if err := one(ctx, int(i)); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}
