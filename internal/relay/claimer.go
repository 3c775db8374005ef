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
	retry    time.Time // not before
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
		}
		for ctx.Err() == nil && c.step(ctx) {
		}
		if c.failures == 0 {
			c.r.counts.polledAt.Store(time.Now().UnixNano())
		}
		poll.Reset(c.wait(time.Now()))
	}
}

// wait is how long to do nothing unless kicked.
func (c *claimer) wait(now time.Time) time.Duration {
	wait := timing.Jitter(c.r.cfg.PollInterval, c.r.cfg.Random())
	for _, until := range []time.Time{c.retry, c.r.slots.pausedUntil()} {
		if d := until.Sub(now); d > 0 {
			return d
		}
	}
	return wait
}

// step makes one claim if there is room and reason for one, starts what it brought, and tells whether to go on.
func (c *claimer) step(ctx context.Context) bool {
	now := time.Now()
	if now.Before(c.retry) {
		return false
	}
	limit, bytes := c.r.slots.room(now)
	if limit == 0 {
		return false
	}
	full := c.look.Due(now, c.short)
	events, err := c.claim(ctx, limit, bytes, full)
	if err == nil {
		err = c.r.endpoints.meet(ctx, events)
	}
	if err != nil {
		c.failed(events, err)
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

func (c *claimer) failed(events []*Event, err error) {
	c.failures++
	wait := timing.Backoff(c.failures, c.r.cfg.Random())
	c.retry = time.Now().Add(wait)
	c.r.log.Warn("relay.poll_failed", "error", store.Describe(err), "retryInMs", wait.Milliseconds())
	c.r.slots.put(events, true)
	for _, e := range events {
		c.r.release(e, wait, "error before the send")
	}
	c.r.slots.wantMore()
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
	if err != nil {
		return nil, err
	}
	if full {
		c.look.Took(sent)
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
