package metrics

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/httpserver"
	"github.com/notifyq/notifyq/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// source answers with what is put into it.
type source struct {
	mu    sync.Mutex
	stats notifyq.Stats
	err   error
	asked int
	hold  chan struct{} // if set, a question waits for it
	begun chan struct{}
}

func (s *source) Stats(ctx context.Context) (notifyq.Stats, error) {
	s.mu.Lock()
	s.asked++
	stats, err, hold := s.stats, s.err, s.hold
	s.mu.Unlock()
	if hold != nil {
		s.begun <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
			return notifyq.Stats{}, ctx.Err()
		}
	}
	return stats, err
}

func (s *source) set(stats notifyq.Stats, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats, s.err = stats, err
}

func sampleStats() notifyq.Stats {
	return notifyq.Stats{
		Jobs: map[notifyq.Status]int64{
			notifyq.StatusPending: 1, notifyq.StatusProcessing: 2, notifyq.StatusSent: 3, notifyq.StatusFailed: 4,
			notifyq.StatusDeadLettered: 5, notifyq.StatusCancelled: 6,
		},
		QueueLag: 1500 * time.Millisecond,
		Outbox: notifyq.OutboxStats{
			Pending: 7, Parked: 9, Held: 1, Published: 10, OldestPending: 11 * time.Second, OldestDue: 12 * time.Second,
			Failing: map[int]int64{1: 13, 3: 14, 10: 15}, DisabledEndpoints: 16,
		},
	}
}

func newMetrics(t *testing.T, cfg Config) *Metrics {
	m, err := New(cfg)
	require.NoError(t, err)
	return m
}

func get(m *Metrics, accept string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	m.ServeHTTP(w, r)
	return w
}

// run samples until the test ends.
func run(t *testing.T, m *Metrics) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		m.Run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func TestNamesAreByConvention(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	m := newMetrics(t, Config{
		Source: &source{stats: sampleStats()}, Pool: db.Pool, Routes: []string{"GET /notifications/{id}"}, Version: "v1",
		Worker: func() (notifyq.WorkerStats, bool) {
			now := time.Now()
			return notifyq.WorkerStats{PolledAt: now, Relay: notifyq.RelayStats{PolledAt: now}}, true
		},
	})
	m.sampler.take(t.Context())
	answers := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	m.Count(answers).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	problems, err := testutil.GatherAndLint(m.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := m.registry.Gather()
	require.NoError(t, err)
	names := regexp.MustCompile(`^(notifyq_|go_|process_)[a-z_]+$`)
	for _, family := range families {
		require.Regexp(t, names, family.GetName())
		require.LessOrEqual(t, len(family.GetMetric()), 10, family.GetName())
	}
}

func TestPrometheusTextHasTheSample(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, Config{Source: &source{stats: sampleStats()}, Binary: "notifyq-api", Version: "v1.2.3"})
	body := get(m, "").Body.String()
	require.NotContains(t, body, "notifyq_jobs", "nothing is known yet")
	require.Contains(t, body, "notifyq_sample_failures_total 0")
	m.sampler.take(t.Context())
	answer := get(m, "")
	require.Equal(t, http.StatusOK, answer.Code)
	require.True(t, strings.HasPrefix(answer.Header().Get("Content-Type"), "text/plain"))
	for _, line := range []string{
		`notifyq_jobs{status="pending"} 1`, `notifyq_jobs{status="processing"} 2`, `notifyq_jobs{status="sent"} 3`,
		`notifyq_jobs{status="failed"} 4`, `notifyq_jobs{status="dead_lettered"} 5`, `notifyq_jobs{status="cancelled"} 6`,
		`notifyq_queue_lag_seconds 1.5`, `notifyq_outbox_events{state="pending"} 7`, `notifyq_outbox_events{state="parked"} 8`,
		`notifyq_outbox_events{state="held"} 1`, `notifyq_outbox_events{state="published"} 10`,
		`notifyq_outbox_oldest_pending_seconds 11`, `notifyq_outbox_oldest_due_seconds 12`,
		`notifyq_outbox_failing_events{at_least="1"} 13`, `notifyq_outbox_failing_events{at_least="3"} 14`,
		`notifyq_outbox_failing_events{at_least="10"} 15`, `notifyq_outbox_disabled_endpoints 16`, `notifyq_stats_estimated 0`,
		`notifyq_build_info{binary="notifyq-api",goversion="` + runtime.Version() + `",version="v1.2.3"} 1`,
	} {
		require.Contains(t, answer.Body.String(), line+"\n")
	}
}

func TestSourceIsRequired(t *testing.T) {
	t.Parallel()
	_, err := New(Config{})
	require.Error(t, err)
}

// Whoever is refused gets the one form of an error, as from every other route.
func TestRefusalsAreProblems(t *testing.T) {
	t.Parallel()
	hold, begun := make(chan struct{}), make(chan struct{}, maxScrapes)
	m := newMetrics(t, Config{Source: &source{}, Worker: func() (notifyq.WorkerStats, bool) {
		begun <- struct{}{}
		<-hold
		return notifyq.WorkerStats{}, false
	}})
	m.sampler.failing = true
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m)
	served := httpserver.Wrap(nil, httpserver.Routes(mux))
	ask := func(method, accept string) (int, httpserver.Problem) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "/metrics", nil)
		r.Header.Set("Accept", accept)
		served.ServeHTTP(w, r)
		require.Equal(t, httpserver.ContentTypeProblem, w.Header().Get("Content-Type"))
		var p httpserver.Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		require.Equal(t, "about:blank", p.Type)
		require.Equal(t, w.Code, p.Status)
		require.NotEmpty(t, p.Code)
		require.NotNil(t, p.Errors)
		require.Equal(t, w.Header().Get("X-Request-Id"), p.RequestID)
		return w.Code, p
	}
	code, _ := ask(http.MethodGet, "application/json")
	require.Equal(t, http.StatusServiceUnavailable, code, "without a sample")
	code, _ = ask(http.MethodPost, "")
	require.Equal(t, http.StatusMethodNotAllowed, code)
	var scrapes sync.WaitGroup
	for range maxScrapes {
		scrapes.Go(func() { get(m, "") })
	}
	for range maxScrapes {
		<-begun
	}
	code, p := ask(http.MethodGet, "text/plain")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, p.Detail, "Too many scrapes")
	close(hold)
	scrapes.Wait()
}
