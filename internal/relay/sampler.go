package relay

import (
	"context"
	"time"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Sample is what the outbox looked like at a time.
type Sample struct {
	store.Outbox
	At time.Time
}

// Counts is what a relay has done since it started.
type Counts struct {
	Claimed, Published, Failed, Parked, Released, LeaseLost int64
	Sending                                                 int
	PolledAt                                                time.Time // zero: never
}

// Counts reads the counters.
func (r *Relay) Counts() Counts {
	c := &r.counts
	counts := Counts{
		Claimed: c.claimed.Load(), Published: c.published.Load(), Failed: c.failed.Load(), Parked: c.parked.Load(),
		Released: c.released.Load(), LeaseLost: c.leaseLost.Load(), Sending: r.slots.running(),
	}
	if at := c.polledAt.Load(); at != 0 {
		counts.PolledAt = time.Unix(0, at)
	}
	return counts
}

// Sample is the last look at the outbox, or nil before the first.
func (r *Relay) Sample() *Sample { return r.sample.Load() }

// sampleLoop looks at the outbox on a timer, so that reading the metrics costs the database nothing.
func (r *Relay) sampleLoop(ctx context.Context) {
	for wait := time.Duration(0); ; wait = timing.Jitter(r.cfg.SampleInterval, r.cfg.Random()) {
		if timing.Sleep(ctx, wait); ctx.Err() != nil {
			return
		}
		var outbox store.Outbox
		err := r.chore(ctx, func(ctx context.Context) (err error) {
			outbox, err = r.cfg.Store.Outbox(ctx, r.cfg.Pool, r.cfg.Thresholds)
			return err
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.log.Warn("relay.sample_failed", "error", store.Describe(err))
			continue
		}
		r.sample.Store(&Sample{Outbox: outbox, At: time.Now()})
	}
}
