package engine

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
)

// claimer takes due jobs from the queue onto the board.
//
// It remembers how far it has come in each channel and priority and goes on from there: behind the mark lie the entries
// of what was claimed before, which nobody can clean up while any snapshot in the database is older than them. What
// commits late lands behind the mark, so it also looks from the beginning, when a claim came back short and at least
// every second, but for at most a tenth of its time.
type claimer struct {
	e        *Engine
	alarm    alarm
	bookings chan time.Time // when deferred jobs fall due; dropped when full, since polling finds them too

	short      bool
	lastFull   time.Time // when the last look from the beginning ended
	fullTook   time.Duration
	credit     float64 // of LowShare: rows that low priorities may take first
	lowTurn    bool
	failures   int
	retryAfter time.Time
}

const (
	fullLookEvery = time.Second
	fullLookShare = 10 // at most one part in so many of the time
)

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
			c.alarm.set(t)
			continue
		case <-poll.C:
			c.e.board.wantMore()
			poll.Reset(jitter(c.e.cfg.PollInterval, c.e.cfg.Random()))
		case <-c.alarm.ring():
			c.alarm.rang(time.Now())
			c.e.board.wantMore()
		}
		for ctx.Err() == nil && c.step(ctx) {
		}
		c.alarm.set(c.e.board.nextStart(time.Now()))
	}
}

// jitter is d give or take a tenth, so that workers that started together do not poll together.
func jitter(d time.Duration, random float64) time.Duration {
	return d + time.Duration((random-0.5)*0.2*float64(d))
}

// step makes one claim if there is room and reason for one, starts what it can, and tells whether to go on.
func (c *claimer) step(ctx context.Context) bool {
	now := time.Now()
	if now.Before(c.retryAfter) {
		c.alarm.set(c.retryAfter)
		return false
	}
	caps, total := c.e.board.room(now)
	if len(caps) == 0 {
		c.e.startRunners()
		return false
	}
	reserved := c.reserve(total)
	full := c.fullLook(now)
	probes := c.probes(caps, full, reserved)
	jobs, err := c.claim(ctx, probes, total, full)
	if err != nil {
		c.e.board.untried(caps)
		c.failed(err)
		return false
	}
	if c.failures > 0 {
		c.failures = 0
		c.e.log.Info("worker.poll_recovered")
	}
	c.took(caps, jobs, taking{full: full, filled: len(jobs) >= total, reserved: reserved > 0})
	c.e.handBack(c.e.board.add(jobs, time.Now()), "channel shut")
	c.e.startRunners()
	return len(jobs) > 0
}

func (c *claimer) failed(err error) {
	c.failures++
	wait := backoff(c.failures, c.e.cfg.Random())
	c.retryAfter = time.Now().Add(wait)
	c.alarm.set(c.retryAfter)
	c.e.log.Warn("worker.poll_failed", "error", store.Describe(err), "retryInMs", wait.Milliseconds())
}

// backoff is the wait after the nth failure of the database in a row: up to 5 s, half of it random.
func backoff(n int, random float64) time.Duration {
	d := min(100*time.Millisecond<<min(n-1, 10), 5*time.Second)
	return d/2 + time.Duration(random*float64(d)/2)
}

// fullLook decides whether this claim starts from the beginning.
func (c *claimer) fullLook(now time.Time) bool {
	if !c.short && now.Sub(c.lastFull) < fullLookEvery {
		return false
	}
	return now.Sub(c.lastFull) >= (fullLookShare-1)*c.fullTook
}

// reserve spends the credit that low priorities have earned.
func (c *claimer) reserve(total int) int {
	n := min(int(c.credit), total)
	c.credit -= float64(n)
	return n
}

// probes asks for the highest priority first, all channels of one priority before the next. Reserved rows come before
// everything else, and their priorities are then not asked again: a statement does not skip its own locks.
func (c *claimer) probes(caps map[*lane]int, full bool, reserved int) []store.Probe {
	lanes := c.e.board.rotate(caps)
	order := []int{3, 2, 1}
	limits := [4]int{}
	if reserved > 0 {
		order = []int{1, 2, 3}
		limits[1], limits[2] = c.split(reserved)
	}
	var probes []store.Probe
	for _, priority := range order {
		for _, l := range lanes {
			limit := caps[l]
			if reserved > 0 && priority < 3 {
				limit = min(limit, limits[priority])
			}
			if limit == 0 {
				continue
			}
			p := store.Probe{Channel: l.Channel, Priority: int16(priority), Limit: limit}
			if !full {
				p.Low = l.marks[priority]
			}
			probes = append(probes, p)
		}
	}
	return probes
}

// split shares reserved rows between LOW and NORMAL; an odd one goes to each in turn.
func (c *claimer) split(n int) (low, normal int) {
	low, normal = n/2, n/2
	if n%2 == 1 {
		if c.lowTurn = !c.lowTurn; c.lowTurn {
			low++
		} else {
			normal++
		}
	}
	return low, normal
}

func (c *claimer) claim(ctx context.Context, probes []store.Probe, limit int, full bool) ([]*Job, error) {
	ctx, cancel := c.e.call(ctx)
	defer cancel()
	lease := store.Lease{Worker: c.e.cfg.ID, Token: uuid.New(), For: c.e.cfg.Lease}
	sent := time.Now()
	rows, err := c.e.cfg.Store.Claim(ctx, c.e.cfg.Pool, lease, probes, limit)
	if err != nil {
		return nil, err
	}
	if full {
		c.lastFull = time.Now()
		c.fullTook = c.lastFull.Sub(sent)
	}
	all := make([]Job, len(rows))
	jobs := make([]*Job, len(rows))
	for i := range rows {
		j := &all[i]
		j.Claimed, j.Token = rows[i], lease.Token
		j.claimedAt, j.leaseFrom, j.leaseFor = sent, sent, lease.For
		jobs[i] = j
	}
	slices.SortFunc(jobs, c.order)
	return jobs, nil
}

// order is how a batch is to run: by priority, then by due time.
func (c *claimer) order(a, b *Job) int {
	byPriority := cmp.Compare(b.Priority, a.Priority)
	if c.e.board.fifo {
		byPriority = 0
	}
	return cmp.Or(byPriority, a.NextAttemptAt.Compare(b.NextAttemptAt), bytes.Compare(a.ID[:], b.ID[:]))
}

// taking is how a claim was made.
type taking struct {
	full     bool // from the beginning
	filled   bool // it got as many as it asked for
	reserved bool // low priorities first, and only some of them
}

// took moves the marks and notes which channels may have more.
func (c *claimer) took(caps map[*lane]int, jobs []*Job, t taking) {
	c.short = !t.filled
	c.credit += float64(len(jobs)) * c.e.cfg.LowShare
	last := make(map[*lane]*[4]store.Mark, len(caps))
	counts := make(map[*lane]int, len(caps))
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
	c.e.board.mu.Lock()
	defer c.e.board.mu.Unlock()
	for l, n := range caps {
		cutShort := t.filled || t.reserved || counts[l] >= n
		l.more = l.more || cutShort
		if !cutShort {
			c.credit = 0 // everything due was taken: nobody is held back
		}
		for p := range l.marks {
			if last[l] == nil || last[l][p].At.IsZero() {
				continue
			}
			// A full look that was cut short may leave more behind the old mark; any other leaves nothing there.
			if (cutShort && t.full) || last[l][p].After(l.marks[p]) {
				l.marks[p] = last[l][p]
			}
		}
	}
}

// untried notes that a claim for these lanes told nothing.
func (b *board) untried(caps map[*lane]int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range caps {
		l.more = true
	}
}

// rotate lists the lanes of caps, beginning with another one each time.
func (b *board) rotate(caps map[*lane]int) []*lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	lanes := make([]*lane, 0, len(caps))
	for _, l := range b.lanes {
		if _, ok := caps[l]; ok {
			lanes = append(lanes, l)
		}
	}
	if len(b.lanes) > 1 {
		b.lanes = append(b.lanes[1:], b.lanes[0])
	}
	return lanes
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
