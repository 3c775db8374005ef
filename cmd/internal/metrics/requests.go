package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/notifyq/notifyq/cmd/internal/httpserver"
)

// other is the label of a route or a method that is not known.
const other = "other"

// requests counts what was asked of a server.
type requests struct {
	routes   *http.ServeMux // its handlers are never called
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newRequests(routes []string) *requests {
	r := &requests{
		routes: http.NewServeMux(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notifyq_http_requests_total", Help: "Requests that were answered.",
		}, []string{"method", "route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "notifyq_http_request_duration_seconds", Help: "How long they took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"method", "route"}),
	}
	for _, pattern := range routes {
		r.routes.Handle(pattern, http.NotFoundHandler())
	}
	return r
}

// Count makes a handler's requests count.
func (m *Metrics) Count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		answered := &httpserver.Recorder{ResponseWriter: w}
		returned := false
		defer func() {
			if !returned && answered.Status == 0 {
				answered.Status = http.StatusInternalServerError // a panic
			}
			m.http.count(r, answered.Status, time.Since(begun))
		}()
		next.ServeHTTP(answered, r)
		returned = true
	})
}

func (q *requests) count(r *http.Request, code int, took time.Duration) {
	method := other
	if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete}, r.Method) {
		method = r.Method
	}
	_, route := q.routes.Handler(r)
	if route == "" {
		route = other
	}
	if code == 0 {
		code = http.StatusOK
	}
	q.total.WithLabelValues(method, route, strconv.Itoa(code)).Inc()
	q.duration.WithLabelValues(method, route).Observe(took.Seconds())
}
