package metrics

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
)

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

func TestDatabaseAwayLeavesTheLastValuesForAMinute(t *testing.T) {
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
	older := func(by time.Duration) {
		m.sampler.mu.Lock()
		defer m.sampler.mu.Unlock()
		m.sampler.last.at = m.sampler.last.at.Add(-by)
	}
	older(45 * time.Second)
	answer = get(m, "application/json")
	require.Equal(t, http.StatusOK, answer.Code)
	require.Contains(t, answer.Body.String(), `"sent":3`)
	require.Regexp(t, `^4[5-9]$`, answer.Header().Get("Age"))
	older(20 * time.Second)
	answer = get(m, "application/json")
	require.Equal(t, http.StatusServiceUnavailable, answer.Code, "who reads a number there takes it for today's")
	require.Equal(t, "1", answer.Header().Get("Retry-After"))
	require.Equal(t, "application/problem+json", answer.Header().Get("Content-Type"))
	require.Empty(t, answer.Header().Get("Age"))
	text := get(m, "").Body.String()
	require.Contains(t, text, `notifyq_jobs{status="sent"} 3`)
	require.Contains(t, text, "notifyq_sample_failures_total 3")
	require.Regexp(t, `notifyq_sample_age_seconds 6[0-9]\.`, text)
	require.Equal(t, 2, strings.Count(logs.String(), "metrics.sample_failed"), "once an outage")

	src.set(sampleStats(), nil)
	m.sampler.take(t.Context())
	m.sampler.last.took = time.Hour // one that is not repeated
	require.Equal(t, http.StatusOK, get(m, "application/json").Code)
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
