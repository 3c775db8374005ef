package httpserver

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// HeaderRequestID carries the request id both ways.
const HeaderRequestID = "X-Request-ID"

const maxRequestIDBytes = 128

type requestIDKey struct{}

// RequestID is the id of the request that ctx belongs to, or empty.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// withRequestID takes over the caller's id if it can do no harm in a log, makes one if not, and echoes it.
func withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := ""
		if given := r.Header.Values(HeaderRequestID); len(given) == 1 && validRequestID(given[0]) {
			id = given[0]
		} else {
			id = newRequestID()
		}
		w.Header().Set(HeaderRequestID, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id)))
	})
}

func validRequestID(id string) bool {
	if id == "" || len(id) > maxRequestIDBytes {
		return false
	}
	for i := range len(id) {
		b := id[i]
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		if !letter && (b < '0' || b > '9') && b != '.' && b != '_' && b != '-' {
			return false
		}
	}
	return true
}

func newRequestID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return "" // the system has no randomness; the request is answered all the same
	}
	return id.String()
}
