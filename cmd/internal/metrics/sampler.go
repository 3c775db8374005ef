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
	// pauseFactor keeps sampling below a twentieth of the time, up to samples for which maxPause is shorter.
	pauseFactor = 20
	// minRest and restFactor are what is left of the pause where somebody waits: anybody may ask, as often as they like.
	minRest    = 50 * time.Millisecond
	restFactor = 4
	// patience is how long somebody who reads the JSON waits for a new sample.
	patience = 500 * time.Millisecond
	// cheap is what a sample may have taken for that to be worth it: rest and sample are over within the patience.
	cheap = patience / (restFactor + 1)
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
		s.pause(ctx, s.take(ctx))
	}
}

// pause waits after a try that took so long. Whoever reads the JSON shortens it, and not below the rest: otherwise a client
// in a loop would keep a connection busy for all of the time.
func (s *sampler) pause(ctx context.Context, took time.Duration) {
	rest := time.NewTimer(restAfter(took))
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return
	case <-rest.C:
	}
	remaining := time.NewTimer(pauseAfter(took) - restAfter(took))
	defer remaining.Stop()
	select {
	case <-ctx.Done():
	case <-remaining.C:
	case <-s.kick:
	}
}

func pauseAfter(took time.Duration) time.Duration {
	return min(max(pauseFactor*took, minPause), maxPause)
}

func restAfter(took time.Duration) time.Duration { return min(max(restFactor*took, minRest), maxPause) }

// take makes one try and returns how long it took.
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
		return took
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.last = &sample{stats, begun, took}
	default:
		s.failures++
		if !s.failing { // once for each time that it begins to fail
			s.logger.WarnContext(ctx, "metrics.sample_failed", "error", err)
		}
	}
	s.failing = err != nil
	return took
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
