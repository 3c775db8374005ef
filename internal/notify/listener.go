package notify

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// Config is what a Listener needs.
type Config struct {
	Store  *store.Store
	Logger *slog.Logger
	// Connect opens the connection to listen on.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	// Send tells of a kind from another connection, for the self-test.
	Send func(ctx context.Context, kind string) error
	// Wake are the loops, by the kind of work that they look for.
	Wake map[string]func()
	// Random is uniform in [0, 1).
	Random func() float64
	// Times is zero but in tests.
	Times Times
}

// Times are how long a Listener waits for what. The zero value works.
type Times struct {
	Connect  time.Duration // until a connection listens. Default 10 s
	Patience time.Duration // until what was sent to it, or an answer, must have arrived. Default 5 s
	Check    time.Duration // after which an idle connection is asked whether it is alive. Default 30 s
	Retry    time.Duration // the longest backoff after a loss. Default 30 s
	Deaf     time.Duration // until listening is tried again where nothing arrives. Default 10 min
}

func (t Times) withDefaults() Times {
	t.Connect = cmp.Or(t.Connect, 10*time.Second)
	t.Patience = cmp.Or(t.Patience, 5*time.Second)
	t.Check = cmp.Or(t.Check, 30*time.Second)
	t.Retry = cmp.Or(t.Retry, 30*time.Second)
	t.Deaf = cmp.Or(t.Deaf, 10*time.Minute)
	return t
}

// Listener wakes loops for what other processes tell.
type Listener struct {
	cfg       Config
	wake      map[string]*Pulse
	listening atomic.Bool
	trouble   trouble // what was logged last
}

type trouble uint8

const (
	none trouble = iota
	lost
	deaf
)

// errDeaf tells that a connection listens and nothing arrives on it.
var errDeaf = errors.New("nothing arrives on the listening connection")

// New makes a Listener; Run starts it.
func New(cfg Config) *Listener {
	cfg.Times = cfg.Times.withDefaults()
	l := &Listener{cfg: cfg, wake: make(map[string]*Pulse, len(cfg.Wake))}
	for kind, wake := range cfg.Wake {
		l.wake[kind] = NewPulse(wake)
	}
	return l
}

// Listening tells whether what other processes tell arrives, as far as is known.
func (l *Listener) Listening() bool { return l.listening.Load() }

// Run listens until ctx ends, and wakes nobody any more when it has returned.
func (l *Listener) Run(ctx context.Context) {
	defer func() {
		for _, p := range l.wake {
			p.Wait()
		}
	}()
	for failures := 0; ; {
		began := time.Now()
		err := l.session(ctx)
		l.listening.Store(false)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > l.cfg.Times.Check {
			failures = 0 // it held for a while: one that is lost again and again is not made anew again and again
		}
		failures++
		wait := timing.BackoffTo(l.cfg.Times.Retry, failures, l.cfg.Random())
		if errors.Is(err, errDeaf) {
			wait = timing.Jitter(l.cfg.Times.Deaf, l.cfg.Random())
		}
		l.tell(err, wait)
		timing.Sleep(ctx, wait)
	}
}

// tell logs what keeps it from listening, once.
func (l *Listener) tell(err error, wait time.Duration) {
	switch {
	case !errors.Is(err, errDeaf):
		if l.trouble == none {
			l.trouble = lost
			l.cfg.Logger.Warn("listener.lost", "error", store.Describe(err), "retryInMs", wait.Milliseconds())
		}
	case l.trouble != deaf:
		l.trouble = deaf
		l.cfg.Logger.Warn("listener.deaf", "meanwhile", "only polling is used", "retryInMs", wait.Milliseconds())
	}
}

// listens notes that the connection hears.
func (l *Listener) listens() {
	l.listening.Store(true)
	if l.trouble != none {
		l.trouble = none
		l.cfg.Logger.Info("listener.back")
	}
}
