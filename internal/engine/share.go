package engine

import "time"

// share is what a channel has of the worker: a part of the batch and a slot that no other channel can take, so that a
// provider that hangs holds up only its own channel, and the most it may have. Beyond its own part it takes what all
// leave over. With fewer places than channels nothing can be set aside, and they take turns.
type share struct {
	holdLeast, holdMost int // claimed jobs
	runLeast, runMost   int // deliveries at once
}

func newShare(cfg Config, lc LaneConfig) share {
	n := len(cfg.Lanes)
	s := share{holdMost: cfg.BatchSize, runMost: min(lc.Concurrency, cfg.Concurrency)}
	if lc.RatePerSecond > 0 {
		s.holdMost = min(s.holdMost, max(1, int(lc.RatePerSecond))) // a second's worth
	}
	if cfg.BatchSize >= n {
		s.holdLeast = min(s.holdMost, max(1, cfg.BatchSize/(2*n)))
	}
	if cfg.Concurrency >= n {
		s.runLeast = 1
	}
	return s
}

// unheld is what of its own part a lane has not claimed.
func (l *lane) unheld() int { return max(0, l.share.holdLeast-l.held) }

// slotFor tells whether l may start one more delivery and leave every other lane its own slot.
func (b *board) slotFor(l *lane) bool {
	if l.active >= l.share.runMost {
		return false
	}
	free := b.concurrency - b.active
	if l.active >= l.share.runLeast {
		for _, other := range b.lanes {
			if other != l {
				free -= max(0, other.share.runLeast-other.active)
			}
		}
	}
	return free > 0
}

// room says, for each lane worth claiming for, how many jobs it may take. The sum fits the batch, with every lane's own
// part left to it. From here on these lanes are not known to have more: what wantMore says during the claim is newer than
// what the claim sees.
func (b *board) room(now time.Time) map[*lane]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.draining || b.stalled {
		return nil
	}
	caps := make(map[*lane]int, len(b.lanes))
	for l, n := range b.divide(now) {
		if l.waiting > 0 && n < (l.share.holdMost+1)/2 && now.Sub(l.lastClaim) < b.poll {
			continue // not one by one as places fall free, unless an urgent job may be waiting for one
		}
		caps[l] = n
		l.more = false
		l.lastClaim = now
	}
	return caps
}

// divide gives each lane that may have due jobs its own part, and shares out the rest of the batch among those that had
// more than they could take the last time, or, if none had, among all of them.
func (b *board) divide(now time.Time) map[*lane]int {
	spare := b.batch - len(b.jobs)
	var wanting, busy []*lane
	for _, l := range b.lanes {
		spare -= l.unheld()
		if !l.wants(now) {
			continue
		}
		wanting = append(wanting, l)
		if l.busy || l.share.holdLeast == 0 {
			busy = append(busy, l)
		}
	}
	if len(busy) == 0 {
		busy = wanting
	}
	caps := make(map[*lane]int, len(wanting))
	for _, l := range wanting {
		caps[l] = l.unheld()
	}
	for i, l := range busy {
		left := len(busy) - i
		extra := (max(0, spare) + left - 1) / left // rounded up: the lanes that started longest ago come first
		extra = min(extra, l.share.holdMost-l.held-caps[l])
		caps[l] += extra
		spare -= extra
	}
	for l, n := range caps {
		if l.pause.probing() {
			caps[l] = min(n, 1)
		}
		if caps[l] <= 0 {
			delete(caps, l)
		}
	}
	return caps
}

// wants tells whether to claim for l at all. A provider in doubt is tried with one job.
func (l *lane) wants(now time.Time) bool {
	return l.more && l.held < l.share.holdMost && !l.shut(now) && (!l.pause.probing() || l.held == 0)
}
