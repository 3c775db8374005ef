package main

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/riverqueue/river"

	"github.com/notifyq/notifyq"
)

// stopwatch notes when jobs were asked for and when they reached their handler, by their numbers.
type stopwatch struct {
	mu    sync.Mutex
	asked map[int]time.Time
	took  []time.Duration
}

func newStopwatch() *stopwatch { return &stopwatch{asked: make(map[int]time.Time)} }

func (s *stopwatch) start(i int) {
	now := time.Now()
	s.mu.Lock()
	s.asked[i] = now
	s.mu.Unlock()
}

func (s *stopwatch) stop(i int) {
	now := time.Now()
	s.mu.Lock()
	s.took = append(s.took, now.Sub(s.asked[i]))
	delete(s.asked, i)
	s.mu.Unlock()
}

func (s *stopwatch) figures() figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.took)
	return figures{"p50 ms": percentile(s.took, 0.5), "p99 ms": percentile(s.took, 0.99), "max ms": percentile(s.took, 1), "jobs": float64(len(s.took))}
}

// timed is a provider that stops the watch of each job, whose number is its payload.
type timed struct{ *stopwatch }

func (p timed) Deliver(_ context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	var i int
	err := json.Unmarshal(d.Payload, &i)
	p.stop(i)
	return notifyq.Receipt{}, err
}

func numbered(t task, i int) notifyq.Notification {
	n := notification(t, i)
	n.Payload = []byte(strconv.Itoa(i))
	return n
}

// openTimed is a queue with a worker whose provider stops the watch. done stops it and closes the queue.
func openTimed(ctx context.Context, t task) (q *queue, watch *stopwatch, done func() error, err error) {
	if q, err = openQueue(ctx, t); err != nil {
		return nil, nil, nil, err
	}
	watch = newStopwatch()
	w, err := q.worker(t, timed{watch})
	if err != nil {
		return nil, nil, nil, err
	}
	stop := running(ctx, w)
	return q, watch, func() error {
		defer q.pool.Close()
		return stop()
	}, nil
}

// latencyNotifyq measures from the call of Schedule to the call of the provider, with the worker that README's example has:
// it is given the client, and polls every second.
func latencyNotifyq(ctx context.Context, t task) (figures, error) {
	q, watch, done, err := openTimed(ctx, t)
	if err != nil {
		return nil, err
	}
	err = paced(ctx, t, func(i int) error {
		watch.start(i)
		_, err := q.client.Schedule(ctx, numbered(t, i))
		return err
	})
	if err != nil {
		return nil, err
	}
	return watch.figures(), done()
}

func latencyRiver(ctx context.Context, t task) (figures, error) {
	watch := newStopwatch()
	w := &messenger{on: func(job *river.Job[message]) {
		i, _ := strconv.Atoi(job.Args.Recipient)
		watch.stop(i)
	}}
	pool, client, err := openRiver(ctx, t, w)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	err = paced(ctx, t, func(i int) error {
		m := newMessage(t, i)
		m.Recipient = strconv.Itoa(i)
		watch.start(i)
		_, err := client.Insert(ctx, m, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	return watch.figures(), client.Stop(ctx)
}

// paced does one t.PerSecond times a second, each at its time whatever became of those before, after a second of warming up,
// and gives the last ones a second to arrive.
func paced(ctx context.Context, t task, one func(i int) error) error {
	time.Sleep(time.Second)
	var wg sync.WaitGroup
	errs := make(chan error, t.Jobs)
	began := time.Now()
	for i := range t.Jobs {
		time.Sleep(time.Until(began.Add(time.Duration(float64(i) / t.PerSecond * float64(time.Second)))))
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() { errs <- one(i) })
	}
	wg.Wait()
	time.Sleep(time.Second)
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
