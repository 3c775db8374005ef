package relay

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// claimer takes due events from the outbox. It goes on from where it was, past the entries that a held snapshot keeps of
// what was claimed before, and looks from the beginning for what committed late: see timing.FullLook.
type claimer struct {
	r        *Relay
	low      store.Mark
	short    bool
	look     timing.FullLook
	failures int
	retry    time.Time      // not before
	alarm    timing.Alarm   // when there may be room again
	due      timing.Alarm   // when events that this relay sent away fall due
	bookings chan time.Time // what is to be set there
}

func (c *claimer) loop(ctx context.Context) {
	poll := time.NewTimer(0)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.r.slots.kick:
		case <-poll.C:
			c.r.slots.wantMore()
			poll.Reset(timing.Jitter(c.r.cfg.PollInterval, c.r.cfg.Random()))
		case t := <-c.bookings:
			c.due.Set(t)
			continue
		case <-c.alarm.Ring():
			c.alarm.Rang(time.Now())
		case <-c.due.Ring():
			c.due.Rang(time.Now())
			c.r.slots.wantMore()
		}
		for ctx.Err() == nil && c.step(ctx) {
		}
		if c.failures == 0 {
			c.r.counts.polledAt.Store(time.Now().UnixNano())
		}
	}
}

// comesBack has the claimer look when an event falls due that has just been written. It is dropped where there are too
// many, since polling finds them too.
func (c *claimer) comesBack(wait time.Duration) {
	select {
	case c.bookings <- time.Now().Add(wait + time.Millisecond):
	default:
	}
}

// step makes one claim if there is room and reason for one, starts what it brought, and tells whether to go on.
func (c *claimer) step(ctx context.Context) bool {
	now := time.Now()
	if now.Before(c.retry) {
		return false
	}
	limit, bytes, again := c.r.slots.room(now)
	if limit == 0 {
		c.alarm.Set(again)
		return false
	}
	full := c.look.Due(now, c.short)
	events, err := c.claim(ctx, limit, bytes, full)
	if err != nil {
		c.failed(err)
		return false
	}
	if c.failures > 0 {
		c.failures = 0
		c.r.log.Info("relay.poll_recovered")
	}
	size := 0
	for _, e := range events {
		size += e.size
	}
	more := len(events) == limit || size >= bytes
	c.moved(events, full, more)
	c.r.slots.put(events, more)
	for _, e := range events {
		go c.r.send(e)
	}
	return more
}

func (c *claimer) failed(err error) {
	c.failures++
	wait := timing.Backoff(c.failures, c.r.cfg.Random())
	c.retry = time.Now().Add(wait)
	c.alarm.Set(c.retry)
	c.r.slots.wantMore() // what this claim was to look for is still there
	c.r.log.Warn("relay.poll_failed", "error", store.Describe(err), "retryInMs", wait.Milliseconds())
}

func (c *claimer) claim(ctx context.Context, limit, bytes int, full bool) ([]*Event, error) {
	ctx, cancel := c.r.call(ctx)
	defer cancel()
	lease := store.Lease{Worker: c.r.cfg.ID, Token: uuid.New(), For: c.r.cfg.Lease}
	low := c.low
	if full {
		low = store.Mark{}
	}
	sent := time.Now()
	rows, err := c.r.cfg.Store.ClaimEvents(ctx, c.r.cfg.Pool, lease, low, limit, bytes)
	if full {
		c.look.Took(sent) // if it failed too: one that takes too long must not be tried again at once
	}
	if err != nil {
		return nil, err
	}
	c.r.counts.claimed.Add(int64(len(rows)))
	events := make([]*Event, len(rows))
	for i := range rows {
		events[i] = &Event{ClaimedEvent: rows[i], token: lease.Token, size: len(rows[i].Body), leaseFrom: sent, lease: lease.For}
	}
	return events, nil
}

// moved moves the mark. A full look that was cut short may leave more behind the old one; any other leaves nothing there.
func (c *claimer) moved(events []*Event, full, more bool) {
	c.short = !more
	var last store.Mark
	for _, e := range events {
		if e.Due.After(last) {
			last = e.Due
		}
	}
	if !last.At.IsZero() && ((more && full) || last.After(c.low)) {
		c.low = last
	}
}
