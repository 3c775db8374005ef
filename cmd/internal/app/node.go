package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/api"
	"github.com/notifyq/notifyq/cmd/internal/health"
	"github.com/notifyq/notifyq/cmd/internal/httpserver"
	"github.com/notifyq/notifyq/cmd/internal/metrics"
	"github.com/notifyq/notifyq/cmd/internal/settings"
)

// probeGrace is what requests that run get when a worker has drained: they are probes and scrapes.
const probeGrace = time.Second

// NodeConfig is what a process does.
type NodeConfig struct {
	// Name is the binary's, as in the command to migrate by.
	Name     string
	Settings settings.Settings
	Logger   *slog.Logger
	// API serves the routes of the API, and not only those of health and metrics.
	API bool
	// Worker delivers.
	Worker bool
}

// Node is a process at work. It owns its pool.
type Node struct {
	cfg     NodeConfig
	log     *slog.Logger
	pool    *pgxpool.Pool
	client  *notifyq.Client
	worker  *worker // nil without
	health  *health.Checker
	metrics *metrics.Metrics
	handler http.Handler
}

// NewNode connects to nothing yet. Close ends a Node that was not run.
func NewNode(ctx context.Context, cfg NodeConfig) (*Node, error) {
	pool, err := openPool(ctx, cfg.Settings, cfg.Name)
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Logger, pool: pool}
	if err := n.assemble(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Node) assemble() (err error) {
	s := n.cfg.Settings
	n.client, err = notifyq.NewClient(n.pool, notifyq.ClientConfig{
		Schema: s.DatabaseSchema, Logger: n.log, MaxAttempts: s.MaxRetries + 1, OnAmbiguous: s.AmbiguousPolicy,
		TraceContext: traceContext,
	})
	if err != nil {
		return err
	}
	checks := health.Config{
		Database: n.pool, Schema: s.DatabaseSchema, Logger: n.log, MigrateCommand: n.cfg.Name + " migrate up",
	}
	patterns, err := n.patterns()
	if err != nil {
		return err
	}
	shown := metrics.Config{Source: n.client, Pool: n.pool, Binary: n.cfg.Name, Version: Version(), Logger: n.log, Routes: patterns}
	if n.cfg.Worker {
		if n.worker, err = newWorker(s, n.pool, n.client, n.log); err != nil {
			return err
		}
		checks.Beating, shown.Worker = n.worker.beating, n.worker.stats
	}
	n.health = health.New(checks)
	if n.metrics, err = metrics.New(shown); err != nil {
		return err
	}
	inner, err := n.routes()
	if err != nil {
		return err
	}
	n.handler = n.metrics.Count(withTrace(inner))
	return nil
}

// routes are those of the API, or of probes and scrapers alone: the mux answers everything else with a 404.
func (n *Node) routes() (http.Handler, error) {
	if !n.cfg.API {
		mux := http.NewServeMux()
		for _, pattern := range probes() {
			mux.Handle(pattern, n.health)
		}
		mux.Handle(scrape, n.metrics)
		return httpserver.Wrap(n.log, httpserver.Routes(mux)), nil
	}
	s := n.cfg.Settings
	cfg := api.Config{
		Client: n.client, Keys: s.APIKeys, Channels: s.Channels, Docs: s.Docs, Logger: n.log, Health: n.health, Metrics: n.metrics,
	}
	if s.Demo {
		receiver, err := newReceiver(s, n.pool, n.log)
		if err != nil {
			return nil, err
		}
		cfg.Demo = receiver
	}
	return api.New(cfg)
}

// probes are the patterns that health answers, and scrape is the one of metrics.
func probes() []string { return []string{"GET /health", "GET /livez", "GET /readyz"} }

const scrape = "GET /metrics"

// patterns are those by which requests are counted.
func (n *Node) patterns() ([]string, error) {
	if n.cfg.API {
		return api.Patterns()
	}
	return append(probes(), scrape), nil
}

// Listen opens the port of the settings.
func (n *Node) Listen(ctx context.Context) (net.Listener, error) {
	s := n.cfg.Settings
	return httpserver.Listen(ctx, net.JoinHostPort(s.Host, strconv.Itoa(s.Port)))
}

// Run works until ctx ends, and then ends in good order. A worker drains while probes are still answered, /readyz with a 503;
// then, and without a worker at once, the port is closed and requests that run are answered. It returns nil after that,
// notifyq.ErrDrainTimeout or, of an API, httpserver.ErrGrace if something had to be cut off, and otherwise why it could not go
// on. It closes ln and the pool.
func (n *Node) Run(ctx context.Context, ln net.Listener) error {
	defer n.Close()
	n.log.InfoContext(ctx, "process.started", "name", n.cfg.Name, "version", Version(), "address", ln.Addr().String(),
		"settings", n.cfg.Settings)
	defer context.AfterFunc(ctx, func() {
		n.health.Drain()
		n.log.InfoContext(ctx, "process.stopping", "name", n.cfg.Name)
	})()

	// Each of the three may fail, and then the others end too.
	work, stopWork := context.WithCancel(ctx)
	defer stopWork()
	serve, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	var beside sync.WaitGroup
	beside.Go(func() { n.metrics.Run(serve) })
	beside.Go(func() { n.health.Watch(serve) })
	var served error
	beside.Go(func() {
		served = n.serve(serve, ln)
		stopWork()
	})
	worked := n.work(work)
	stopServing()
	beside.Wait()
	return errors.Join(worked, served)
}

// work runs the worker, if there is one, until ctx ends.
func (n *Node) work(ctx context.Context) error {
	if n.worker == nil {
		<-ctx.Done()
		return nil
	}
	if err := n.worker.run(ctx, n.cfg.Name+" migrate up"); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}

// serve answers until ctx ends.
func (n *Node) serve(ctx context.Context, ln net.Listener) error {
	cfg := httpserver.Config{Listener: ln, Logger: n.log, Grace: httpserver.DefaultGrace}
	if !n.cfg.API {
		cfg.Grace = probeGrace
	}
	err := httpserver.Run(ctx, n.handler, cfg)
	if errors.Is(err, httpserver.ErrGrace) && !n.cfg.API {
		// A scrape that was cut off, or a connection that never said anything, which the server takes for a request for
		// its first five seconds. The work was done, and the exit code tells of that.
		n.log.InfoContext(ctx, "process.probes_cut_off", "name", n.cfg.Name)
		return nil
	}
	return err
}

// Close gives the connections back. Run does it by itself.
func (n *Node) Close() {
	if n.worker != nil {
		n.worker.providers.Close()
	}
	closePool(n.pool)
}
