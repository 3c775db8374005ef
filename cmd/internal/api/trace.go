package api

import (
	"context"
	"net/http"
	"regexp"
)

type traceKey struct{}

// traceparent is the form of W3C Trace Context, level 1.
var traceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// withTrace adds the traceparent of a request to its context, if it has one.
func withTrace(ctx context.Context, header http.Header) context.Context {
	given := header.Values("Traceparent")
	if len(given) != 1 || !traceparent.MatchString(given[0]) {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, given[0])
}

// TraceContext is the traceparent of the request that ctx belongs to, or empty. It is for notifyq.ClientConfig, which
// stores it with the job, so that a delivery can be traced to the request that asked for it.
func TraceContext(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	return trace
}
