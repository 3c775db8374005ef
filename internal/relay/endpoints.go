package relay

import (
	"context"
	"sync"
	"time"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// endpoints are the receivers that this relay has met. What is known of them is in the database, and is written when it
// changes and read every few seconds, never with each event.
type endpoints struct {
	r       *Relay
	meeting sync.Mutex // held while new ones are introduced, or there would be two of a name
	mu      sync.Mutex
	byName  map[string]*endpoint
}

// endpointsEvery is how often what is known is written and read.
const endpointsEvery = 5 * time.Second

func newEndpoints(r *Relay) *endpoints {
	return &endpoints{r: r, byName: make(map[string]*endpoint)}
}

// find returns the receiver, and introduces it if it is new.
func (p *endpoints) find(ctx context.Context, info Endpoint) (*endpoint, error) {
	if ep := p.met(info); ep != nil {
		return ep, nil
	}
	p.meeting.Lock()
	defer p.meeting.Unlock()
	if ep := p.met(info); ep != nil {
		return ep, nil
	}
	ctx, cancel := p.r.call(ctx)
	defer cancel()
	known, err := p.r.cfg.Store.MeetEndpoints(ctx, p.r.cfg.Pool, []store.EndpointKey{info.key()})
	if err != nil || len(known) == 0 {
		return nil, err
	}
	ep := &endpoint{info: info, took: 100 * time.Millisecond}
	p.learned(ep, known[0])
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byName[info.Name] = ep
	return ep, nil
}

// met is nil for a receiver that is new, or that is not what it was.
func (p *endpoints) met(info Endpoint) *endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ep := p.byName[info.Name]; ep != nil && ep.info == info {
		return ep
	}
	return nil
}

func (p *endpoints) list() []*endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*endpoint, 0, len(p.byName))
	for _, ep := range p.byName {
		list = append(list, ep)
	}
	return list
}

// loop writes and reads what is known, beginning with the receiver that a publisher of a single one names without an event.
func (p *endpoints) loop(ctx context.Context) {
	if p.r.cfg.Endpoint == nil {
		return
	}
	for wait := time.Duration(0); ; wait = timing.Jitter(endpointsEvery, p.r.cfg.Random()) {
		if timing.Sleep(ctx, wait); ctx.Err() != nil {
			return
		}
		var err error
		if info := p.r.cfg.Only; info.Name != "" {
			_, err = p.find(ctx, info)
		}
		for _, step := range []func(context.Context) error{p.report, p.refresh, p.bringBack} {
			if err == nil && ctx.Err() == nil {
				err = step(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			p.r.log.Warn("relay.endpoints_failed", "error", store.Describe(err))
		}
	}
}

// report writes what was seen of receivers, where that is news.
func (p *endpoints) report(ctx context.Context) error {
	for _, ep := range p.list() {
		if err := p.reportOne(ctx, ep); err != nil {
			return err
		}
	}
	return nil
}

func (p *endpoints) reportOne(ctx context.Context, ep *endpoint) error {
	seen, news := ep.news(time.Now())
	if !news {
		return nil
	}
	return p.r.chore(ctx, func(ctx context.Context) error {
		known, found, err := p.r.cfg.Store.ReportEndpoint(ctx, p.r.cfg.Pool, seen)
		if err != nil {
			ep.unreported(seen)
		} else if found {
			p.learned(ep, known)
		}
		return err
	})
}

// refresh reads what others wrote, in steps.
func (p *endpoints) refresh(ctx context.Context) error {
	const most = 1000
	list := p.list()
	for len(list) > 0 {
		n := min(most, len(list))
		byKey := make(map[store.EndpointKey]*endpoint, n)
		keys := make([]store.EndpointKey, n)
		for i, ep := range list[:n] {
			keys[i] = ep.info.key()
			byKey[keys[i]] = ep
		}
		list = list[n:]
		err := p.r.chore(ctx, func(ctx context.Context) error {
			rows, err := p.r.cfg.Store.Endpoints(ctx, p.r.cfg.Pool, keys)
			for _, row := range rows {
				p.learned(byKey[row.EndpointKey], row)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// bringBack makes events due that are held for receivers which are enabled: their address changed, or they were parked just
// after somebody had enabled it.
func (p *endpoints) bringBack(ctx context.Context) error {
	var enabled []string
	for _, ep := range p.list() {
		if ep.settledDown(time.Now()) {
			enabled = append(enabled, ep.info.Name)
		}
	}
	if len(enabled) == 0 {
		return nil
	}
	var held []string
	err := p.r.chore(ctx, func(ctx context.Context) (err error) {
		held, err = p.r.cfg.Store.Held(ctx, p.r.cfg.Pool, enabled)
		return err
	})
	for _, name := range held {
		if err == nil && ctx.Err() == nil {
			err = p.redrive(ctx, name)
		}
	}
	return err
}

func (p *endpoints) redrive(ctx context.Context, name string) error {
	const batch = 1000
	scope := store.ParkedFilter{Endpoint: name, Reason: "disabled"}
	for ctx.Err() == nil {
		var step store.EventsRedriven
		err := p.r.chore(ctx, func(ctx context.Context) error {
			return store.InTx(ctx, p.r.cfg.Pool, func(q store.Querier) (err error) {
				step, err = p.r.cfg.Store.RedriveEvents(ctx, q, scope, batch, 0, store.By{Actor: p.r.cfg.ID, Reason: "the endpoint is enabled"})
				return err
			})
		})
		if err != nil || step.Back == 0 {
			return err
		}
		scope.After = step.Last
		p.r.log.Info("endpoint.held_events_are_back", "endpoint", name, "events", step.Back)
		p.r.Wake()
	}
	return nil
}

// learned takes in what is known of a receiver and tells of changes.
func (p *endpoints) learned(ep *endpoint, now store.Endpoint) {
	before := ep.learn(now)
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
