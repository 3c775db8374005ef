// Package health answers the probes of both binaries.
//
//	/livez    200 for as long as the process answers: restart it if it does not
//	/readyz   200 if the database answers and is no standby, its schema fits, the loops beat and the process is not on its
//	          way out; else 503, and the body names the checks that fail: send it no work
//	/health   the database alone, in the form that terminus gave it
//
// Whatever failed comes back by itself. The database is asked at most once a second, by one probe for all that wait, so
// that any number of probes costs it the same, and for at most 1.5 s, so that none hangs.
package health

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/store"
)

const (
	// Timeout bounds a look at the database.
	Timeout = 1500 * time.Millisecond
	// keptFor is how long its answer holds.
	keptFor = time.Second
)

// Names of the checks of /readyz.
const (
	CheckDatabase = "database"
	CheckSchema   = "schema"
	CheckLoops    = "loops"
	CheckDraining = "draining"
)

// Database is a *pgxpool.Pool.
type Database interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	// Reset gives up all connections.
	Reset()
}

// Config needs a Database.
type Config struct {
	Database Database
	// Schema is the one to look for. Default "notifyq".
	Schema string
	// Beating reports whether the loops of this process work. Nil means that there are none.
	Beating func() bool
	// MigrateCommand is what the log tells to run where the schema is missing or too old.
	MigrateCommand string
	// Logger is told when readiness changes. Nil is silent.
	Logger *slog.Logger
}

// Checker knows how the process is.
type Checker struct {
	cfg      Config
	draining atomic.Bool
	look     look

	mu      sync.Mutex
	failing string // of the last readiness that was logged
	known   bool
}

// New asks nothing yet.
func New(cfg Config) *Checker {
	if cfg.Schema == "" {
		cfg.Schema = schema.Default
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Checker{cfg: cfg}
	c.look.ask = c.ask
	return c
}

// Drain makes the process unready for good: it is on its way out.
func (c *Checker) Drain() { c.draining.Store(true) }

// database is what was found of it.
type database struct {
	up     bool
	fit    bool
	reason string // nothing secret: class, SQLSTATE, or what is the matter with the schema
}

// standbySQL is what every look begins with. A standby answers all that a primary does, until something is to be written.
// Whether a transaction may write is not asked: that is the role's or the session's setting too, and no state of a server.
const standbySQL = `select pg_catalog.pg_is_in_recovery()`

// ask looks at the database. A pool that has no connection to spare for that long can serve nobody else either.
func (c *Checker) ask() database {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	var standby bool
	if err := c.cfg.Database.QueryRow(ctx, standbySQL).Scan(&standby); err != nil {
		return database{reason: store.Describe(err)}
	}
	if standby {
		// The URL may lead to a primary by now. While the process is unready nobody asks it for anything that would find out.
		c.cfg.Database.Reset()
		return database{reason: "the server is a standby, which can't write"}
	}
	_, err := schema.Check(ctx, c.cfg.Database, c.cfg.Schema)
	var unfit *schema.Error
	switch {
	case err == nil:
		return database{up: true, fit: true}
	case errors.As(err, &unfit):
		return database{up: true, reason: unfit.Error()}
	default: // it answered, and then no more
		return database{reason: store.Describe(err)}
	}
}

// Failing are the names of the checks that fail, none if the process is ready.
func (c *Checker) Failing(ctx context.Context) []string {
	var failing []string
	found, answered := c.look.at(ctx)
	switch {
	case !answered || !found.up:
		failing = append(failing, CheckDatabase)
	case !found.fit:
		failing = append(failing, CheckSchema)
	}
	if c.cfg.Beating != nil && !c.cfg.Beating() {
		failing = append(failing, CheckLoops)
	}
	if c.draining.Load() {
		failing = append(failing, CheckDraining)
	}
	if answered {
		c.tell(failing, found.reason)
	}
	return failing
}

// tell logs a change. At a stop the worker's own lines say more.
func (c *Checker) tell(failing []string, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := strings.Join(failing, ",")
	starting := !c.known && now == CheckLoops // a worker that has not polled yet is no news
	if c.draining.Load() || starting || c.known && now == c.failing {
		return
	}
	c.known, c.failing = true, now
	attrs := []any{"failing", failing}
	if reason != "" {
		attrs = append(attrs, "reason", reason)
	}
	switch {
	case now == "":
		c.cfg.Logger.Info("health.ready")
	case slices.Contains(failing, CheckSchema) && c.cfg.MigrateCommand != "":
		c.cfg.Logger.Error("health.not_ready", append(attrs, "run", c.cfg.MigrateCommand)...)
	default:
		c.cfg.Logger.Error("health.not_ready", attrs...)
	}
}

// watchInterval is how often Watch looks.
const watchInterval = 5 * time.Second

// Watch looks until ctx ends, so that the log tells of an outage, and of its end, where nobody probes.
func (c *Checker) Watch(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		c.Failing(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
