// Package retryafter reads how long the answer of an HTTP server asks to wait.
package retryafter

import (
	"net/http"
	"strconv"
	"time"
)

// Max bounds what a server may ask for: it is what the queue waits for at most.
const Max = 24 * time.Hour

// Of is the wait that an answer asks for, 0 for none. What can't be understood asks for nothing.
func Of(header http.Header, now time.Time) time.Duration {
	values := header.Values("Retry-After")
	if len(values) != 1 {
		return 0
	}
	if seconds, ok := digits(values[0]); ok {
		return min(time.Duration(seconds)*time.Second, Max)
	}
	date, err := http.ParseTime(values[0])
	if err != nil {
		return 0
	}
	// Sub saturates, so that no year overflows.
	return min(max(date.Sub(now), 0), Max)
}

// digits reads whole seconds. More of them than anybody waits for are a day's, whatever they say.
func digits(text string) (seconds int64, ok bool) {
	if text == "" {
		return 0, false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return int64(Max / time.Second), true
	}
	return seconds, true
}
