package notifyq

import (
	"context"
	"sync"
	"time"

	"github.com/notifyq/notifyq/internal/store"
)

// commits lets calls of Schedule that come at the same time share a transaction, since what a call costs is its commit. A
// call on its own goes at once; those that come while it runs go together after it. Each returns only when its
// notification is committed.
type commits struct {
	mu      sync.Mutex
	waiting []*commit
	running int
}

// commit is one call.
type commit struct {
	job    store.NewJob
	answer Scheduled
	err    error
	done   chan struct{}
	gone   bool   // its caller has not waited; under the lock
	leave  func() // tells the transaction that it is in; nil before; under the lock
}

const (
	// maxCommits is how many such transactions one client has open: one is prepared while another one waits for the disk.
	maxCommits = 2
	// maxCommitJobs and maxCommitBytes bound one of them.
	maxCommitJobs  = 500
	maxCommitBytes = 8 << 20
	// sharedLockWait is how long a shared transaction waits for somebody else's uncommitted key. Then its calls go one by
	// one, so that only those wait that have to.
	sharedLockWait = 50 * time.Millisecond
	// commitTimeout bounds one whose callers would wait for ever.
	commitTimeout = time.Minute
)

// schedule stores one checked notification.
func (c *Client) schedule(ctx context.Context, job store.NewJob) (Scheduled, error) {
	if err := ctx.Err(); err != nil {
		return Scheduled{}, databaseError("schedule", err)
	}
	call := &commit{job: job, done: make(chan struct{})}
	g := c.commits
	g.mu.Lock()
	if g.running < maxCommits {
		g.running++
		go c.commitAll(ctx, []*commit{call})
	} else {
		g.waiting = append(g.waiting, call)
	}
	g.mu.Unlock()
	select {
	case <-call.done:
		return call.answer, call.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	call.gone = true
	leave := call.leave
	g.mu.Unlock()
	if leave != nil {
		leave()
	}
	return Scheduled{}, databaseError("schedule", ctx.Err())
}

// commitAll commits a batch, and then what came meanwhile, until there is nothing.
func (c *Client) commitAll(ctx context.Context, calls []*commit) {
	for len(calls) > 0 {
		c.commitTogether(ctx, calls, sharedLockWait)
		calls = c.commits.take()
	}
}

// take is what goes together next; with nothing left the runner ends.
func (g *commits) take() (calls []*commit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size, n := 0, 0
	for n < len(g.waiting) && n < maxCommitJobs && (n == 0 || size+len(g.waiting[n].job.Payload) <= maxCommitBytes) {
		if call := g.waiting[n]; !call.gone {
			calls = append(calls, call)
			size += len(call.job.Payload)
		}
		n++
	}
	rest := copy(g.waiting, g.waiting[n:])
	clear(g.waiting[rest:])
	g.waiting = g.waiting[:rest]
	if len(calls) == 0 {
		g.running--
	}
	return calls
}

// commitTogether stores calls in one transaction, and one by one if they can't share it: one's values may be refused, or
// its key be held by a transaction that is still open.
func (c *Client) commitTogether(ctx context.Context, calls []*commit, lockWait time.Duration) {
	ctx, cancel := c.commits.contextOf(ctx, calls)
	defer cancel()
	b := &batch{c: c, answers: make([]Scheduled, len(calls))}
	for i, call := range calls {
		b.jobs, b.places = append(b.jobs, call.job), append(b.places, i)
	}
	if len(calls) == 1 {
		lockWait = 0
	}
	err := b.commit(ctx, lockWait)
	if err != nil && len(calls) > 1 && (store.IsDataError(err) || store.Code(err) == "55P03") {
		for _, call := range calls {
			go c.commitTogether(ctx, []*commit{call}, 0)
		}
		return
	}
	if b.due {
		c.wakers.wake()
	}
	for i, call := range calls {
		call.answer, call.err = b.answers[i], databaseError("schedule", err)
		if err == nil {
			call.err = call.answer.Err
		}
		close(call.done)
	}
}

// contextOf ends when all callers have gone, or when it has taken too long.
func (g *commits) contextOf(ctx context.Context, calls []*commit) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
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
