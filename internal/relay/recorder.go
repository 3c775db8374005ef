package relay

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/writeback"
)

// recorder writes how claims end; see package writeback. What it can't write keeps its slot, so that claiming stops.
type recorder struct {
	*writeback.Writer[outcome]
	r *Relay
}

// outcome is how one claim is to end.
type outcome struct {
	event    *Event
	kind     kind
	result   Result
	delay    time.Duration
	parked   string // the reason
	unsent   bool   // a failure that was counted already
	disabled store.EndpointKey
	why      string // of a release
}

type kind uint8

const (
	published kind = iota
	failed         // a failure is counted; the event waits, or is parked
	released       // handed back as it was
)

// counters are what a relay has done since it started.
type counters struct {
	claimed, published, failed, parked, released, leaseLost atomic.Int64
	polledAt                                                atomic.Int64 // in nanoseconds; 0: never
}

func newRecorder(r *Relay) *recorder {
	rec := &recorder{r: r}
	rec.Writer = writeback.New(writeback.Config[outcome]{
		Write: rec.record, Done: rec.conclude, Strip: stripped, Refused: rec.refused, Waiting: rec.waiting, Answered: rec.answered,
		Random: r.cfg.Random,
	})
	return rec
}

func stripped(o *outcome) bool {
	had := o.result.Error != ""
	o.result.Error = ""
	return had
}

func (rec *recorder) refused(o *outcome, cause error) {
	rec.r.log.Error("relay.record_refused", "eventId", o.event.ID, "error", store.Describe(cause))
	rec.r.slots.free([]*Event{o.event})
}

func (rec *recorder) waiting(events int, err error, wait time.Duration) {
	rec.r.log.Warn("relay.record_failed", "events", events, "error", store.Describe(err), "retryInMs", wait.Milliseconds())
}

func (rec *recorder) answered(events, failures int) {
	if failures > 0 {
		rec.r.log.Info("relay.record_recovered", "events", events)
	}
}

func (rec *recorder) record(ctx context.Context, batch []outcome) (writeback.Held, error) {
	var b store.EventBatch
	for i := range batch {
		o := &batch[i]
		id, token := o.event.ID, o.event.token
		switch o.kind {
		case published:
			b.Published.Add(id, token)
		case failed:
			f := store.EventFailed{ID: id, Token: token, Delay: o.delay, Error: o.result.Error, Parked: o.parked, Uncounted: o.unsent}
			if ep := rec.r.slots.endpointOf(o.event); ep != nil {
				f.Endpoint = ep.info.Name
			}
			b.Failed = append(b.Failed, f)
		case released:
			b.Released = append(b.Released, store.EventReleased{ID: id, Token: token, Delay: o.delay, Disabled: o.disabled})
		}
	}
	ctx, cancel := rec.r.call(ctx)
	defer cancel()
	done, err := rec.r.cfg.Store.RecordEvents(ctx, rec.r.cfg.Pool, &b)
	if err != nil {
		return nil, err
	}
	held := make(writeback.Held, len(done))
	for _, id := range done {
		held[id] = struct{}{}
	}
	return held, nil
}

// conclude frees the slots of a written batch and tells of it.
func (rec *recorder) conclude(batch []outcome, held writeback.Held, uncertain bool) {
	events := make([]*Event, len(batch))
	for i := range batch {
		events[i] = batch[i].event
	}
	rec.r.slots.free(events)
	debug := rec.r.log.Enabled(rec.r.calls, slog.LevelDebug)
	for i := range batch {
		o := &batch[i]
		if _, ok := held[o.event.ID]; !ok && !uncertain {
			rec.r.counts.leaseLost.Add(1)
			rec.r.log.Warn("event.claim_lost", "eventId", o.event.ID)
			continue
		}
		rec.count(o)
		if o.delay > 0 && o.parked == "" {
			rec.r.claimer.comesBack(o.delay)
		}
		if o.kind != published || debug {
			rec.tell(o)
		}
	}
}

func (rec *recorder) count(o *outcome) {
	switch o.kind {
	case published:
		rec.r.counts.published.Add(1)
	case failed:
		rec.r.counts.failed.Add(1)
		if o.parked != "" {
			rec.r.counts.parked.Add(1)
		}
	case released:
		rec.r.counts.released.Add(1)
	}
}

func (rec *recorder) tell(o *outcome) {
	log := rec.r.log.With("eventId", o.event.ID, "attempt", o.event.Failures+1)
	ep := rec.r.slots.endpointOf(o.event)
	switch {
	case o.kind == published:
		log.Debug("event.published")
	case o.kind == released:
		log.Debug("event.released", "why", o.why)
	case o.parked != "":
		log.Warn("event.parked", "class", o.result.Class, "reason", o.parked)
	case ep != nil:
		log.Info("webhook.failed", "endpoint", ep.info.Name, "class", o.result.Class, "delayMs", o.delay.Milliseconds())
	default:
		log.Info("event.failed", "class", o.result.Class, "delayMs", o.delay.Milliseconds())
	}
}
