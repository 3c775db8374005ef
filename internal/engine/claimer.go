package engine

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// claimer takes due jobs from the queue onto the board.
//
// It remembers how far it has come in each channel and priority and goes on from there: behind the mark lie the entries
// of what was claimed before, which nobody can clean up while any snapshot in the database is older than them. What
// commits late lands behind the mark, so it also looks from the beginning, when a claim came back short and at least
// every second, but for at most a tenth of its time.
type claimer struct {
	e        *Engine
	alarm    timing.Alarm   // when jobs fall due or a pause ends
	pace     timing.Alarm   // when a waiting job may start
	bookings chan time.Time // when deferred jobs fall due; dropped when full, since polling finds them too

	short      bool
	look       timing.FullLook
	failures   int
	retryAfter time.Time
}

func newClaimer(e *Engine) *claimer {
	return &claimer{e: e, short: true, bookings: make(chan time.Time, 64)}
}

func (c *claimer) loop(ctx context.Context) {
	poll := time.NewTimer(0)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.e.board.kick:
		case t := <-c.bookings:
			c.alarm.Set(t)
			continue
		case <-poll.C:
			c.e.board.wantMore()
			poll.Reset(timing.Jitter(c.e.cfg.PollInterval, c.e.cfg.Random()))
		case <-c.alarm.Ring():
			c.alarm.Rang(time.Now())
			c.e.board.wantMore()
		case <-c.pace.Ring():
			c.pace.Rang(time.Now())
		}
		c.e.startRunners()
		for ctx.Err() == nil && c.step(ctx) {
		}
		if c.failures == 0 {
			c.e.counts.polledAt.Store(time.Now().UnixNano())
		}
		c.alarm.Set(c.e.board.nextPause(time.Now()))
		c.pace.Set(c.e.board.nextPace(time.Now()))
	}
}

// step makes one claim if there is room and reason for one, starts what it can, and tells whether to go on.
func (c *claimer) step(ctx context.Context) bool {
	now := time.Now()
	if now.Before(c.retryAfter) {
		c.alarm.Set(c.retryAfter)
		return false
	}
	caps := c.e.board.room(now)
	if len(caps) == 0 {
		return false
	}
	t := taking{full: c.look.Due(now, c.short), caps: caps, reserved: make(map[*lane]int, len(caps))}
	jobs, err := c.claim(ctx, c.lanes(t), t.full)
	if err != nil {
		c.e.board.untried(caps)
		c.failed(err)
		return false
	}
	if c.failures > 0 {
		c.failures = 0
		c.e.log.Info("worker.poll_recovered")
	}
	again := c.took(jobs, t)
	c.e.handBack(c.e.board.add(jobs, time.Now()), "channel shut")
	c.e.startRunners()
	return again
}

func (c *claimer) failed(err error) {
	c.failures++
	wait := timing.Backoff(c.failures, c.e.cfg.Random())
	c.retryAfter = time.Now().Add(wait)
	c.alarm.Set(c.retryAfter)
	c.e.log.Warn("worker.poll_failed", "error", store.Describe(err), "retryInMs", wait.Milliseconds())
}

// taking is how a claim is made.
type taking struct {
	full     bool          // from the beginning
	caps     map[*lane]int // how many for each lane
	reserved map[*lane]int // how many of them low priorities may take first
}

// lanes asks for the highest priority first. Reserved rows come before everything else, and their priorities are then not
// asked again: a statement does not skip its own locks.
func (c *claimer) lanes(t taking) []store.Lane {
	var lanes []store.Lane
	for l, limit := range t.caps {
		order, limits := []int{3, 2, 1}, [4]int{1: limit, 2: limit, 3: limit}
		if n := l.reserve(limit); n > 0 {
			t.reserved[l] = n
			order = []int{1, 2, 3}
			limits[1], limits[2] = l.split(n)
		}
		asked := store.Lane{Channel: l.Channel, Limit: limit}
		for _, priority := range order {
			p := store.Probe{Priority: int16(priority), Limit: limits[priority]}
			if !t.full {
				p.Low = l.marks[priority]
			}
			if p.Limit > 0 {
				asked.Probes = append(asked.Probes, p)
			}
		}
		lanes = append(lanes, asked)
	}
	return lanes
}

// reserve spends the credit that low priorities have earned.
func (l *lane) reserve(limit int) int {
	n := min(int(l.credit), limit)
	l.credit -= float64(n)
	return n
}

// split shares reserved rows between LOW and NORMAL; an odd one goes to each in turn.
func (l *lane) split(n int) (low, normal int) {
	low, normal = n/2, n/2
	if n%2 == 1 {
		if l.lowTurn = !l.lowTurn; l.lowTurn {
			low++
		} else {
			normal++
		}
	}
	return low, normal
}

func (c *claimer) claim(ctx context.Context, lanes []store.Lane, full bool) ([]*Job, error) {
	ctx, cancel := c.e.call(ctx)
	defer cancel()
	lease := store.Lease{Worker: c.e.cfg.ID, Token: uuid.New(), For: c.e.cfg.Lease}
	sent := time.Now()
	rows, err := c.e.cfg.Store.Claim(ctx, c.e.cfg.Pool, lease, lanes...)
	if full {
		c.look.Took(sent) // if it failed too: one that takes too long must not be tried again at once
	}
	if err != nil {
		return nil, err
	}
	c.e.counts.claimed.Add(int64(len(rows)))
	all := make([]Job, len(rows))
	jobs := make([]*Job, len(rows))
	for i := range rows {
		j := &all[i]
		j.Claimed, j.Token = rows[i], lease.Token
		j.claimedAt, j.leaseFrom, j.leaseFor = sent, sent, lease.For
		jobs[i] = j
	}
	slices.SortFunc(jobs, c.e.board.order)
	return jobs, nil
}

// took moves the marks, notes which channels may have more, and tells whether any has.
func (c *claimer) took(jobs []*Job, t taking) (again bool) {
	last := make(map[*lane]*[4]store.Mark, len(t.caps))
	counts := make(map[*lane]int, len(t.caps))
	for _, j := range jobs {
		l := c.e.board.byChannel[j.Channel]
		counts[l]++
		if last[l] == nil {
			last[l] = &[4]store.Mark{}
		}
		if m := (store.Mark{At: j.NextAttemptAt, ID: j.ID}); m.After(last[l][j.Priority]) {
			last[l][j.Priority] = m
		}
	}
	now := time.Now()
	c.e.board.mu.Lock()
	defer c.e.board.mu.Unlock()
	c.short = true
	for l, limit := range t.caps {
		l.busy = counts[l] >= limit
		cutShort := l.busy || t.reserved[l] > 0
		l.more = l.more || cutShort
		again = again || cutShort
		c.short = c.short && !cutShort
		l.credit += float64(counts[l]) * c.e.cfg.LowShare
		if !cutShort {
			l.credit = 0 // everything due was taken: nobody is held back
		}
		if last[l] == nil {
			continue
		}
		for p, m := range last[l] {
			// A full look that was cut short may leave more behind the old mark; any other leaves nothing there.
			if !m.At.IsZero() && ((cutShort && t.full) || m.After(l.marks[p])) {
				l.marks[p] = m
			}
		}
	}
	for _, l := range c.e.board.lanes {
		_, asked := t.caps[l]
		again = again || (!asked && l.wants(now)) // there was no place to ask for it
	}
	return again
}

// untried notes that a claim for these lanes told nothing.
func (b *board) untried(caps map[*lane]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range caps {
		l.more = true
	}
}

// startRunners starts a runner for each job that has a slot.
func (e *Engine) startRunners() {
	for {
		j, direct := e.board.next(time.Now())
		switch {
		case j == nil:
			return
		case direct:
			go e.runFrom(j)
		default:
			e.starter.add(j)
		}
	}
}
