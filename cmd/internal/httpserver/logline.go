package httpserver

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// StatusClientGone is logged for a request whose client left before the answer. Nobody receives it.
const StatusClientGone = 499

// entry is what becomes known about a request while it is served, for its log line.
type entry struct {
	route string // the pattern that serves it, if there is one
	code  string // of the problem
	cause string
}

type entryKey struct{}

func entryOf(ctx context.Context) *entry {
	e, _ := ctx.Value(entryKey{}).(*entry)
	return e
}

// Explain adds the cause of a failure to the request's log line. It must hold nothing that was submitted.
func Explain(ctx context.Context, cause string) {
	if e := entryOf(ctx); e != nil {
		e.cause = cause
	}
}

// routed notes which pattern serves a request.
func routed(ctx context.Context, pattern string) {
	if e := entryOf(ctx); e != nil {
		e.route = pattern
	}
}

// withLogLine logs one line a request, but for probes: they would be most of the log, and that a process is not ready is
// logged when it happens.
func withLogLine(logger *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := line{logger: logger, begun: time.Now(), answered: Recorder{ResponseWriter: w}}
		defer l.write(r)
		next.ServeHTTP(&l.answered, r.WithContext(context.WithValue(r.Context(), entryKey{}, &l.entry)))
		l.returned = true
	})
}

// line is the log line of a request in the making.
type line struct {
	entry
	logger   *slog.Logger
	begun    time.Time
	answered Recorder
	returned bool // the handler did, and did not panic
}

func (l *line) status() int {
	switch {
	case !l.returned:
		return http.StatusInternalServerError // cut off, whatever was begun
	case l.answered.Status == 0:
		return http.StatusOK
	default:
		return l.answered.Status
	}
}

func (l *line) write(r *http.Request) {
	status := l.status()
	if expected := status < http.StatusBadRequest || status == http.StatusServiceUnavailable; expected && isProbe(r) {
		return
	}
	attrs := []slog.Attr{
		slog.String("requestId", RequestID(r.Context())),
		slog.String("method", loggedMethod(r.Method)),
		slog.String("path", loggedPath(l.route, r.URL.EscapedPath())),
		slog.Int("status", status),
		slog.Int64("durationMs", time.Since(l.begun).Milliseconds()),
	}
	if l.code != "" {
		attrs = append(attrs, slog.String("code", l.code))
	}
	if l.cause != "" {
		attrs = append(attrs, slog.String("error", l.cause))
	}
	l.logger.LogAttrs(r.Context(), levelOf(status), "http.request", attrs...)
}

func levelOf(status int) slog.Level {
	switch {
	case status >= http.StatusInternalServerError:
		return slog.LevelError
	case status >= http.StatusBadRequest:
		return slog.LevelWarn
	default:
		return slog.LevelInfo
	}
}

func isProbe(r *http.Request) bool {
	switch r.URL.Path {
	case "/health", "/livez", "/readyz", "/metrics":
		return r.Method == http.MethodGet || r.Method == http.MethodHead
	default:
		return false
	}
}

func loggedMethod(method string) string {
	known := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace,
	}
	if slices.Contains(known, method) {
		return method
	}
	return "OTHER"
}

// loggedPath is the path of the pattern that serves a request, with the ids that stand in for its wildcards, or a star for
// what nothing serves. Anything else in a path can be what a client put there by mistake: an address, or a key.
func loggedPath(pattern, path string) string {
	_, route, found := strings.Cut(pattern, " ")
	if !found {
		return "*"
	}
	segments, given := strings.Split(route, "/"), strings.Split(path, "/")
	for i, segment := range segments {
		if strings.HasPrefix(segment, "{") && i < len(given) && isID(given[i]) {
			segments[i] = given[i]
		}
	}
	return strings.Join(segments, "/")
}

func isID(segment string) bool {
	return len(segment) == len(uuid.UUID{}.String()) && uuid.Validate(segment) == nil
}
