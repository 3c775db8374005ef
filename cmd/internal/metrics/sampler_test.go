package metrics

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestScrapesOfTextAskNothing(t *testing.T) {
	t.Parallel()
	src := &source{stats: sampleStats()}
	m := newMetrics(t, Config{Source: src})
	m.sampler.take(t.Context())
	for range 50 {
		get(m, "")
	}
	require.Equal(t, 1, src.asked)
}

// One that joins while a question runs must not get its answer, which may be older than what was done.
func TestJSONWaitsForAQuestionThatBeginsAfterIt(t *testing.T) {
	t.Parallel()
	src := &source{stats: sampleStats()}
	m := newMetrics(t, Config{Source: src})
	m.sampler.take(t.Context())
	src.mu.Lock()
	src.hold, src.begun = make(chan struct{}), make(chan struct{})
	src.mu.Unlock()
	go m.sampler.take(t.Context())
	<-src.begun // with the old numbers
	m.sampler.mu.Lock()
	next := m.sampler.next
	m.sampler.mu.Unlock()
	close(src.hold)
	select {
	case <-next:
		t.Fatal("the question that ran already is not the next one")
	default:
	}
	src.mu.Lock()
	src.hold = nil
	src.mu.Unlock()
	m.sampler.take(t.Context())
	<-next
}

func TestSamplingLeavesTheDatabaseAlone(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: time.Second, 50 * time.Millisecond: time.Second, 200 * time.Millisecond: 4 * time.Second, 10 * time.Second: 30 * time.Second,
	} {
		require.Equal(t, want, pauseAfter(took))
	}
}

// slow is a source on a clock that moves when nothing else can.
type slow struct {
	took time.Duration
	busy time.Duration
}

func (s *slow) Stats(context.Context) (notifyq.Stats, error) {
	time.Sleep(s.took)
	s.busy += s.took
	return sampleStats(), nil
}

// However many read the JSON, and however the samples' cost lies to the limits.
func TestReadersOfJSONLeaveTheDatabaseAlone(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{
		time.Millisecond, 13 * time.Millisecond, 90 * time.Millisecond, 200 * time.Millisecond, 5 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			const minutes = 10
			src := &slow{took: took}
			s := newSampler(src, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute)
			defer cancel()
			var readers sync.WaitGroup
			for range 3 {
				readers.Go(func() {
					for ctx.Err() == nil {
						s.fresh(ctx)
						time.Sleep(5 * time.Millisecond)
					}
				})
			}
			s.run(ctx)
			readers.Wait()
			require.LessOrEqual(t, src.busy, minutes*time.Minute/(restFactor+1)+took, took)
			require.Positive(t, src.busy)
		})
	}
}

// A cheap sample is worth waiting for: the reader sees what was done before the question.
func TestReaderOfJSONGetsANewSampleWithinItsPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSampler(&slow{took: cheap}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go s.run(ctx)
		time.Sleep(cheap + time.Millisecond) // the worst moment: the rest has just begun
		asked := time.Now()
		sample := s.fresh(ctx)
		require.False(t, sample.at.Before(asked))
		cancel()
		synctest.Wait()
	})
}
