package webhook

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The space around a value is the transport's to take off.
func TestRetryAfterOnTheWire(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]time.Duration{
		"Retry-After:  2 ": 2 * time.Second, "retry-after: 120": 2 * time.Minute, "Retry-After: 2\r\nRetry-After: 2": 0, "Retry-After:": 0,
	} {
		for _, code := range []string{"429", "503"} {
			require.Equal(t, want, askedBy(t, "HTTP/1.1 "+code+" x\r\nContent-Length: 0\r\n"+line+"\r\n\r\n"), line)
		}
	}
}
