// Package metrics serves /metrics of both binaries: Prometheus text, or JSON to who asks for it.
//
// What the database has to tell is sampled on a timer, never by a scrape: the pause is twenty times what the last sample
// took, and between a second and half a minute. So sampling keeps less than a twentieth of one connection busy, and a
// quarter where a sample takes all of its ten seconds. Who reads the JSON often has just done something and wants to see
// it: the pause ends early for them where a sample is cheap, and however many ask, a fifth of the connection is the most
// that they get. While the database is away the text has the last sample, with its age, and the JSON has it for a minute.
//
// No label holds anything of a notification, a tenant or a client: their values are those in this package, and the routes
// that the process has.
package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/httpserver"
)

// maxScrapes is how many are answered with text at once: each gathers everything.
const maxScrapes = 8

// Source is a *notifyq.Client.
type Source interface {
	Stats(ctx context.Context) (notifyq.Stats, error)
}

// Config needs a Source.
type Config struct {
	// Source is asked for the state of the queue.
	Source Source
	// Pool, if set, is shown.
	Pool *pgxpool.Pool
	// Worker, if set, is shown. It is called with every scrape. It tells false while there is none.
	Worker func() (notifyq.WorkerStats, bool)
	// Routes are the patterns of http.ServeMux, with a method each, by which requests are counted. What none of them serves
	// counts together, as "other".
	Routes []string
	// Binary is which one this is, by which alerts tell an API from a worker, and Version is the one that it has.
	Binary, Version string
	// Logger hears of samples that fail. Nil is silent.
	Logger *slog.Logger
}

// Metrics is a registry of its own and what fills it.
type Metrics struct {
	sampler  *sampler
	registry *prometheus.Registry
	text     http.Handler
	http     *requests
	places   chan struct{} // a scrape of text has one
}

// New asks for nothing yet: Run does.
func New(cfg Config) (*Metrics, error) {
	if cfg.Source == nil {
		return nil, errors.New("metrics: Source is required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	counted, err := newRequests(cfg.Routes)
	if err != nil {
		return nil, err
	}
	m := &Metrics{
		sampler: newSampler(cfg.Source, cfg.Logger), registry: prometheus.NewPedanticRegistry(), http: counted,
		places: make(chan struct{}, maxScrapes),
	}
	all := []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(cfg.Binary, cfg.Version), newQueueCollector(m.sampler),
	}
	if len(cfg.Routes) > 0 {
		all = append(all, m.http.total, m.http.duration)
	}
	if cfg.Pool != nil {
		all = append(all, newPoolCollector(cfg.Pool))
	}
	if cfg.Worker != nil {
		all = append(all, newWorkerCollector(cfg.Worker))
	}
	for _, c := range all {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	m.text = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}) // it asks nobody, so it needs no time limit
	return m, nil
}

// Run samples until ctx ends, the first time at once.
func (m *Metrics) Run(ctx context.Context) { m.sampler.run(ctx) }

// ServeHTTP answers with Prometheus text, or with JSON where Accept prefers it. It is for the route of GET.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if prefersJSON(r.Header.Values("Accept")) {
		m.serveJSON(w, r)
		return
	}
	select {
	case m.places <- struct{}{}:
		defer func() { <-m.places }()
		m.text.ServeHTTP(w, r)
	default:
		unavailable(w, r, "Too many scrapes run at once.")
	}
}

func unavailable(w http.ResponseWriter, r *http.Request, detail string) {
	w.Header().Set("Retry-After", "1")
	httpserver.WriteProblem(w, r, httpserver.Problem{
		Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: detail,
	})
}
