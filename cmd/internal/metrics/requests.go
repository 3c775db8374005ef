package metrics

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/notifyq/notifyq/cmd/internal/httpserver"
)

// other is the label of the method and the route of a request that nothing serves.
const other = "other"

// requests counts what was asked of a server.
type requests struct {
	routes   *http.ServeMux // its handlers are never called
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newRequests(routes []string) (*requests, error) {
	r := &requests{
		routes: http.NewServeMux(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "notifyq_http_requests_total", Help: "Requests that were answered.",
		}, []string{"method", "route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "notifyq_http_request_duration_seconds", Help: "How long those took that were not refused.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"method", "route"}),
	}
	for _, pattern := range routes {
		if !strings.Contains(pattern, " ") {
			return nil, errors.New("metrics: Routes must have a method each")
		}
		r.routes.Handle(pattern, http.NotFoundHandler())
	}
	return r, nil
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

// count has the method of the route, so that a HEAD is a GET. Without a key anybody can be refused by every route, and what
// would be the most series is a histogram for each of them; what is refused is not what a server's speed is about.
func (q *requests) count(r *http.Request, code int, took time.Duration) {
	method, route, found := strings.Cut(httpserver.Match(q.routes, r), " ")
	if !found {
		method, route = other, other
	}
	if code == 0 {
		code = http.StatusOK
	}
	q.total.WithLabelValues(method, route, strconv.Itoa(code)).Inc()
	if !refused(code) {
		q.duration.WithLabelValues(method, route).Observe(took.Seconds())
	}
}

// refused leaves out who did not wait for an answer: that is what slowness looks like.
func refused(code int) bool {
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != httpserver.StatusClientGone
}
