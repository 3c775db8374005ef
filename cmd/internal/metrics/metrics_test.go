package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
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
		Source: &source{stats: sampleStats()}, Pool: db.Pool, Routes: []string{"/notifications/{id}"}, Version: "v1",
		Worker: func() (notifyq.WorkerStats, bool) {
			now := time.Now()
			return notifyq.WorkerStats{PolledAt: now, Relay: notifyq.RelayStats{PolledAt: now}}, true
		},
	})
	m.sampler.take(t.Context())
	m.Count(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
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

func TestJSONIsTheContract(t *testing.T) {
	t.Parallel()
	src := &source{stats: sampleStats()}
	m := newMetrics(t, Config{Source: src})
	m.sampler.take(t.Context())
	m.sampler.last.took = time.Hour // a costly one is not repeated
	answer := get(m, "application/json")
	require.Equal(t, http.StatusOK, answer.Code)
	require.Equal(t, "application/json", answer.Header().Get("Content-Type"))
	require.Equal(t, "Accept", answer.Header().Get("Vary"))
	require.Equal(t, "0", answer.Header().Get("Age"))
	require.Equal(t, `{"jobs":{"pending":1,"processing":2,"sent":3,"failed":4,"deadLettered":5,"cancelled":6},`+
		`"queueLagSeconds":1.5,"webhooks":{"pending":7,"delivered":10,"givenUp":9},"estimated":false}`+"\n", answer.Body.String())
	require.Equal(t, 1, src.asked)
}

func TestScrapesAskNothing(t *testing.T) {
	t.Parallel()
	src := &source{stats: sampleStats()}
	m := newMetrics(t, Config{Source: src})
	m.sampler.take(t.Context())
	for range 50 {
		get(m, "")
	}
	require.Equal(t, 1, src.asked)
}

// Who reads the JSON has often just done something.
func TestJSONSeesWhatWasDoneBefore(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	client, err := notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	m := newMetrics(t, Config{Source: client})
	m.sampler.take(t.Context())
	m.sampler.last.took = 0 // whatever this machine made of it
	run(t, m)
	_, err = client.Schedule(t.Context(), notifyq.Notification{
		IdempotencyKey: uuid.NewString(), Recipient: "canary", Channel: "X", Payload: []byte(`1`), Delay: time.Hour,
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return strings.Contains(get(m, "application/json").Body.String(), `"pending":1`)
	}, 20*time.Second, 10*time.Millisecond)
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

func TestDatabaseAwayLeavesTheLastValues(t *testing.T) {
	t.Parallel()
	src := &source{err: errors.New("database connection failed")}
	var logs bytes.Buffer
	m := newMetrics(t, Config{Source: src, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	m.sampler.take(t.Context())
	answer := get(m, "application/json")
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Equal(t, "1", answer.Header().Get("Retry-After"))
	require.Equal(t, "application/problem+json", answer.Header().Get("Content-Type"))

	src.set(sampleStats(), nil)
	m.sampler.take(t.Context())
	src.set(notifyq.Stats{}, errors.New("database connection failed"))
	m.sampler.take(t.Context())
	m.sampler.take(t.Context())
	m.sampler.mu.Lock()
	m.sampler.last.at = m.sampler.last.at.Add(-time.Minute)
	m.sampler.mu.Unlock()
	answer = get(m, "application/json")
	require.Equal(t, http.StatusOK, answer.Code)
	require.Contains(t, answer.Body.String(), `"sent":3`)
	require.Regexp(t, `^6[0-9]$`, answer.Header().Get("Age"))
	text := get(m, "").Body.String()
	require.Contains(t, text, `notifyq_jobs{status="sent"} 3`)
	require.Contains(t, text, "notifyq_sample_failures_total 3")
	require.Regexp(t, `notifyq_sample_age_seconds 6[0-9]\.`, text)
	require.Equal(t, 2, strings.Count(logs.String(), "metrics.sample_failed"), "once an outage")
}

func TestSamplingLeavesTheDatabaseAlone(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, Config{Source: &source{stats: sampleStats()}})
	require.Equal(t, minPause, m.sampler.take(t.Context()))
	for took, want := range map[time.Duration]time.Duration{
		0: time.Second, 50 * time.Millisecond: time.Second, 200 * time.Millisecond: 4 * time.Second, 10 * time.Second: 30 * time.Second,
	} {
		require.Equal(t, want, min(max(pauseFactor*took, minPause), maxPause))
	}
}

func TestAcceptHeaders(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "text/plain": false, "text/html,application/xhtml+xml,*/*;q=0.8": false,
		"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1": false,
		"application/json": true, "Application/JSON; charset=utf-8": true, "application/json, text/plain, */*": true,
		"text/plain, application/json;q=0.5": false, "application/json;q=0": false, "application/json;q=x": false,
		"text/plain;q=0.1,application/json;q=0.2": true, "application/*": false, "application/problem+json": false,
	} {
		require.Equal(t, want, prefersJSON([]string{accept}), accept)
	}
	require.True(t, prefersJSON([]string{"text/html", "application/json"}))
}

func TestWorkerIsShown(t *testing.T) {
	t.Parallel()
	there := false
	m := newMetrics(t, Config{Source: &source{}, Worker: func() (notifyq.WorkerStats, bool) {
		return notifyq.WorkerStats{
			Claimed: 1, Sent: 2, Retried: 3, Failed: 4, DeadLettered: 5, Released: 6, Deferred: 7, LeaseLost: 8, Recovered: 9,
			Waiting: 10, Running: 11, Unrecorded: 12, Draining: true,
			Relay: notifyq.RelayStats{Claimed: 13, Published: 14, Failed: 15, Parked: 16, Released: 17, LeaseLost: 18, Sending: 19},
		}, there
	}})
	require.NotContains(t, get(m, "").Body.String(), "notifyq_worker")
	there = true
	text := get(m, "").Body.String()
	for _, line := range []string{
		"notifyq_worker_claimed_total 1", `notifyq_worker_outcomes_total{outcome="sent"} 2`,
		`notifyq_worker_outcomes_total{outcome="retried"} 3`, `notifyq_worker_outcomes_total{outcome="failed"} 4`,
		`notifyq_worker_outcomes_total{outcome="dead_lettered"} 5`, `notifyq_worker_outcomes_total{outcome="released"} 6`,
		`notifyq_worker_outcomes_total{outcome="deferred"} 7`, `notifyq_worker_outcomes_total{outcome="lease_lost"} 8`,
		"notifyq_worker_recovered_total 9", `notifyq_worker_jobs{state="waiting"} 10`, `notifyq_worker_jobs{state="running"} 11`,
		`notifyq_worker_jobs{state="unrecorded"} 12`, "notifyq_worker_draining 1", "notifyq_relay_claimed_total 13",
		`notifyq_relay_outcomes_total{outcome="published"} 14`, `notifyq_relay_outcomes_total{outcome="failed"} 15`,
		`notifyq_relay_outcomes_total{outcome="parked"} 16`, `notifyq_relay_outcomes_total{outcome="released"} 17`,
		`notifyq_relay_outcomes_total{outcome="lease_lost"} 18`, "notifyq_relay_sending 19",
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, "notifyq_worker_poll_age_seconds", "it has not polled")
}

// However many ids, methods and paths clients think of, the labels stay few.
func TestRequestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, Config{Source: &source{}, Routes: []string{"/notifications", "/notifications/{id}"}})
	h := m.Count(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/silent":
		default:
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "x")
		}
	}))
	for i := range 50 {
		id := uuid.NewString()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/notifications/"+id+"?canary", nil))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/canary/"+id, nil))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("CANARY"+strings.Repeat("X", i), "/notifications", nil))
	}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/silent", nil))
	require.Panics(t, func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/panic", nil))
	})
	require.Equal(t, 5, testutil.CollectAndCount(m.http.total))
	text := get(m, "").Body.String()
	require.NotContains(t, strings.ToLower(text), "canary")
	for _, line := range []string{
		`notifyq_http_requests_total{code="418",method="GET",route="/notifications/{id}"} 50`,
		`notifyq_http_requests_total{code="418",method="POST",route="other"} 50`,
		`notifyq_http_requests_total{code="418",method="other",route="/notifications"} 50`,
		`notifyq_http_requests_total{code="200",method="GET",route="other"} 1`,
		`notifyq_http_requests_total{code="500",method="GET",route="other"} 1`,
		`notifyq_http_request_duration_seconds_count{method="GET",route="/notifications/{id}"} 50`,
	} {
		require.Contains(t, text, line+"\n")
	}
}

func TestOnlyReads(t *testing.T) {
	t.Parallel()
	m := newMetrics(t, Config{Source: &source{}})
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/metrics", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	_, err := New(Config{})
	require.Error(t, err)
	text, err := json.Marshal(overview{})
	require.NoError(t, err)
	require.Contains(t, string(text), `"estimated":false`)
}
