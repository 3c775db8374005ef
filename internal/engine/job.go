package engine

import (
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Job is one claimed job in memory.
type Job struct {
	store.Claimed
	Token uuid.UUID

	lane      *lane
	claimedAt time.Time // before the claim was sent
	leaseFrom time.Time // before the claim or the last renewal was sent
	leaseFor  time.Duration

	state      jobState
	marked     bool      // started_at is written
	admittedAt time.Time // before the admission was sent; zero: not admitted
	late       bool      // it was admitted too long before it could start
	screened   bool      // asked for once without a slot to run in, and not refused

	startedAt time.Time
	deadline  time.Time
	settled   atomic.Bool
	moved     atomic.Bool // its row was written since the claim
}

// place is where its row stands, if that is still where the claim left it.
func (j *Job) place() (p store.Place) {
	if !j.moved.Load() {
		p = j.Place
	}
	return p
}

type jobState uint8

const (
	waiting  jobState = iota // in its lane
	starting                 // has a slot, is with the starter
	running
	ended // recorded or given up by the recorder's queue
)

// settle tells the one caller that may say how the delivery ended: the runner, the watchdog that abandons it, or the
// drain that gives up on it.
func (j *Job) settle() bool { return j.settled.CompareAndSwap(false, true) }

// needsStarter tells whether j may start only after a word with the database.
func (j *Job) needsStarter(limited bool, now time.Time) bool {
	return limited || (j.Park && !j.marked) || j.leaseLeft(now) < j.lane.needLease
}

// begin notes that the delivery starts. The board's lock is held: the watchdog reads what is set here.
func (j *Job) begin(now time.Time) {
	j.state = running
	j.startedAt = now
	j.deadline = now.Add(j.lane.Timeout)
}

// leaseLeft is how long nobody else can own the job, seen from now.
func (j *Job) leaseLeft(now time.Time) time.Duration {
	return j.leaseFor - timing.Elapsed(j.leaseFrom, now)
}

// expired tells whether the notification's own time is over.
func (j *Job) expired(now time.Time) bool {
	return j.ExpiresIn != 0 && timing.Elapsed(j.claimedAt, now) >= j.ExpiresIn
}
