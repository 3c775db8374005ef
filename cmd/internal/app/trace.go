package app

import (
	"context"
	"net/http"
	"regexp"
)

// A trace goes on over the queue: the traceparent of a POST is kept with the job, and the http provider sends it on.

const headerTrace = "Traceparent"

// traceForm is a W3C traceparent. Anything else a client sends is not kept.
var traceForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

type traceKey struct{}

// withTrace takes a request's traceparent into its context.
func withTrace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.Header.Values(headerTrace); len(given) == 1 && traceForm.MatchString(given[0]) {
			r = r.WithContext(context.WithValue(r.Context(), traceKey{}, given[0]))
		}
		next.ServeHTTP(w, r)
	})
}

// traceContext is for notifyq.ClientConfig.
func traceContext(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	return trace
}
