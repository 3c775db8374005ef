package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/notifyq/notifyq"
)

const (
	// sampleTimeout bounds a sample.
	sampleTimeout = 10 * time.Second
	minPause      = time.Second
	maxPause      = 30 * time.Second
	// pauseFactor keeps sampling below a twentieth of the time.
	pauseFactor = 20
	// cheap is what a sample may have taken that is repeated for somebody who reads the JSON.
	cheap = 250 * time.Millisecond
	// patience is how long such a reader waits for it.
	patience = 500 * time.Millisecond
)

// sample is what was last known. It is never changed.
type sample struct {
	stats notifyq.Stats
	at    time.Time
	took  time.Duration
}

// sampler asks one question at a time.
type sampler struct {
	source Source
	logger *slog.Logger
	kick   chan struct{} // one slot: somebody waits for a new sample

	mu       sync.Mutex
	last     *sample // nil before the first
	failing  bool    // the last try failed
	failures int64
	next     chan struct{} // closed when the try ends that begins after now
}

func newSampler(source Source, logger *slog.Logger) *sampler {
	return &sampler{source: source, logger: logger, kick: make(chan struct{}, 1), next: make(chan struct{})}
}

func (s *sampler) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := time.NewTimer(s.take(ctx))
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-s.kick:
		}
		pause.Stop()
	}
}

// take makes one try and returns the pause after it.
func (s *sampler) take(ctx context.Context) time.Duration {
	s.mu.Lock()
	done := s.next
	s.next = make(chan struct{}) // who comes from now on waits for the next try: this one may see less than they did
	s.mu.Unlock()
	defer close(done)

	begun := time.Now()
	call, cancel := context.WithTimeout(ctx, sampleTimeout)
	stats, err := s.source.Stats(call)
	cancel()
	took := time.Since(begun)
	if ctx.Err() != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.last = &sample{stats, begun, took}
	default:
		s.failures++
		if !s.failing { // once for each time that it begins to fail
			s.logger.WarnContext(ctx, "metrics.sample_failed", "error", err.Error())
		}
	}
	s.failing = err != nil
	return min(max(pauseFactor*took, minPause), maxPause)
}

// current is the last sample, or nil before the first.
func (s *sampler) current() (last *sample, failures int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.failures
}

// fresh is a sample that was begun after now, if that is cheap to have, and else the last one.
func (s *sampler) fresh(ctx context.Context) *sample {
	s.mu.Lock()
	last, failing, next := s.last, s.failing, s.next
	s.mu.Unlock()
	if failing || last != nil && last.took > cheap {
		return last
	}
	select {
	case s.kick <- struct{}{}:
	default: // somebody else has
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-next:
	case <-timer.C:
	case <-ctx.Done():
	}
	last, _ = s.current()
	return last
}
