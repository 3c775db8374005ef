package relay

import (
	"context"
	"sync"
	"time"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Endpoint is a receiver that can fail, be slow and be disabled on its own.
type Endpoint struct {
	Name, Target string
	Concurrency  int // 0: no limit of its own
	MaxAttempts  int // 0: the relay's
	DisableAfter time.Duration
}

// endpoints are the receivers that this relay has met. What is known of them is in the database, and is written when it
// changes and read every few seconds, never with each event.
type endpoints struct {
	r       *Relay
	meeting sync.Mutex // held while a new one is introduced, or two of a name would be
	mu      sync.Mutex
	byName  map[string]*endpoint
}

// endpoint is one of them.
type endpoint struct {
	info Endpoint

	mu     sync.Mutex
	known  store.Endpoint
	active int
	took   time.Duration // a moving average of a send
	booked time.Time     // until when there are events for every place

	// since the last report
	succeeded bool
	failures  int64
	failing   time.Time
	gone      bool
}

// endpointsEvery is how often what is known is written and read.
const endpointsEvery = 5 * time.Second

func newEndpoints(r *Relay) *endpoints {
	return &endpoints{r: r, byName: make(map[string]*endpoint)}
}

// meet finds out where events go, and what is known of receivers that are new here.
func (p *endpoints) meet(ctx context.Context, events []*Event) error {
	if p.r.cfg.Endpoint == nil {
		return nil
	}
	for _, e := range events {
		info := p.r.cfg.Endpoint(e)
		if info.Name == "" {
			continue
		}
		ep, err := p.find(ctx, info)
		if err != nil {
			return err
		}
		e.endpoint = ep
	}
	return nil
}

func (p *endpoints) find(ctx context.Context, info Endpoint) (*endpoint, error) {
	if ep := p.known(info); ep != nil {
		return ep, nil
	}
	p.meeting.Lock()
	defer p.meeting.Unlock()
	if ep := p.known(info); ep != nil {
		return ep, nil
	}
	ep := &endpoint{info: info, took: 100 * time.Millisecond}
	if err := p.introduce(ctx, ep); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byName[info.Name] = ep
	return ep, nil
}

// known is nil for a receiver that is new, or that is not what it was.
func (p *endpoints) known(info Endpoint) *endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ep := p.byName[info.Name]; ep != nil && ep.info == info {
		return ep
	}
	return nil
}

// introduce writes that there is such a receiver, and reads what is known of it. If it has moved, what was held for its
// old address may go to the new one.
func (p *endpoints) introduce(ctx context.Context, ep *endpoint) error {
	call, cancel := p.r.call(ctx)
	defer cancel()
	before, err := p.r.cfg.Store.Endpoints(call, p.r.cfg.Pool, []string{ep.info.Name})
	if err != nil {
		return err
	}
	if len(before) == 1 && before[0].Target == ep.info.Target {
		ep.known = before[0]
		return nil
	}
	ep.known, err = p.r.cfg.Store.ReportEndpoint(call, p.r.cfg.Pool, store.EndpointReport{Name: ep.info.Name, Target: ep.info.Target})
	if err != nil || len(before) == 0 {
		return err
	}
	p.r.log.Info("endpoint.moved", "endpoint", ep.info.Name)
	return p.bringBack(ctx, ep.info.Name)
}

func (p *endpoints) bringBack(ctx context.Context, name string) error {
	const batch = 1000
	for {
		call, cancel := p.r.call(ctx)
		var back int
		err := store.InTx(call, p.r.cfg.Pool, func(q store.Querier) (err error) {
			back, _, err = p.r.cfg.Store.RedriveEvents(call, q, store.ParkedFilter{Endpoint: name, Reason: "disabled"}, batch, 0,
				store.By{Actor: p.r.cfg.ID, Reason: "the endpoint has moved"})
			return err
		})
		cancel()
		if err != nil || back < batch {
			return err
		}
	}
}

// loop writes and reads what is known.
func (p *endpoints) loop(ctx context.Context) {
	if p.r.cfg.Endpoint == nil {
		return
	}
	if _, err := p.all(ctx); err != nil {
		p.r.log.Warn("relay.endpoints_failed", "error", store.Describe(err))
	}
	for {
		if timing.Sleep(ctx, timing.Jitter(endpointsEvery, p.r.cfg.Random())); ctx.Err() != nil {
			return
		}
		p.report(ctx)
		p.refresh(ctx)
	}
}

// all lists the receivers, with the one that a publisher of a single receiver names without an event.
func (p *endpoints) all(ctx context.Context) (list []*endpoint, err error) {
	if info := p.r.cfg.Endpoint(&Event{}); info.Name != "" {
		_, err = p.find(ctx, info)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ep := range p.byName {
		list = append(list, ep)
	}
	return list, err
}

// report writes what was seen of receivers, where that is news.
func (p *endpoints) report(ctx context.Context) {
	p.mu.Lock()
	list := make([]*endpoint, 0, len(p.byName))
	for _, ep := range p.byName {
		list = append(list, ep)
	}
	p.mu.Unlock()
	for _, ep := range list {
		if err := p.reportOne(ctx, ep); err != nil {
			p.r.log.Warn("relay.endpoints_failed", "error", store.Describe(err))
			return
		}
	}
}

func (p *endpoints) reportOne(ctx context.Context, ep *endpoint) error {
	seen, news := ep.news(time.Now())
	if !news {
		return nil
	}
	ctx, cancel := p.r.call(ctx)
	defer cancel()
	known, err := p.r.cfg.Store.ReportEndpoint(ctx, p.r.cfg.Pool, seen)
	if err != nil {
		ep.unreported(seen)
		return err
	}
	p.learned(ep, known)
	return nil
}

// refresh reads what others wrote.
func (p *endpoints) refresh(ctx context.Context) {
	list, err := p.all(ctx)
	if err == nil && len(list) > 0 {
		err = p.reread(ctx, list)
	}
	if err != nil {
		p.r.log.Warn("relay.endpoints_failed", "error", store.Describe(err))
	}
}

func (p *endpoints) reread(ctx context.Context, list []*endpoint) error {
	names := make([]string, len(list))
	for i, ep := range list {
		names[i] = ep.info.Name
	}
	ctx, cancel := p.r.call(ctx)
	defer cancel()
	rows, err := p.r.cfg.Store.Endpoints(ctx, p.r.cfg.Pool, names)
	if err != nil {
		return err
	}
	for _, row := range rows {
		for _, ep := range list {
			if ep.info.Name == row.Name && ep.info.Target == row.Target {
				p.learned(ep, row)
			}
		}
	}
	return nil
}

// learned takes in what is known and tells of changes.
func (p *endpoints) learned(ep *endpoint, now store.Endpoint) {
	ep.mu.Lock()
	before := ep.known
	ep.known = now
	ep.mu.Unlock()
	log := p.r.log.With("endpoint", ep.info.Name)
	switch {
	case before.DisabledAt.IsZero() && !now.DisabledAt.IsZero():
		log.Error("endpoint.disabled", "reason", now.Reason, "failingSince", now.FailingSince.UTC())
	case !before.DisabledAt.IsZero() && now.DisabledAt.IsZero():
		log.Info("endpoint.enabled")
		p.r.Wake()
	case before.FailingSince.IsZero() && !now.FailingSince.IsZero():
		log.Warn("endpoint.failing")
	case !before.FailingSince.IsZero() && now.FailingSince.IsZero():
		log.Info("endpoint.recovered")
	}
}

// enter takes a place for a send. Without one it tells how long to wait: until the places that are taken and the events
// that were sent away before this one will have had their turn. A disabled receiver has no places, and no such time.
func (e *endpoint) enter(now time.Time) (wait time.Duration, ok bool) {
	const longest = time.Minute
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.known.DisabledAt.IsZero():
		return 0, false
	case e.info.Concurrency == 0 || e.active < e.info.Concurrency:
		e.active++
		return 0, true
	}
	if e.booked.Before(now) {
		e.booked = now
	}
	e.booked = e.booked.Add(max(e.took/time.Duration(e.info.Concurrency), time.Millisecond))
	if e.booked.Sub(now) > longest {
		e.booked = now.Add(longest)
	}
	return e.booked.Sub(now), false
}

func (e *endpoint) leave(started, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active--
	if !started.IsZero() {
		e.took += (now.Sub(started) - e.took) / 8
	}
}

// saw notes how a send went. What is the fault of the event or of the publisher is not the receiver's.
func (e *endpoint) saw(result Result, now time.Time) {
	if result.Class == Refused || result.Class == Panicked {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if result.Class == Accepted {
		e.succeeded, e.failures, e.failing = true, 0, time.Time{}
		return
	}
	if e.failures == 0 {
		e.failing = now
	}
	e.failures++
	e.gone = e.gone || result.Class == Gone
}

// news takes what was seen since the last report, if it changes anything.
func (e *endpoint) news(now time.Time) (store.EndpointReport, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := store.EndpointReport{
		Name: e.info.Name, Target: e.info.Target, Succeeded: e.succeeded, Failures: e.failures, Gone: e.gone,
		DisableAfter: e.info.DisableAfter,
	}
	if e.failures > 0 {
		seen.FailingFor = timing.Elapsed(e.failing, now)
	}
	recovered := e.succeeded && !e.known.FailingSince.IsZero()
	if e.failures == 0 && !recovered && !e.gone {
		e.succeeded = false
		return seen, false
	}
	e.succeeded, e.failures, e.failing, e.gone = false, 0, time.Time{}, false
	return seen, true
}

// unreported puts back what could not be written.
func (e *endpoint) unreported(seen store.EndpointReport) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = e.gone || seen.Gone
	if e.succeeded { // later than what was seen
		return
	}
	e.succeeded = seen.Succeeded
	e.failures += seen.Failures
	if seen.Failures > 0 {
		e.failing = time.Now().Add(-seen.FailingFor)
	}
}
