package app

import (
	"context"
	"net/http"

	"github.com/notifyq/notifyq/internal/traceparent"
)

// A trace goes on over the queue: the traceparent of a POST is kept with the job, and the http provider sends it on.

type traceKey struct{}

// withTrace takes a request's traceparent into its context. Anything else that a client sends under that name is not kept.
func withTrace(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.Header.Values(traceparent.Header); len(given) == 1 && traceparent.Valid(given[0]) {
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
