package health

import (
	"context"
	"sync"
	"time"
)

// look keeps an answer for a while, and lets everybody who wants a new one wait for the same question.
type look struct {
	ask func() database

	mu      sync.Mutex
	last    database
	askedAt time.Time
	pending chan struct{} // closed when the question that runs is answered; nil if none runs
}

// at is what is known. It tells false if ctx ended before the answer. The question goes on then: its limit is its own.
func (l *look) at(ctx context.Context) (database, bool) {
	l.mu.Lock()
	if !l.askedAt.IsZero() && time.Since(l.askedAt) < keptFor {
		defer l.mu.Unlock()
		return l.last, true
	}
	if l.pending == nil {
		l.pending = make(chan struct{})
		go l.run(l.pending)
	}
	pending := l.pending
	l.mu.Unlock()
	select {
	case <-pending:
	case <-ctx.Done():
		return database{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, true
}

func (l *look) run(done chan struct{}) {
	found := l.ask()
	l.mu.Lock()
	l.last, l.askedAt, l.pending = found, time.Now(), nil
	l.mu.Unlock()
	close(done)
}
