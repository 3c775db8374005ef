// Package grouping lets calls that come at the same time go to the database together, where most of what a call costs is
// its round trip or its commit. Nothing waits for company: a call on its own goes at once, and those that come while it
// runs go together after it, so a group only holds calls that began before it was sent.
package grouping

import (
	"context"
	"sync"
	"time"
)

const (
	// maxRunning is how many groups are under way at once: one is prepared while another one waits for the database.
	maxRunning = 2
	// maxCalls and maxSize bound a group.
	maxCalls = 500
	maxSize  = 8 << 20
	// timeout bounds a group whose callers would wait for ever.
	timeout = time.Minute
)

// Call is one call: what is asked, and the answer.
type Call[Q, A any] struct {
	Ask    Q
	Answer A
	Err    error

	done  chan struct{}
	gone  bool   // its caller has not waited; under the lock
	leave func() // tells the group that it is in; nil before; under the lock
}

// Group is where the calls of one kind meet.
type Group[Q, A any] struct {
	// Run answers the calls. It returns false if they can't go together: then each goes alone, so that only those fail, or
	// wait, that have to.
	Run func(ctx context.Context, calls []*Call[Q, A]) bool
	// Size is what a call adds to its group, in bytes; nil: nothing that counts.
	Size func(ask Q) int

	mu      sync.Mutex
	waiting []*Call[Q, A]
	running int
}

// Do returns the answer, or the context's error as soon as it ends; a group all of whose callers have left is cancelled.
func (g *Group[Q, A]) Do(ctx context.Context, ask Q) (answer A, err error) {
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	call := &Call[Q, A]{Ask: ask, done: make(chan struct{})}
	g.mu.Lock()
	if g.running < maxRunning {
		g.running++
		go g.runAll(ctx, []*Call[Q, A]{call})
	} else {
		g.waiting = append(g.waiting, call)
	}
	g.mu.Unlock()
	select {
	case <-call.done:
		return call.Answer, call.Err
	case <-ctx.Done():
	}
	g.mu.Lock()
	call.gone = true
	leave := call.leave
	g.mu.Unlock()
	if leave != nil {
		leave()
	}
	return answer, ctx.Err()
}

// runAll runs a group, and then what came meanwhile, until there is nothing.
func (g *Group[Q, A]) runAll(ctx context.Context, calls []*Call[Q, A]) {
	for len(calls) > 0 {
		g.run(ctx, calls)
		calls = g.take()
	}
}

// take is what goes together next; with nothing left the runner ends.
func (g *Group[Q, A]) take() (calls []*Call[Q, A]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size, n := 0, 0
	for ; n < len(g.waiting) && n < maxCalls; n++ {
		call := g.waiting[n]
		if call.gone {
			continue
		}
		if g.Size != nil {
			if size += g.Size(call.Ask); size > maxSize && len(calls) > 0 {
				break
			}
		}
		calls = append(calls, call)
	}
	rest := copy(g.waiting, g.waiting[n:])
	clear(g.waiting[rest:])
	g.waiting = g.waiting[:rest]
	if len(calls) == 0 {
		g.running--
	}
	return calls
}

func (g *Group[Q, A]) run(ctx context.Context, calls []*Call[Q, A]) {
	ctx, cancel := g.contextOf(ctx, calls)
	defer cancel()
	if !g.Run(ctx, calls) && len(calls) > 1 {
		for _, call := range calls {
			go g.run(ctx, []*Call[Q, A]{call})
		}
		return
	}
	for _, call := range calls {
		close(call.done)
	}
}

// contextOf ends when all callers have gone, or when it has taken too long.
func (g *Group[Q, A]) contextOf(ctx context.Context, calls []*Call[Q, A]) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	var mu sync.Mutex
	left := len(calls)
	leave := func() {
		mu.Lock()
		defer mu.Unlock()
		if left--; left == 0 {
			cancel()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, call := range calls {
		call.leave = leave
		if call.gone {
			leave()
		}
	}
	return ctx, cancel
}
