// Package devdb gives demos, -dev and tests a PostgreSQL without any set-up.
//
// Start takes the first of these that works:
//
//  1. the server at Config.URL, and nothing is started;
//  2. server binaries on this machine, as a private cluster in a temporary folder on loopback;
//  3. Config.Fallbacks in their order, such as a container, or binaries that are downloaded.
//
// The data is thrown away. Stop ends the server and removes its folder. On Linux the server also ends when this process
// is killed, and its folder is removed by the next Start of any process; elsewhere it ends within a minute of that.
package devdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

// ErrNotOurs is the answer to Shutdown, Crash, Start and Restart of a server that Start did not start from local binaries.
var ErrNotOurs = errors.New("devdb: only a server started from local binaries can be stopped and started again")

// Config says where a database may come from. The zero value is a private cluster from local binaries.
type Config struct {
	// URL is a server to use as it is. Empty means none.
	URL string
	// Fast gives up surviving a crash of the machine for speed: fsync, synchronous_commit and full_page_writes are
	// off. An immediate stop may then lose the last commits, too, unless Settings turns synchronous_commit on again.
	// For tests only.
	Fast bool
	// Settings are server settings such as max_connections, stronger than those of Fast.
	Settings map[string]string
	// Fallbacks are tried in their order when no local binaries work.
	Fallbacks []Fallback
	// Dir is the folder in which the cluster gets a temporary one of its own. Empty means the system's. The user that
	// the server runs as must be able to enter it.
	Dir string
	// Log hears what was started. Nil discards it.
	Log *slog.Logger

	// binaries overrides where binaries are looked for, so that tests can look nowhere.
	binaries func(context.Context) []string
}

// Fallback is another way to a database. It has one of the two functions.
type Fallback struct {
	// Name is for the error that lists what was tried.
	Name string
	// Start returns the URL of a superuser's connection, and what stops the server.
	Start func(context.Context) (url string, stop func() error, err error)
	// Binaries returns a folder with initdb and postgres, from which a private cluster is started as from local ones.
	Binaries func(context.Context) (folder string, err error)
}

func (f Fallback) start(ctx context.Context, cfg Config) (*Server, error) {
	if f.Binaries != nil {
		bin, err := f.Binaries(ctx)
		if err != nil {
			return nil, err
		}
		return startCluster(ctx, bin, cfg)
	}
	url, stop, err := f.Start(ctx)
	if err != nil {
		return nil, err
	}
	cfg.Log.InfoContext(ctx, "started a throw-away PostgreSQL", "from", f.Name)
	return &Server{url: url, stop: stop}, nil
}

// Server is a PostgreSQL that is ready for connections. Its methods may be called concurrently.
type Server struct {
	url     string
	cluster *cluster // nil if it did not come from local binaries

	once    sync.Once
	stop    func() error
	stopErr error
}

// Start returns a server that is ready, or an error that lists what was tried. The end of ctx ends the start, not a
// server that has started.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.URL != "" {
		return &Server{url: cfg.URL, stop: func() error { return nil }}, nil
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.binaries == nil {
		cfg.binaries = localBinaries
	}
	var tried attempts
	if s := startLocal(ctx, cfg, &tried); s != nil {
		return s, nil
	}
	for _, f := range cfg.Fallbacks {
		if ctx.Err() != nil {
			break
		}
		s, err := f.start(ctx, cfg)
		if err == nil {
			return s, nil
		}
		tried.add(f.Name, err)
	}
	if err := ctx.Err(); err != nil {
		tried.add("start", err)
	}
	return nil, tried.error()
}

func startLocal(ctx context.Context, cfg Config, tried *attempts) *Server {
	folders := cfg.binaries(ctx)
	if len(folders) == 0 {
		tried.add("local binaries", errors.New("no initdb and postgres on PATH, in "+
			strings.Join(binaryGlobs(), " or ")+", or where pg_config points"))
	}
	removeStale(cfg.Dir, cfg.Log)
	for _, bin := range folders {
		if ctx.Err() != nil {
			return nil
		}
		s, err := startCluster(ctx, bin, cfg)
		if err == nil {
			return s
		}
		tried.add(bin, err)
	}
	return nil
}

func startCluster(ctx context.Context, bin string, cfg Config) (*Server, error) {
	c, err := newCluster(ctx, bin, cfg)
	if err != nil {
		return nil, err
	}
	cfg.Log.InfoContext(ctx, "started a throw-away PostgreSQL", "from", bin, "port", c.port)
	return &Server{url: c.url(), cluster: c, stop: c.remove}, nil
}

// URL is a superuser's connection string. It holds the password.
func (s *Server) URL() string { return s.url }

// Stop ends the server and removes its data. Further calls return what the first returned.
func (s *Server) Stop() error {
	s.once.Do(func() { s.stopErr = s.stop() })
	return s.stopErr
}

// Shutdown ends the server in good order (connections are cut, what they committed is kept) and keeps its data for
// Start. It does nothing to a server that is down.
func (s *Server) Shutdown() error {
	if s.cluster == nil {
		return ErrNotOurs
	}
	return s.cluster.halt(fastShutdown)
}

// Crash ends the server as if it had been killed, so that Start has to recover from the log. It does nothing to a
// server that is down.
func (s *Server) Crash() error {
	if s.cluster == nil {
		return ErrNotOurs
	}
	return s.cluster.halt(immediateShutdown)
}

// Start starts a server that is down again, on the same port and with the same data. It does nothing to one that runs.
func (s *Server) Start(ctx context.Context) error {
	if s.cluster == nil {
		return ErrNotOurs
	}
	return s.cluster.start(ctx)
}

// Restart is Shutdown and Start.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Shutdown(); err != nil {
		return err
	}
	return s.Start(ctx)
}

// attempts remembers what was tried and why it failed.
type attempts []error

func (a *attempts) add(what string, err error) { *a = append(*a, fmt.Errorf("%s: %w", what, err)) }

func (a *attempts) error() error {
	return fmt.Errorf("devdb: no PostgreSQL to use; give the URL of one or install the server's binaries. Tried:\n%w",
		errors.Join(*a...))
}
