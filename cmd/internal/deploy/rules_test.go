package deploy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
)

// scrapeInterval is between two values of a history, and between two evaluations of a rule.
const scrapeInterval = 30 * time.Second

// history is what Prometheus has scraped: series in the notation of promtool's unit tests.
type history []string

// Querier has no samples of its own to close: the history is all there is.
func (h history) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &seriesSet{}
		for _, line := range h {
			found.add(line, matchers)
		}
		return found
	}}, nil
}

// seriesSet is a storage.SeriesSet.
type seriesSet struct {
	series []storage.Series
	at     int
	err    error
}

func (s *seriesSet) add(line string, matchers []*labels.Matcher) {
	lset, values, err := parser.ParseSeriesDesc(line)
	if err != nil {
		s.err = err
		return
	}
	for _, m := range matchers {
		if !m.Matches(lset.Get(m.Name)) {
			return
		}
	}
	series := promql.Series{Metric: lset}
	for i, v := range values {
		if !v.Omitted {
			series.Floats = append(series.Floats, promql.FPoint{T: int64(i) * scrapeInterval.Milliseconds(), F: v.Value})
		}
	}
	s.series = append(s.series, promql.NewStorageSeries(series))
}

func (s *seriesSet) Next() bool                        { s.at++; return s.err == nil && s.at <= len(s.series) }
func (s *seriesSet) At() storage.Series                { return s.series[s.at-1] }
func (s *seriesSet) Err() error                        { return s.err }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// firing are the namespaces for which an alert is raised at a time: its expression has held for as long as it says.
func (h history) firing(t *testing.T, a alert, at time.Duration) (namespaces []string) {
	t.Helper()
	pending, err := time.ParseDuration(a.For)
	require.NoError(t, err)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute})
	defer func() { require.NoError(t, engine.Close()) }()
	query, err := engine.NewRangeQuery(t.Context(), h, nil, a.Expr, time.UnixMilli(0).Add(at-pending), time.UnixMilli(0).Add(at),
		scrapeInterval)
	require.NoError(t, err)
	defer query.Close()
	result := query.Exec(t.Context())
	require.NoError(t, result.Err)
	matrix, err := result.Matrix()
	require.NoError(t, err)
	for _, series := range matrix {
		if len(series.Floats) == int(pending/scrapeInterval)+1 {
			namespaces = append(namespaces, series.Metric.Get("namespace"))
		}
	}
	slices.Sort(namespaces)
	return namespaces
}

// Two hours of scrapes, and what is alerted of at the end, by Prometheus' own engine.
func TestAlertsAreRaised(t *testing.T) {
	t.Parallel()
	const (
		apiOfA    = `notifyq_build_info{namespace="a",binary="notifyq-api",instance="a:1"} 1x240`
		workerOfA = `notifyq_build_info{namespace="a",binary="notifyq-worker",instance="a:2"} 1x240`
		workerOfB = `notifyq_build_info{namespace="b",binary="notifyq-worker",instance="b:2"} 1x240`
		pollsOfB  = `notifyq_worker_poll_age_seconds{namespace="b",instance="b:2"} 1x240`
		written   = `notifyq_worker_outcomes_total{outcome="sent",namespace="a",job="j",instance="a:2"} 0+10x220 2200x20`
		unwritten = `notifyq_worker_jobs{state="unrecorded",namespace="a",job="j",instance="a:2"} 0x220 5x20`
		manySent  = `notifyq_worker_outcomes_total{outcome="sent",namespace="a"} 0+10x240`
		noneDead  = `notifyq_worker_outcomes_total{outcome="dead_lettered",namespace="a"} 0x240`
	)
	for name, c := range map[string]struct {
		alert   string
		history history
		want    []string
	}{
		"a namespace has an API alone, the other a worker": {"NotifyqNoWorker", history{apiOfA, workerOfB, pollsOfB}, []string{"a"}},
		"all have workers":               {"NotifyqNoWorker", history{workerOfB, pollsOfB}, nil},
		"a worker that has never polled": {"NotifyqNoWorker", history{workerOfA}, []string{"a"}},
		"all of a namespace is gone since an hour": {
			"NotifyqNoWorker",
			history{`notifyq_build_info{namespace="a",binary="notifyq-worker"} 1x120 _x120`, workerOfB, pollsOfB},
			[]string{"a"},
		},
		"there is nothing at all": {"NotifyqNoWorker", history{`up{job="else"} 1x240`}, []string{""}},
		"the API is gone since an hour": {
			"NotifyqNoAPI", history{`notifyq_build_info{namespace="a",binary="notifyq-api"} 1x120 _x120`, workerOfA}, []string{"a"},
		},
		"an API without requests": {"NotifyqNoAPI", history{apiOfA, workerOfA}, nil},
		"never an API":            {"NotifyqNoAPI", history{workerOfA}, nil},
		"one bad address in a quiet night": {
			"NotifyqGivingUp",
			history{`notifyq_worker_outcomes_total{outcome="failed",namespace="a"} 0x215 1x25`, noneDead},
			nil,
		},
		"a tenth of many is refused": {
			"NotifyqGivingUp",
			history{manySent, `notifyq_worker_outcomes_total{outcome="failed",namespace="a"} 0+1x240`, noneDead},
			[]string{"a"},
		},
		"outcomes can't be written since ten minutes": {"NotifyqOutcomesNotWritten", history{written, unwritten}, []string{"a"}},
		"outcomes wait while others are written": {
			"NotifyqOutcomesNotWritten",
			history{`notifyq_worker_outcomes_total{outcome="sent",namespace="a",job="j",instance="a:2"} 0+10x240`, unwritten},
			nil,
		},
		"refused events stay": {"NotifyqEventsParked", history{`notifyq_outbox_events{state="parked",namespace="a"} 3x240`}, nil},
		"events are given up": {
			"NotifyqEventsParked", history{`notifyq_outbox_events{state="parked",namespace="a"} 3x200 4x40`}, []string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.history.firing(t, alertOf(t, c.alert), 2*time.Hour))
		})
	}
}

// An outcome that can't be written may be delivered twice: the page is not to wait for the rate of better times to fade.
func TestUnwrittenOutcomesPageWithinFiveMinutes(t *testing.T) {
	t.Parallel()
	h := history{
		`notifyq_worker_outcomes_total{outcome="sent",job="j",instance="a"} 0+10x120 1200x20`,
		`notifyq_worker_jobs{state="unrecorded",job="j",instance="a"} 0x120 5x20`,
	}
	a := alertOf(t, "NotifyqOutcomesNotWritten")
	require.Empty(t, h.firing(t, a, time.Hour+time.Minute))
	require.NotEmpty(t, h.firing(t, a, time.Hour+5*time.Minute))
}

func alertOf(t *testing.T, name string) alert {
	t.Helper()
	all := alerts(t)
	i := slices.IndexFunc(all, func(a alert) bool { return a.Alert == name })
	require.GreaterOrEqual(t, i, 0, name)
	return all[i]
}
