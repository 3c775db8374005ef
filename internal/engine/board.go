package engine

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// board holds every claimed job and decides which may be claimed and started next. How channels share it is in share.go.
type board struct {
	mu          sync.Mutex
	lanes       []*lane
	byChannel   map[string]*lane
	concurrency int
	batch       int
	poll        time.Duration
	limited     bool // a rate limit is to be asked before each start
	fifo        bool // run in the order of claims, not of priority: with a share for low priorities that was decided there
	draining    bool
	stalled     bool // outcomes can't be written: nothing more is claimed

	active int // starting and running
	jobs   map[*Job]struct{}
	kick   chan struct{} // one slot: the claimer should look
	busy   chan struct{} // one slot: something runs
	idle   chan struct{} // closed when the board drains and nothing runs any more
}

// lane is one channel's part of the board.
type lane struct {
	LaneConfig
	share     share
	needLease time.Duration

	ready     [4]fifo // by priority; 0 if the board is fifo
	waiting   int
	active    int
	held      int
	abandoned int  // calls that were given up and have not returned
	more      bool // there may be due jobs
	busy      bool // the last claim got all it asked for
	lastClaim time.Time
	credit    float64 // of LowShare: rows that low priorities may take first
	lowTurn   bool
	pace      pacer
	pause     pause
	marks     [4]store.Mark
}

// abandonedLimit is how many calls of a channel may be lost in a provider that ignores its context before the channel
// is left alone: each holds a goroutine and whatever the provider holds.
func (l *lane) abandonedLimit() int { return 4 * l.share.runMost }

func newBoard(cfg Config) *board {
	b := &board{
		byChannel:   make(map[string]*lane),
		concurrency: cfg.Concurrency,
		batch:       cfg.BatchSize,
		poll:        cfg.PollInterval,
		limited:     cfg.Limits != nil,
		fifo:        cfg.LowShare > 0,
		jobs:        make(map[*Job]struct{}),
		kick:        make(chan struct{}, 1),
		busy:        make(chan struct{}, 1),
		idle:        make(chan struct{}),
	}
	for _, lc := range cfg.Lanes {
		l := &lane{
			LaneConfig: lc,
			share:      newShare(cfg, lc),
			needLease:  lc.Timeout + startMargin(cfg.Lease, lc.Timeout),
			more:       true,
			pace:       pacer{perSecond: lc.RatePerSecond},
			pause:      pause{first: cfg.FirstPause, max: cfg.MaxPause},
		}
		b.lanes = append(b.lanes, l)
		b.byChannel[lc.Channel] = l
	}
	return b
}

// startMargin is what must be left of a lease beside the provider's timeout: room for a call to be cut off and for
// clocks to differ in speed.
func startMargin(lease, timeout time.Duration) time.Duration {
	return min(time.Second, (lease-timeout)/4)
}

// wantMore notes that there may be due jobs in every channel.
func (b *board) wantMore() {
	b.mu.Lock()
	for _, l := range b.lanes {
		l.more = true
	}
	b.mu.Unlock()
	b.nudge()
}

func (b *board) nudge() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// add takes over claimed jobs, in the order in which they are to run, and returns those that nobody may start any more:
// their channel was shut while they were being claimed, and others need not wait for it.
func (b *board) add(jobs []*Job, now time.Time) (refused []*Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range jobs {
		l := b.byChannel[j.Channel]
		j.lane = l
		b.jobs[j] = struct{}{}
		l.held++
		if l.shut(now) {
			j.state = ended
			refused = append(refused, j)
			continue
		}
		b.queue(j)
	}
	return refused
}

// queue puts j at the end of its place in its lane.
func (b *board) queue(j *Job) {
	j.state = waiting
	p := int(j.Priority)
	if b.fifo {
		p = 0
	}
	j.lane.ready[p].push(j)
	j.lane.waiting++
}

// next takes the job to start now, if there is one and a slot for it. direct tells that it need not go through the
// starter.
func (b *board) next(now time.Time) (j *Job, direct bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pop(now)
}

func (b *board) pop(now time.Time) (j *Job, direct bool) {
	if b.draining || b.active >= b.concurrency {
		return nil, false
	}
	var best *lane
	bestPriority := -1
	for _, l := range b.lanes {
		if p := l.top(); p > bestPriority && l.mayStart(now) && b.slotFor(l) {
			best, bestPriority = l, p
		}
	}
	if best == nil {
		return nil, false
	}
	j = best.ready[bestPriority].pop()
	best.waiting--
	best.active++
	if b.active++; b.active == 1 {
		select {
		case b.busy <- struct{}{}:
		default:
		}
	}
	best.pace.take(now)
	j.state = starting
	if direct = !j.needsStarter(b.limited, now); direct {
		j.begin(now)
	}
	// Lanes of equal priority take turns.
	if i := slices.Index(b.lanes, best); len(b.lanes) > 1 {
		b.lanes = append(slices.Delete(b.lanes, i, i+1), best)
	}
	return j, direct
}

func (l *lane) mayStart(now time.Time) bool {
	return !l.shut(now) && l.pace.ready(now)
}

// shut tells that nothing is claimed for l or started: its provider has lost too many calls, or is paused.
func (l *lane) shut(now time.Time) bool {
	return l.abandoned >= l.abandonedLimit() || l.pause.until.After(now)
}

// top is the highest priority that waits in l, or -1.
func (l *lane) top() int {
	for p := len(l.ready) - 1; p >= 0; p-- {
		if l.ready[p].len() > 0 {
			return p
		}
	}
	return -1
}

// begin lets a job run that the starter has cleared.
func (b *board) begin(j *Job, now time.Time) {
	b.mu.Lock()
	j.begin(now)
	b.mu.Unlock()
}

// finish gives back the slot of j, which stays on the board until it is recorded, and takes the next job.
func (b *board) finish(j *Job, now time.Time) (next *Job, direct bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(j)
	return b.pop(now)
}

// finishStarting gives back the slot of a job that has not started; it stays on the board until its release is written.
func (b *board) finishStarting(j *Job) {
	b.mu.Lock()
	b.leave(j)
	j.lane.pace.giveBack()
	b.mu.Unlock()
}

// overdue lists running jobs that should have returned a while ago.
func (b *board) overdue(now time.Time, grace func(*lane) time.Duration) []*Job {
	return b.pick(func(j *Job) bool {
		return j.state == running && timing.Elapsed(j.startedAt, now) > j.lane.Timeout+grace(j.lane)
	})
}

// drop takes a job off the board that never ran.
func (b *board) drop(j *Job) {
	b.mu.Lock()
	if j.state == starting {
		b.leave(j)
		j.lane.pace.giveBack()
	}
	b.forget(j)
	b.mu.Unlock()
}

func (b *board) leave(j *Job) {
	j.state = ended
	j.lane.active--
	b.active--
	if b.draining && b.active == 0 {
		close(b.idle)
	}
}

// abandon gives back the slot of a call that does not return; back tells that it did. Once too many are lost, the lane is
// emptied: what waits there would wait for as long as they do, with its lease renewed.
func (b *board) abandon(j *Job) (waiting []*Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(j)
	j.lane.abandoned++
	if j.lane.abandoned >= j.lane.abandonedLimit() {
		return j.lane.empty()
	}
	return nil
}

func (b *board) back(j *Job) {
	b.mu.Lock()
	j.lane.abandoned--
	b.mu.Unlock()
	b.nudge()
}

// giveUp forgets a running job at the end of a drain.
func (b *board) giveUp(j *Job) {
	b.mu.Lock()
	b.leave(j)
	b.forget(j)
	b.mu.Unlock()
}

// recorded takes jobs off the board.
func (b *board) recorded(jobs []outcome) {
	b.mu.Lock()
	for i := range jobs {
		b.forget(jobs[i].job)
	}
	b.mu.Unlock()
	b.nudge()
}

func (b *board) forget(j *Job) {
	if _, ok := b.jobs[j]; ok {
		delete(b.jobs, j)
		j.lane.held--
	}
}

// stall stops or resumes claiming while outcomes can't be written.
func (b *board) stall(on bool) {
	b.mu.Lock()
	b.stalled = on
	b.mu.Unlock()
	if !on {
		b.nudge()
	}
}

// drain stops every start and tells what is on the board.
func (b *board) drain() (waiting, active int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = true
	for _, l := range b.lanes {
		waiting += l.waiting
	}
	if b.active == 0 {
		close(b.idle)
	}
	return waiting, b.active
}

// takeWaiting empties the lanes.
func (b *board) takeWaiting() []*Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	var jobs []*Job
	for _, l := range b.lanes {
		jobs = append(jobs, l.empty()...)
	}
	return jobs
}

func (l *lane) empty() (jobs []*Job) {
	for p := range l.ready {
		for l.ready[p].len() > 0 {
			j := l.ready[p].pop()
			j.state = ended
			l.waiting--
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// anyActive tells whether anything runs or is about to.
func (b *board) anyActive() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active > 0
}

// runningJobs is a copy.
func (b *board) runningJobs() []*Job {
	return b.pick(func(j *Job) bool { return j.state == running })
}

// pick copies the jobs that choose wants, by age of their claim.
func (b *board) pick(choose func(*Job) bool) []*Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	var jobs []*Job
	for j := range b.jobs {
		if choose(j) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *Job) int { return cmp.Compare(a.leaseFrom.UnixNano(), b.leaseFrom.UnixNano()) })
	return jobs
}

// order is how jobs are to run: by priority, then by due time.
func (b *board) order(x, y *Job) int {
	byPriority := cmp.Compare(y.Priority, x.Priority)
	if b.fifo {
		byPriority = 0
	}
	return cmp.Or(byPriority, x.NextAttemptAt.Compare(y.NextAttemptAt), bytes.Compare(x.ID[:], y.ID[:]))
}

// unscreened takes no slot: it lists up to n waiting jobs that the rate limit has not been asked about.
func (b *board) unscreened(n int) []*Job {
	if n <= 0 {
		return nil
	}
	jobs := b.pick(func(j *Job) bool { return j.state == waiting && !j.screened })
	slices.SortFunc(jobs, b.order)
	return jobs[:min(n, len(jobs))]
}

// withdraw takes a waiting job out of its lane; it tells false if it has been started meanwhile.
func (b *board) withdraw(j *Job) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j.state != waiting {
		return false
	}
	for p := range j.lane.ready {
		if j.lane.ready[p].remove(j) {
			j.lane.waiting--
			j.state = ended
			return true
		}
	}
	return false
}

// renewed notes the new leases of jobs.
func (b *board) renewed(jobs []*Job, from time.Time, d time.Duration) {
	b.mu.Lock()
	for _, j := range jobs {
		j.leaseFrom, j.leaseFor = from, d
	}
	b.mu.Unlock()
}

// shortOfLease lists those of jobs whose lease does not cover a delivery.
func (b *board) shortOfLease(jobs []*Job, now time.Time) (short []*Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range jobs {
		if j.leaseLeft(now) < j.lane.needLease {
			short = append(short, j)
		}
	}
	return short
}

// misconfigured pauses j's channel and empties its lane; it returns what to hand back and how long the pause is, or 0
// if one is on already.
func (b *board) misconfigured(l *lane, now time.Time, random float64) (jobs []*Job, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d = l.pause.begin(now, random)
	return l.empty(), d
}

// healthy ends the doubt about a channel's provider, if the call that tells was made since the last pause began.
func (b *board) healthy(j *Job) {
	b.mu.Lock()
	if l := j.lane; l.pause.count > 0 && j.startedAt.After(l.pause.until) {
		l.pause.count, l.more = 0, true
	}
	b.mu.Unlock()
}

// nextPause is when the next pause of a channel ends, and nextPace when the next waiting job may start by its channel's
// pace; zero if there is none.
func (b *board) nextPause(now time.Time) time.Time {
	return b.soonest(now, func(l *lane) time.Time { return l.pause.until })
}

func (b *board) nextPace(now time.Time) time.Time {
	return b.soonest(now, func(l *lane) time.Time {
		if l.waiting == 0 || l.shut(now) {
			return time.Time{}
		}
		return l.pace.next
	})
}

func (b *board) soonest(now time.Time, of func(*lane) time.Time) (at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lanes {
		if t := of(l); t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	return at
}

// fifo is a queue that gives its memory back.
type fifo struct {
	jobs []*Job
	head int
}

func (f *fifo) len() int { return len(f.jobs) - f.head }

func (f *fifo) push(j *Job) { f.jobs = append(f.jobs, j) }

func (f *fifo) pop() *Job {
	j := f.jobs[f.head]
	f.jobs[f.head] = nil
	f.head++
	if f.head == len(f.jobs) {
		f.jobs, f.head = f.jobs[:0], 0
	}
	return j
}

func (f *fifo) remove(j *Job) bool {
	i := slices.Index(f.jobs[f.head:], j)
	if i < 0 {
		return false
	}
	f.jobs = slices.Delete(f.jobs, f.head+i, f.head+i+1)
	return true
}

// pacer spaces the starts of one channel in one worker. A start that is late by up to paceSlack does not move those behind
// it, or timers would keep the channel below its rate; after more than that it begins anew, without anything to make up for.
type pacer struct {
	perSecond float64
	next      time.Time
}

const paceSlack = 20 * time.Millisecond

func (p *pacer) ready(now time.Time) bool { return p.perSecond == 0 || !now.Before(p.next) }

func (p *pacer) take(now time.Time) {
	if p.perSecond == 0 {
		return
	}
	if p.next.Before(now.Add(-paceSlack)) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(float64(time.Second) / p.perSecond))
}

// giveBack takes back the start of a job that did not start after all.
func (p *pacer) giveBack() {
	if p.perSecond != 0 {
		p.next = p.next.Add(-time.Duration(float64(time.Second) / p.perSecond))
	}
}

// pause is the doubt about a provider that called itself misconfigured: it is left alone for a while, then tried with
// one job, and left alone for longer if that fails in the same way.
type pause struct {
	first, max time.Duration
	count      int
	until      time.Time
}

func (p *pause) probing() bool { return p.count > 0 }

// begin starts the next pause, with jitter so that workers do not probe together; 0 if one is on.
func (p *pause) begin(now time.Time, random float64) time.Duration {
	if p.until.After(now) {
		return 0
	}
	d := min(p.first<<min(p.count, 16), p.max)
	d = d/2 + time.Duration(random*float64(d)/2)
	p.count++
	p.until = now.Add(d)
	return d
}

// ids lists the ids of jobs.
func ids(jobs []*Job) []uuid.UUID {
	out := make([]uuid.UUID, len(jobs))
	for i, j := range jobs {
		out[i] = j.ID
	}
	return out
}
