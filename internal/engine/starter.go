package engine

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Limits is the rate limit's rule. It does no I/O.
type Limits interface {
	// Applies tells whether any rule counts the channel.
	Applies(channel string) bool
	// Key is what the reservations of a recipient go by.
	Key(tenant, recipientKey string) uuid.UUID
	// Readings is what Judge needs to see of a key.
	Readings(key uuid.UUID) []store.Reading
	// Judge answers each ask, in order. now and existing are the database's.
	Judge(now time.Time, existing []store.Reservation, asks []Ask) []Answer
	// Slack is how much later than it is counted a delivery may start.
	Slack() time.Duration
	// Newcomer is what Judge would say of a recipient that has nothing within window: it may go, and is counted lead from
	// now, if it takes so long to start.
	Newcomer(takes time.Duration) (window, lead time.Duration)
}

// Ask is one job that wants to be delivered.
type Ask struct {
	JobID, Key uuid.UUID
	Channel    string
	HasSlot    bool          // it can start at once
	Unstarted  bool          // if it is admitted already, no delivery came of that
	Takes      time.Duration // how long after the question it is expected to start
	ExpiresIn  time.Duration // 0: never
}

// Answer says what becomes of it: it starts, or waits in memory for a slot to run in, or it goes back.
type Answer struct {
	Admitted bool
	// At is when an admitted job is counted: it starts at most Slack later, or asks again. Zero, it may start at any time.
	// A job that goes back is due then.
	At time.Time
	// Reserve is to be written: the admission, or the booking of a job that goes back.
	Reserve *store.Reservation
}

// starter clears jobs that may start only after a word with the database. Each job it has been given holds a slot.
type starter struct {
	e      *Engine
	mu     sync.Mutex
	queue  []*Job
	closed bool
	signal chan struct{}
	gone   map[*Job]error // screened while they waited, not to start, and popped before that was known; nil: deferred
	asked  time.Time      // when the last admission was sent
	took   time.Duration  // from there to the start, of late
	new    newcomers
}

// AdmissionBatch is how many jobs one admission judges: each recipient among them takes a lock of its own.
const AdmissionBatch = 256

// minTakes is how long a start is expected to take at the least.
const minTakes = 10 * time.Millisecond

func newStarter(e *Engine) *starter {
	s := &starter{e: e, signal: make(chan struct{}, 1), gone: make(map[*Job]error)}
	s.new.s = s
	return s
}

// takes is how long after its question a start is expected.
func (s *starter) takes() time.Duration { return max(minTakes, s.took+s.took/2) }

// add hands over a job that has its slot. Once the loop has ended, the job goes straight back.
func (s *starter) add(j *Job) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.queue = append(s.queue, j)
	}
	s.mu.Unlock()
	if closed {
		s.handBack([]*Job{j}, "shutdown")
		return
	}
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

func (s *starter) take(n int) []*Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, len(s.queue))
	jobs := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	return jobs
}

// close hands back what is queued and whatever is still added.
func (s *starter) close() {
	s.mu.Lock()
	s.closed = true
	jobs := s.queue
	s.queue = nil
	s.mu.Unlock()
	s.handBack(s.present(jobs), "shutdown")
}

func (s *starter) loop(ctx context.Context) {
	defer s.close()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.signal:
		}
		for jobs := s.take(AdmissionBatch); len(jobs) > 0; jobs = s.take(AdmissionBatch) {
			if jobs = s.present(jobs); ctx.Err() != nil {
				s.handBack(jobs, "shutdown")
				return
			}
			if s.clear(ctx, jobs) {
				failures = 0
				continue
			}
			failures++
			timing.Sleep(ctx, timing.Backoff(failures, s.e.cfg.Random()))
		}
	}
}

// present leaves out what was screened before its turn and may not start.
func (s *starter) present(jobs []*Job) []*Job {
	return slices.DeleteFunc(jobs, func(j *Job) bool {
		err, gone := s.gone[j]
		delete(s.gone, j)
		switch {
		case !gone:
		case err == nil:
			s.e.board.drop(j)
		default:
			s.handBack([]*Job{j}, "error before the provider call")
		}
		return gone
	})
}

// clear brings jobs to their start, or back to the queue with their attempts refunded: nothing has reached a provider
// yet. It tells whether the database answered.
func (s *starter) clear(ctx context.Context, jobs []*Job) bool {
	defer s.e.board.nudge() // what goes back leaves places
	defer s.e.startRunners()
	jobs, err := s.withLease(ctx, jobs)
	if err == nil {
		jobs, err = s.admit(ctx, jobs)
	}
	if err == nil {
		jobs, err = s.mark(ctx, jobs)
	}
	if err != nil {
		s.e.log.Warn("worker.start_failed", "jobs", len(jobs), "error", store.Describe(err))
		s.handBack(jobs, "error before the provider call")
		return false
	}
	s.start(jobs)
	return true
}

// start begins deliveries, of those jobs for which what was cleared is still true: the database may have taken long.
func (s *starter) start(jobs []*Job) {
	now := time.Now()
	short := s.e.board.shortOfLease(jobs, now)
	if slices.ContainsFunc(jobs, func(j *Job) bool { return !j.admittedAt.IsZero() }) {
		s.took = max(now.Sub(s.asked), s.took-s.took/8)
	}
	for _, j := range jobs {
		admitted := !j.admittedAt.IsZero()
		late := admitted && timing.Elapsed(j.admittedAt, now) > s.e.cfg.Limits.Slack()
		if late || slices.Contains(short, j) {
			j.admittedAt, j.late = time.Time{}, j.late || admitted
			s.add(j)
			continue
		}
		s.e.board.begin(j, now)
		go s.e.runFrom(j)
	}
}

// handBack releases jobs that hold a slot and have not started.
func (s *starter) handBack(jobs []*Job, why string) {
	for _, j := range jobs {
		s.e.board.finishStarting(j)
		s.e.recorder.Add(outcome{job: j, kind: released, why: why})
	}
}

// withLease renews what would not outlast its delivery. What can't be renewed is not started.
func (s *starter) withLease(ctx context.Context, jobs []*Job) ([]*Job, error) {
	short := s.e.board.shortOfLease(jobs, time.Now())
	if len(short) == 0 {
		return jobs, nil
	}
	renewed, err := s.e.keeper.renew(ctx, short, s.e.cfg.Store.Renew)
	if err != nil {
		return jobs, err
	}
	return s.keep(jobs, short, renewed), nil
}

// mark writes started_at for jobs that must not be repeated once their call may have begun.
func (s *starter) mark(ctx context.Context, jobs []*Job) ([]*Job, error) {
	var unmarked []*Job
	for _, j := range jobs {
		if j.Park && !j.marked {
			unmarked = append(unmarked, j)
		}
	}
	if len(unmarked) == 0 {
		return jobs, nil
	}
	marked, err := s.e.keeper.renew(ctx, unmarked, s.e.cfg.Store.Start)
	if err != nil {
		return jobs, err
	}
	for _, j := range unmarked {
		j.marked = marked[j]
	}
	return s.keep(jobs, unmarked, marked), nil
}

// keep hands back those of asked that are not in ok, and returns the rest of jobs. Whether the claim was lost or its row
// was only locked shows when the release is recorded.
func (s *starter) keep(jobs, asked []*Job, ok map[*Job]bool) []*Job {
	var refused []*Job
	for _, j := range asked {
		if !ok[j] {
			refused = append(refused, j)
		}
	}
	s.handBack(refused, "not renewed")
	return slices.DeleteFunc(jobs, func(j *Job) bool { return slices.Contains(refused, j) })
}

// admit asks the rate limit about jobs, and returns those that may start.
func (s *starter) admit(ctx context.Context, jobs []*Job) ([]*Job, error) {
	if s.e.cfg.Limits == nil || len(jobs) == 0 {
		return jobs, nil
	}
	asked := make([]*Job, 0, AdmissionBatch)
	var free []*Job
	for _, j := range jobs {
		if s.e.cfg.Limits.Applies(j.Channel) {
			asked = append(asked, j)
		} else {
			free = append(free, j)
		}
	}
	if len(asked) > 0 {
		admitted, rest, err := s.new.admit(ctx, asked)
		if free = append(free, admitted...); err != nil {
			return append(free, rest...), err
		}
		if asked = rest; len(asked) == 0 {
			return free, nil
		}
	}
	judged, err := s.judge(ctx, asked)
	return append(free, judged...), err
}

// judge asks about jobs that hold a slot, and about waiting ones that have not been asked about: those that can't go now
// are sent back at once instead of taking up the board.
func (s *starter) judge(ctx context.Context, asked []*Job) (free []*Job, err error) {
	holders := len(asked)
	for _, j := range s.e.board.unscreened(AdmissionBatch - holders) {
		if j.screened = true; s.e.cfg.Limits.Applies(j.Channel) {
			asked = append(asked, j)
		}
	}
	if len(asked) == 0 {
		return nil, nil
	}
	answers, held, err := s.ask(ctx, asked, holders)
	if store.IsBusy(err) {
		if asked, holders, err = s.postponeBusy(ctx, asked, holders); err == nil && len(asked) > 0 {
			answers, held, err = s.ask(ctx, asked, holders)
		}
	}
	if err != nil {
		// The database may have taken the waiting ones back, too: the answer can have been lost after the commit.
		for _, j := range asked[holders:] {
			s.turnAway(j, err)
		}
		return append(free, asked[:holders]...), err
	}
	for i, j := range asked {
		switch {
		case !answers[i].Admitted:
			s.deferred(j, i < holders, answers[i].At, held)
		case i < holders:
			free = append(free, j)
		}
	}
	return free, nil
}

// busyWait is how long a job goes back for whose recipient's lock somebody holds on to: a process that is frozen in the
// middle of an admission, say. The others need not wait for that.
const busyWait = 2 * time.Second

// postponeBusy sends those jobs back whose recipients can't be asked about, and returns the rest.
func (s *starter) postponeBusy(ctx context.Context, asked []*Job, holders int) ([]*Job, int, error) {
	_, locks, _ := s.questions(asked, holders)
	ctx, cancel := s.e.call(ctx)
	defer cancel()
	busy, err := s.e.cfg.Store.BusyKeys(ctx, s.e.cfg.Pool, locks)
	if err != nil {
		return asked, holders, err
	}
	var claims store.Claims
	var rest, sent []*Job
	restHolders := 0
	for i, j := range asked {
		if slices.Contains(busy, lockOf(s.e.cfg.Limits.Key(j.Tenant, j.RecipientKey))) {
			claims.Add(j.ID, j.Token)
			sent = append(sent, j)
			continue
		}
		rest = append(rest, j)
		if i < holders {
			restHolders++
		}
	}
	if len(sent) == 0 {
		return rest, restHolders, nil // free by now
	}
	held, err := s.e.cfg.Store.Postpone(ctx, s.e.cfg.Pool, claims, timing.Jitter(busyWait, s.e.cfg.Random()))
	if err != nil {
		return asked, holders, err
	}
	s.e.log.Warn("worker.recipients_busy", "recipients", len(busy), "jobs", len(sent))
	for _, j := range sent {
		s.deferred(j, slices.Contains(asked[:holders], j), time.Now().Add(busyWait), held)
	}
	return rest, restHolders, nil
}

// lockOf is the advisory lock of a recipient.
func lockOf(key uuid.UUID) int64 { return int64(binary.BigEndian.Uint64(key[:8])) }

// ask runs one admission, and notes of those that may start when they count. The first holders of jobs have a slot. held
// are the deferred ones whose claims were not lost.
func (s *starter) ask(ctx context.Context, jobs []*Job, holders int) (answers []Answer, held []uuid.UUID, err error) {
	asks, locks, readings := s.questions(jobs, holders)
	ctx, cancel := s.e.call(ctx)
	defer cancel()
	held, err = s.e.cfg.Store.Admit(ctx, s.e.cfg.Pool, locks, readings, ids(jobs),
		func(now, sent time.Time, existing []store.Reservation) (reserve []store.Reservation, send []store.Deferral) {
			s.asked = sent
			answers = s.e.cfg.Limits.Judge(now, existing, asks)
			for i, a := range answers {
				switch {
				case !a.Admitted:
					send = append(send, store.Deferral{ID: jobs[i].ID, Token: jobs[i].Token, Due: a.At, Book: a.Reserve})
				case a.Reserve != nil:
					reserve = append(reserve, *a.Reserve)
					jobs[i].admittedAt = sent.Add(a.At.Sub(now))
				}
			}
			s.ring(now, existing, send)
			slices.SortFunc(send, func(a, b store.Deferral) int { return slices.Compare(a.ID[:], b.ID[:]) })
			slices.SortFunc(reserve, func(a, b store.Reservation) int { return slices.Compare(a.JobID[:], b.JobID[:]) })
			return reserve, send
		})
	return answers, held, err
}

// ring wakes the claimer when a job falls due that goes back now, and when the next ones do of the recipients at hand:
// those that booked long ago, or with a worker that is gone, would otherwise be found by polling, and their line be late.
func (s *starter) ring(now time.Time, existing []store.Reservation, send []store.Deferral) {
	next := make(map[uuid.UUID]time.Time)
	for _, r := range existing {
		if t := next[r.Key]; r.Booked && r.At.After(now) && (t.IsZero() || r.At.Before(t)) {
			next[r.Key] = r.At
		}
	}
	times := slices.Collect(maps.Values(next))
	for _, d := range send {
		times = append(times, d.Due)
	}
	slices.SortFunc(times, time.Time.Compare)
	for _, t := range slices.Compact(times) {
		select {
		case s.e.claimer.bookings <- time.Now().Add(t.Sub(now) + time.Millisecond):
		default:
			return // the nearest are in
		}
	}
}

func (s *starter) questions(jobs []*Job, holders int) (asks []Ask, locks []int64, readings []store.Reading) {
	now := time.Now()
	seen := make(map[uuid.UUID]struct{}, len(jobs))
	for i, j := range jobs {
		a := Ask{
			JobID: j.ID, Key: s.e.cfg.Limits.Key(j.Tenant, j.RecipientKey), Channel: j.Channel, HasSlot: i < holders,
			// In its first attempt, an earlier claim can only have been handed back before the call.
			Unstarted: j.late || (j.AttemptCount == 1 && j.RedriveCount == 0),
			Takes:     s.takes(),
		}
		if j.ExpiresIn > 0 {
			a.ExpiresIn = max(j.ExpiresIn-timing.Elapsed(j.claimedAt, now), time.Microsecond)
		}
		asks = append(asks, a)
		if _, ok := seen[a.Key]; !ok {
			seen[a.Key] = struct{}{}
			locks = append(locks, lockOf(a.Key))
			readings = append(readings, s.e.cfg.Limits.Readings(a.Key)...)
		}
	}
	slices.Sort(locks)
	return asks, slices.Compact(locks), readings
}

// deferred takes a job off the board that the database has taken back, or that was lost before.
func (s *starter) deferred(j *Job, hasSlot bool, due time.Time, held []uuid.UUID) {
	if slices.Contains(held, j.ID) {
		s.e.counts.deferred.Add(1)
		s.e.log.Info("job.rate_limited", "jobId", j.ID, "attempt", j.AttemptCount, "until", due.UTC())
	} else {
		s.e.counts.leaseLost.Add(1)
		s.e.log.Warn("job.claim_lost", "jobId", j.ID, "attempt", j.AttemptCount)
	}
	if hasSlot {
		s.e.board.drop(j)
		return
	}
	s.turnAway(j, nil)
}

// turnAway takes a waiting job off the board: the database has taken it back, or, with an error, may have.
func (s *starter) turnAway(j *Job, err error) {
	switch {
	case !s.e.board.withdraw(j):
		// It is in the queue of starts, or was emptied out of its lane and is being recorded.
		if popped := s.e.board.pick(func(o *Job) bool { return o == j && o.state == starting }); len(popped) > 0 {
			s.gone[j] = err
		}
	case err == nil:
		s.e.board.drop(j)
	default:
		s.e.recorder.Add(outcome{job: j, kind: released, why: "error before the provider call"})
	}
}
