package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// batchOf is a batch of at least this many bytes.
func batchOf(bytes int) string {
	one := body("idempotencyKey", `"large"`, "payload", `"`+strings.Repeat("x", 60<<10)+`"`)
	return `{"notifications":[` + strings.Repeat(one+",", bytes/len(one)) + one + `]}`
}

// sendSlowly begins a batch and leaves it at that.
func (s *server) sendSlowly(t *testing.T, text string, sent int) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "POST /notifications/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(text), text[:sent])
	require.NoError(t, err)
	return conn
}

func TestLargeBodiesTogetherAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *Config) { c.BodyMemory = 1 << 20 })
	large := batchOf(900 << 10)
	status := func() int { return s.post(t, "/notifications/batch", large).status }
	require.Equal(t, http.StatusOK, status())
	var slow []net.Conn
	for range 3 { // together just within it
		slow = append(slow, s.sendSlowly(t, large, 460<<10))
	}
	require.Eventually(t, func() bool { return status() == http.StatusServiceUnavailable }, 10*time.Second, time.Millisecond)
	a := s.post(t, "/notifications/batch", large)
	a.requireProblem(t, http.StatusServiceUnavailable, "overloaded")
	require.Equal(t, "2", a.header.Get("Retry-After"))

	s.schedule(t, body()) // single notifications are not held up
	small := `{"notifications":[` + body("idempotencyKey", `"small"`) + `]}`
	require.Equal(t, http.StatusOK, s.post(t, "/notifications/batch", small).status)
	for range 20 {
		s.sendSlowly(t, large, 100) // takes nothing, whatever it announces
	}
	for _, conn := range slow {
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { return status() == http.StatusOK }, 10*time.Second, time.Millisecond)
}

func TestShareOfMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	var m memory
	m.left.Store(10)
	first, second := &share{of: &m}, &share{of: &m}
	read := func(s *share, bytes int64) error {
		_, err := io.Copy(io.Discard, s.reader(io.LimitReader(zeros{}, bytes)))
		return err
	}
	require.NoError(t, read(first, maxBodyBytes+9))
	require.NoError(t, read(second, maxBodyBytes+1))
	require.ErrorIs(t, read(second, 1), errNoMemory)
	second.giveBack()
	require.NoError(t, read(first, 1))
	first.giveBack()
	first.giveBack()
	require.EqualValues(t, 10, m.left.Load())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
