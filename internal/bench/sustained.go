package main

import (
	"context"
	"time"

	"github.com/notifyq/notifyq"
)

// sustainedNotifyq schedules t.PerSecond jobs a second for t.Lasting, in batches of a hundredth of a second, while a worker
// delivers them, and measures how long they took. Left is what had not been delivered at the end.
func sustainedNotifyq(ctx context.Context, t task) (figures, error) {
	q, watch, done, err := openTimed(ctx, t)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	scheduled := 0
	for ctx.Err() == nil && time.Since(began) < t.Lasting {
		due := int(time.Since(began).Seconds()*t.PerSecond) - scheduled
		if due < 1 {
			time.Sleep(time.Millisecond)
			continue
		}
		batch := make([]notifyq.Notification, min(due, 1000))
		for i := range batch {
			batch[i] = numbered(t, scheduled+i)
			watch.start(scheduled + i)
		}
		if _, err := q.client.ScheduleMany(ctx, batch); err != nil {
			return nil, err
		}
		scheduled += len(batch)
	}
	took := time.Since(began).Seconds()
	watch.mu.Lock()
	left := len(watch.asked)
	watch.mu.Unlock()
	out := watch.figures()
	out["left"], out["jobs/s"], out["client peak MB"] = float64(left), float64(scheduled)/took, peakMemory()
	return out, done()
}
