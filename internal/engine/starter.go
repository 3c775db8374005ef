package engine

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
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
	// Slack is how old an admission may be when its delivery starts.
	Slack() time.Duration
}

// Ask is one job that wants to be delivered.
type Ask struct {
	JobID, Key uuid.UUID
	Channel    string
	HasSlot    bool          // it can start at once
	Again      bool          // it was admitted, but did not start in time
	ExpiresIn  time.Duration // 0: never
}

// Answer says what becomes of it: it starts, it waits in memory for a slot to run in, or it goes back until Due.
type Answer struct {
	Admitted bool
	Deferred bool
	Due      time.Time
	Reserve  *store.Reservation // to write; of a deferred job, its booking
}

// starter clears jobs that may start only after a word with the database. Each job it has been given holds a slot.
type starter struct {
	e      *Engine
	mu     sync.Mutex
	queue  []*Job
	closed bool
	signal chan struct{}
	gone   map[*Job]struct{} // deferred while they waited, and popped before that was known
}

// admissionBatch is how many jobs one admission judges: each recipient among them takes a lock of its own.
const admissionBatch = 256

func newStarter(e *Engine) *starter {
	return &starter{e: e, signal: make(chan struct{}, 1), gone: make(map[*Job]struct{})}
}

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
		for jobs := s.take(admissionBatch); len(jobs) > 0; jobs = s.take(admissionBatch) {
			if jobs = s.present(jobs); ctx.Err() != nil {
				s.handBack(jobs, "shutdown")
				return
			}
			if s.clear(ctx, jobs) {
				failures = 0
				continue
			}
			failures++
			sleep(ctx, backoff(failures, s.e.cfg.Random()))
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// present leaves out what was deferred before its turn.
func (s *starter) present(jobs []*Job) []*Job {
	return slices.DeleteFunc(jobs, func(j *Job) bool {
		_, gone := s.gone[j]
		if gone {
			delete(s.gone, j)
			s.e.board.drop(j)
		}
		return gone
	})
}

// clear brings jobs to their start, or back to the queue with their attempts refunded: nothing has reached a provider
// yet. It tells whether the database answered.
func (s *starter) clear(ctx context.Context, jobs []*Job) bool {
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
	now := time.Now()
	for _, j := range jobs {
		if j.admittedAt.IsZero() || elapsed(j.admittedAt, now) <= s.e.cfg.Limits.Slack() {
			s.e.board.begin(j, now)
			go s.e.runFrom(j)
			continue
		}
		// The admission took too long to be true at the start: ask again.
		j.admittedAt, j.late = time.Time{}, true
		s.add(j)
	}
	return true
}

// handBack releases jobs that hold a slot and have not started.
func (s *starter) handBack(jobs []*Job, why string) {
	for _, j := range jobs {
		s.e.board.finishStarting(j)
		s.e.recorder.add(outcome{job: j, kind: released, why: why})
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

// admit asks the rate limit about jobs, and about waiting ones that have not been asked about: those that can't go now
// are sent back at once instead of taking up the board.
func (s *starter) admit(ctx context.Context, jobs []*Job) ([]*Job, error) {
	if s.e.cfg.Limits == nil || len(jobs) == 0 {
		return jobs, nil
	}
	asked := make([]*Job, 0, admissionBatch)
	var free []*Job
	for _, j := range jobs {
		if s.e.cfg.Limits.Applies(j.Channel) {
			asked = append(asked, j)
		} else {
			free = append(free, j)
		}
	}
	holders := len(asked)
	for _, j := range s.e.board.unscreened(admissionBatch - holders) {
		if j.screened = true; s.e.cfg.Limits.Applies(j.Channel) {
			asked = append(asked, j)
		}
	}
	if len(asked) == 0 {
		return free, nil
	}
	answers, sent, err := s.ask(ctx, asked, holders)
	if err != nil {
		return jobs, err
	}
	for i, j := range asked {
		switch {
		case answers[i].Deferred:
			s.deferred(j, i < holders, answers[i].Due)
		case i < holders:
			j.admittedAt = sent
			free = append(free, j)
		}
	}
	return free, nil
}

// ask runs one admission. The first holders of jobs have a slot.
func (s *starter) ask(ctx context.Context, jobs []*Job, holders int) (answers []Answer, sent time.Time, err error) {
	asks, locks, readings := s.questions(jobs, holders)
	byID := make(map[uuid.UUID]*Job, len(jobs))
	for _, j := range jobs {
		byID[j.ID] = j
	}
	ctx, cancel := s.e.call(ctx)
	defer cancel()
	sent = time.Now()
	_, err = s.e.cfg.Store.Admit(ctx, s.e.cfg.Pool, locks, readings, ids(jobs),
		func(now time.Time, existing []store.Reservation) (reserve []store.Reservation, send []store.Deferral) {
			answers = s.e.cfg.Limits.Judge(now, existing, asks)
			for i, a := range answers {
				switch {
				case a.Deferred:
					send = append(send, store.Deferral{ID: jobs[i].ID, Token: byID[jobs[i].ID].Token, Due: a.Due, Book: a.Reserve})
					s.book(a.Due.Sub(now))
				case a.Reserve != nil:
					reserve = append(reserve, *a.Reserve)
				}
			}
			slices.SortFunc(send, func(a, b store.Deferral) int { return slices.Compare(a.ID[:], b.ID[:]) })
			slices.SortFunc(reserve, func(a, b store.Reservation) int { return slices.Compare(a.JobID[:], b.JobID[:]) })
			return reserve, send
		})
	return answers, sent, err
}

// book wakes the claimer when a deferred job falls due.
func (s *starter) book(in time.Duration) {
	select {
	case s.e.claimer.bookings <- time.Now().Add(in + time.Millisecond):
	default:
	}
}

func (s *starter) questions(jobs []*Job, holders int) (asks []Ask, locks []int64, readings []store.Reading) {
	now := time.Now()
	seen := make(map[uuid.UUID]struct{}, len(jobs))
	for i, j := range jobs {
		a := Ask{JobID: j.ID, Key: s.e.cfg.Limits.Key(j.Tenant, j.RecipientKey), Channel: j.Channel, HasSlot: i < holders, Again: j.late}
		if j.ExpiresIn > 0 {
			a.ExpiresIn = max(j.ExpiresIn-elapsed(j.claimedAt, now), time.Microsecond)
		}
		asks = append(asks, a)
		if _, ok := seen[a.Key]; !ok {
			seen[a.Key] = struct{}{}
			locks = append(locks, int64(binary.BigEndian.Uint64(a.Key[:8])))
			readings = append(readings, s.e.cfg.Limits.Readings(a.Key)...)
		}
	}
	slices.Sort(locks)
	return asks, slices.Compact(locks), readings
}

// deferred takes a job off the board that the database has taken back.
func (s *starter) deferred(j *Job, hasSlot bool, due time.Time) {
	s.e.log.Info("job.rate_limited", "jobId", j.ID, "attempt", j.AttemptCount, "until", due.UTC())
	if hasSlot || s.e.board.withdraw(j) {
		s.e.board.drop(j)
		return
	}
	s.gone[j] = struct{}{} // it is in the queue of starts
}
