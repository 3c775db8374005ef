package engine

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
	"github.com/notifyq/notifyq/internal/writeback"
)

// recorder writes outcomes; see package writeback. While it can't, the leases of what it keeps are renewed, and claiming
// stops.
type recorder struct {
	*writeback.Writer[outcome]
	e *Engine
}

// outcome is how one claim is to end.
type outcome struct {
	job      *Job
	kind     kind
	result   Result
	decision Decision
	ended    time.Time
	why      string // of a release
}

type kind uint8

const (
	sent kind = iota
	retried
	finished // FAILED or DEAD_LETTERED
	overdue  // its own time was over before the call
	released // handed back, attempt refunded
)

func newRecorder(e *Engine) *recorder {
	r := &recorder{e: e}
	r.Writer = writeback.New(writeback.Config[outcome]{
		Write: r.record, Done: r.conclude, Strip: stripped, Refused: r.refused, Waiting: r.rest, Answered: r.answered,
		Random: e.cfg.Random,
	})
	return r
}

func stripped(o *outcome) bool {
	if o.result.Error == "" && o.result.ProviderID == "" {
		return false
	}
	o.result.Error, o.result.ProviderID = "", ""
	return true
}

func (r *recorder) refused(o *outcome, cause error) {
	r.e.log.Error("worker.record_refused", "jobId", o.job.ID, "error", store.Describe(cause))
	r.e.board.recorded([]outcome{*o})
}

// rest stops claiming and has the leases of what can't be recorded renewed.
func (r *recorder) rest(jobs int, err error, wait time.Duration) {
	r.e.board.stall(true)
	r.e.keeper.hurry()
	r.e.log.Warn("worker.record_failed", "jobs", jobs, "error", store.Describe(err), "retryInMs", wait.Milliseconds())
}

func (r *recorder) answered(jobs, failures int) {
	if failures > 0 {
		r.e.log.Info("worker.record_recovered", "jobs", jobs)
	}
	r.e.board.stall(false)
}

func (r *recorder) record(ctx context.Context, batch []outcome) (writeback.Held, error) {
	now := time.Now()
	b := store.Batch{Worker: r.e.cfg.ID, Events: r.e.cfg.Events}
	for i := range batch {
		o := &batch[i]
		id, token := o.job.ID, o.job.Token
		ago, lasted := timing.Elapsed(o.job.startedAt, now), timing.Elapsed(o.job.startedAt, o.ended)
		switch o.kind {
		case sent:
			b.Sent = append(b.Sent, store.Sent{ID: id, Token: token, ProviderID: o.result.ProviderID, Place: o.job.place()})
		case retried:
			b.Retried = append(b.Retried, store.Retried{
				ID: id, Token: token, Delay: o.decision.Delay,
				Error: o.result.Error, Class: string(o.result.Class), StartedAgo: ago, Lasted: lasted,
			})
		case finished:
			b.Ended = append(b.Ended, store.Ended{
				ID: id, Token: token, Status: o.decision.Status, Reason: o.decision.Reason,
				Error: o.result.Error, Class: string(o.result.Class), StartedAgo: ago, Lasted: lasted,
			})
		case overdue:
			b.Ended = append(b.Ended, store.Ended{ID: id, Token: token, Status: statusFailed, Reason: "expired"})
		case released:
			b.Released = append(b.Released, store.Released{ID: id, Token: token, Error: o.result.Error})
		}
	}
	ctx, cancel := r.e.call(ctx)
	defer cancel()
	done, err := r.e.cfg.Store.Record(ctx, r.e.cfg.Pool, &b)
	if err != nil {
		return nil, err
	}
	held := make(writeback.Held, len(done))
	for _, id := range done {
		held[id] = struct{}{}
	}
	return held, nil
}

// statusFailed is the number of FAILED.
const statusFailed = 3

// conclude takes a written batch off the board and tells of it. Where an earlier try may have committed, a claim that is
// gone is no news.
func (r *recorder) conclude(batch []outcome, held writeback.Held, uncertain bool) {
	r.e.board.recorded(batch)
	if r.e.cfg.Recorded != nil && r.wroteEvents(batch, held, uncertain) {
		r.e.cfg.Recorded()
	}
	debug := r.e.log.Enabled(r.e.calls, slog.LevelDebug)
	for i := range batch {
		o := &batch[i]
		if _, ok := held[o.job.ID]; !ok {
			if !uncertain {
				r.e.counts.leaseLost.Add(1)
				r.e.log.Warn("job.claim_lost", "jobId", o.job.ID, "attempt", o.job.AttemptCount)
			}
			continue
		}
		r.e.counts.count(o)
		if o.kind != sent || debug {
			r.tell(o)
		}
	}
}

// wroteEvents tells whether a batch has ended jobs, each with an event. An earlier try may have done so.
func (r *recorder) wroteEvents(batch []outcome, held writeback.Held, uncertain bool) bool {
	return r.e.cfg.Events && slices.ContainsFunc(batch, func(o outcome) bool {
		_, ok := held[o.job.ID]
		return (ok || uncertain) && o.kind != retried && o.kind != released
	})
}

func (r *recorder) tell(o *outcome) {
	log := r.e.log.With("jobId", o.job.ID, "attempt", o.job.AttemptCount, "channel", o.job.Channel)
	lasted := o.ended.Sub(o.job.startedAt).Milliseconds()
	switch o.kind {
	case sent:
		log.Debug("job.sent", "durationMs", lasted)
	case retried:
		log.Info("job.retry", "durationMs", lasted, "class", o.result.Class, "delayMs", o.decision.Delay.Milliseconds())
	case finished:
		log.Warn(o.decision.Event, "durationMs", lasted, "class", o.result.Class, "reason", o.decision.Reason)
	case overdue:
		log.Warn("job.fail", "reason", "expired")
	case released:
		log.Info("job.released", "why", o.why)
	}
}
