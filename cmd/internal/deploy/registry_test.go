package deploy_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/metrics"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// registry is what a scrape brings: values of labels by metric and label. The parts of a histogram count as metrics.
type registry map[string]map[string][]string

var (
	samplePattern = regexp.MustCompile(`^([a-z_0-9]+)(?:\{(.*)\})? \S+$`)
	labelPattern  = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)
)

// source has something of everything.
type source struct{}

func (source) Stats(context.Context) (notifyq.Stats, error) {
	return notifyq.Stats{Outbox: notifyq.OutboxStats{Failing: map[int]int64{1: 1, 3: 1, 10: 1}}}, nil
}

// scraped is what a process exports that is API and worker in one.
func scraped(t *testing.T) registry {
	t.Helper()
	m, err := metrics.New(metrics.Config{
		Source: source{}, Pool: dbtest.New(t).Pool, Routes: []string{"POST /notifications", "GET /livez"}, Binary: "notifyq-api", Version: "v0",
		Worker: func() (notifyq.WorkerStats, bool) {
			return notifyq.WorkerStats{PolledAt: time.Now(), Relay: notifyq.RelayStats{PolledAt: time.Now()}}, true
		},
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.Run(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	ask := func(accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		m.ServeHTTP(w, r)
		return w
	}
	for ask("application/json").Code != http.StatusOK { // it waits for a sample
		require.NoError(t, ctx.Err())
	}
	post := httptest.NewRequestWithContext(ctx, http.MethodPost, "/notifications", nil)
	stored := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	m.Count(stored).ServeHTTP(httptest.NewRecorder(), post)
	return parsed(ask("text/plain").Body.String())
}

func parsed(text string) registry {
	found := make(registry)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		sample := samplePattern.FindStringSubmatch(line)
		if sample == nil {
			continue
		}
		if found[sample[1]] == nil {
			found[sample[1]] = make(map[string][]string)
		}
		for _, label := range labelPattern.FindAllStringSubmatch(sample[2], -1) {
			values := found[sample[1]][label[1]]
			if !slices.Contains(values, label[2]) {
				found[sample[1]][label[1]] = append(values, label[2])
			}
		}
	}
	return found
}
