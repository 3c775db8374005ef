package engine

import (
	"sync/atomic"
	"time"
)

// counters are what a worker has done since it started.
type counters struct {
	claimed, sent, retried, failed, deadLettered, released, deferred, leaseLost, recovered atomic.Int64
	polledAt                                                                               atomic.Int64 // in nanoseconds; 0: never
}

// Counts is a copy of the counters, and of what the board holds.
type Counts struct {
	Claimed, Sent, Retried, Failed, DeadLettered, Released, Deferred, LeaseLost, Recovered int64
	Waiting, Running, Unrecorded                                                           int
	PolledAt                                                                               time.Time // zero: never
}

// Counts reads the counters.
func (e *Engine) Counts() Counts {
	c := &e.counts
	counts := Counts{
		Claimed: c.claimed.Load(), Sent: c.sent.Load(), Retried: c.retried.Load(), Failed: c.failed.Load(),
		DeadLettered: c.deadLettered.Load(), Released: c.released.Load(), Deferred: c.deferred.Load(),
		LeaseLost: c.leaseLost.Load(), Recovered: c.recovered.Load(),
	}
	if at := c.polledAt.Load(); at != 0 {
		counts.PolledAt = time.Unix(0, at)
	}
	counts.Waiting, counts.Running, counts.Unrecorded = e.board.census()
	return counts
}

// census counts the jobs on the board: those that wait or are about to start, those that run, and those whose outcome is
// not written yet.
func (b *board) census() (waits, runs, unrecorded int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for j := range b.jobs {
		switch j.state {
		case waiting, starting:
			waits++
		case running:
			runs++
		case ended:
			unrecorded++
		}
	}
	return waits, runs, unrecorded
}

// count notes how a claim ended.
func (c *counters) count(o *outcome) {
	switch o.kind {
	case sent:
		c.sent.Add(1)
	case retried:
		c.retried.Add(1)
	case finished:
		if o.decision.Status == statusFailed {
			c.failed.Add(1)
		} else {
			c.deadLettered.Add(1)
		}
	case overdue:
		c.failed.Add(1)
	case released:
		c.released.Add(1)
	}
}
