package httpserver

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
)

// Wrap puts the layers around next that every request passes. A nil logger is silent.
func Wrap(logger *slog.Logger, next http.Handler) http.Handler {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return withRequestID(withLogLine(logger, withSecurityHeaders(withRecovery(logger, next))))
}

// withSecurityHeaders sets what suits JSON, which shows nothing, embeds nothing and is kept by nobody. A handler of
// something else sets its own.
func withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// withRecovery turns a panic into a 500, or, where an answer has begun, into the end of the connection. What was
// panicked with can hold anything, so only its type is logged, and where it was.
func withRecovery(logger *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered := &Recorder{ResponseWriter: w}
		defer answerPanic(logger, answered, r)
		next.ServeHTTP(answered, r)
	})
}

// answerPanic is deferred.
func answerPanic(logger *slog.Logger, w *Recorder, r *http.Request) {
	reason := recover()
	if reason == nil {
		return
	}
	if reason == http.ErrAbortHandler { //nolint:errorlint // it is panicked with as it is
		panic(reason)
	}
	logger.ErrorContext(r.Context(), "http.panic", "requestId", RequestID(r.Context()),
		"type", fmt.Sprintf("%T", reason), "stack", string(debug.Stack()))
	if w.Status != 0 {
		panic(http.ErrAbortHandler)
	}
	w.Header().Del("Content-Encoding")
	WriteProblem(w, r, Problem{
		Status: http.StatusInternalServerError, Code: CodeInternal, Detail: "Something went wrong here.",
	})
}
