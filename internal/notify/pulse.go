package notify

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/notifyq/notifyq/internal/store"
)

// every is the least time from the end of one beat to the next: short beside a poll interval, and at most 100 locks a
// second that a process takes, or claims that it makes for nothing.
const every = 10 * time.Millisecond

// sendTimeout bounds a NOTIFY, which may wait for a connection or for the lock.
const sendTimeout = 5 * time.Second

// Pulse does something at once when it is asked to, and then at most once in 10 ms, however often it is asked. What is
// asked for while it is being done is done once more. It has a goroutine only while there is something to do.
type Pulse struct {
	do func()

	mu      sync.Mutex
	running bool
	again   bool
	ended   sync.WaitGroup
}

// NewPulse makes a Pulse of do.
func NewPulse(do func()) *Pulse { return &Pulse{do: do} }

// notifier tells other processes of one kind of work.
type notifier struct {
	kind string
	log  *slog.Logger
	send func(ctx context.Context, kind string) error
}

// NewNotifier is the Pulse that tells other processes of one kind of work.
func NewNotifier(kind string, log *slog.Logger, send func(ctx context.Context, kind string) error) *Pulse {
	return NewPulse((&notifier{kind: kind, log: log, send: send}).tell)
}

// tell is for many callers at once, so it ends with none of their contexts.
func (n *notifier) tell() {
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	if err := n.send(ctx, n.kind); err != nil {
		n.log.Debug("notify.failed", "kind", n.kind, "error", store.Describe(err))
	}
}

// Beat asks for it.
func (p *Pulse) Beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		p.again = true
		return
	}
	p.running = true
	p.ended.Go(p.run)
}

func (p *Pulse) run() {
	for {
		p.do()
		time.Sleep(every)
		if !p.more() {
			return
		}
	}
}

func (p *Pulse) more() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.again = p.again, false
	return p.running
}

// Wait returns when all that was asked for is done. Nobody may ask meanwhile.
func (p *Pulse) Wait() { p.ended.Wait() }
