package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestUnknownRoutesAndMethodsAreProblems(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, c := range []string{
		"GET /", "GET /nope", "POST /notifications/", "GET /notifications/", "GET //notifications", "POST //notifications",
		"GET /notifications/%2e%2e", "GET /notifications/../notifications", "GET /Notifications", "POST /webhooks/mock", "GET /health",
		"GET /metrics", "GET /notifications/a/b/c", "GET /docs/", "GET /openapi.yaml", "GET /openapi.json/x", "GET /docs/nope.js/x",
	} {
		method, target := split(c)
		s.do(t, method, target, "").requireProblem(t, http.StatusNotFound, "not_found")
	}
	for c, allow := range map[string]string{
		"PUT /notifications": "GET, HEAD, POST", "OPTIONS /notifications": "GET, HEAD, POST", "TRACE /notifications": "GET, HEAD, POST",
		"DELETE /notifications": "GET, HEAD, POST", "BREW /notifications": "GET, HEAD, POST",
		"PATCH /notifications/" + uuid.Nil.String(): "DELETE, GET, HEAD", "GET /channels/EMAIL/pause": "POST",
		"POST /openapi.json": "GET, HEAD", "POST /docs": "GET, HEAD", "GET /webhook-endpoints/x/enable": "POST",
	} {
		method, target := split(c)
		a := s.do(t, method, target, "")
		a.requireProblem(t, http.StatusMethodNotAllowed, "method_not_allowed")
		require.Equal(t, allow, a.header.Get("Allow"), c)
	}
}

func TestHeadIsGetWithoutABody(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.made(t, "1", "ok")
	for _, target := range []string{"/notifications", "/notifications/" + id, "/notifications/x", "/openapi.json", "/docs", "/webhook-endpoints"} {
		get, head := s.get(t, target), s.do(t, http.MethodHead, target, "")
		require.Equal(t, get.status, head.status)
		require.Empty(t, head.body)
		require.Equal(t, get.header.Get("Content-Type"), head.header.Get("Content-Type"))
		require.Equal(t, get.header.Get("Content-Length"), head.header.Get("Content-Length"))
	}
}

func TestEveryAnswerHasItsHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, target := range []string{"/notifications", "/nope", "/notifications/x", "/openapi.json", "/docs", "/docs/swagger-ui.css"} {
		h := s.get(t, target, "X-Request-ID", "abc.DEF-123_4").header
		require.Equal(t, "abc.DEF-123_4", h.Get("X-Request-ID"))
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
		require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'")
		require.Contains(t, h.Get("Content-Security-Policy"), "frame-ancestors 'none'")
		require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe")
		if !strings.HasPrefix(target, "/docs") {
			require.Equal(t, "no-store", h.Get("Cache-Control"))
		}
		require.Empty(t, h.Get("Server"))
	}
}

// raw sends bytes and returns the status of the answer.
func (s *server) raw(t *testing.T, sent string) int {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, sent) }()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	return response.StatusCode
}

func TestBodyLimitsHoldWhateverIsAnnounced(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for target, limit := range map[string]int{
		"/notifications": 128 << 10, "/notifications/retry": 128 << 10, "/channels/EMAIL/pause": 128 << 10, "/notifications/batch": 8 << 20,
	} {
		padded := func(size int) string { return "{" + strings.Repeat(" ", size-2) + "}" }
		for size, status := range map[int]int{limit: http.StatusBadRequest, limit + 1: http.StatusRequestEntityTooLarge} {
			if target != "/notifications" && target != "/notifications/batch" && size == limit {
				continue // {} is all right there
			}
			require.Equal(t, status, s.post(t, target, padded(size)).status)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+target, io.NopCloser(strings.NewReader(padded(size))))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/json")
			require.EqualValues(t, 0, r.ContentLength)
			require.Equal(t, status, s.send(t, r).status, "in chunks")
		}
	}
	require.Zero(t, s.stored(t))
}

// A body that never ends is answered, and its connection closed, after little more than the limit.
func TestEndlessChunksAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	written := make(chan int)
	go func() {
		_, _ = io.WriteString(conn, "POST /notifications HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
		total := 0
		chunk := fmt.Sprintf("%x\r\n%s\r\n", 32<<10, strings.Repeat(" ", 32<<10))
		for {
			n, err := io.WriteString(conn, chunk)
			total += n
			if err != nil {
				written <- total
				return
			}
		}
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
	require.True(t, response.Close)
	_, _ = io.Copy(io.Discard, response.Body)
	conn.Close()
	require.Less(t, <-written, 16<<20, "what the sockets' buffers take")
	require.Zero(t, s.stored(t))
}

func TestAnnouncedBodiesThatDoNotCome(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	head := "POST /notifications HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	require.Equal(t, http.StatusRequestEntityTooLarge, s.raw(t, head+"Content-Length: 999999999\r\n\r\n"), "before anything is read")
	require.Equal(t, http.StatusRequestEntityTooLarge, s.raw(t, head+"Content-Length: 999999999\r\nExpect: 100-continue\r\n\r\n"),
		"without asking for it")
	require.Equal(t, http.StatusBadRequest, s.raw(t, head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n"))
	require.Equal(t, http.StatusBadRequest, s.raw(t, head+"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"))
	require.Equal(t, http.StatusNotFound,
		s.raw(t, "DELETE /notifications/"+uuid.NewString()+" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
		"no chunks are no body")
	length := strconv.Itoa(len(body()))
	require.Equal(t, http.StatusContinue, s.raw(t, head+"Content-Length: "+length+"\r\nExpect: 100-continue\r\n\r\n"+body()))
}

// A body that trickles ends with the server's patience, and in an answer.
func TestBodyThatTakesTooLongIsAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	handler, err := New(Config{Client: s.client})
	require.NoError(t, err)
	impatient := httptest.NewUnstartedServer(handler)
	impatient.Config.ReadTimeout = 100 * time.Millisecond
	impatient.Start()
	t.Cleanup(impatient.Close)
	s.url = impatient.URL
	head := "POST /notifications HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	require.Equal(t, http.StatusRequestTimeout, s.raw(t, head+"Content-Length: 100\r\n\r\n{"))
	require.Equal(t, http.StatusRequestTimeout, s.raw(t, head+"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"))
	require.Zero(t, s.stored(t))
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	var sent strings.Builder
	for i := range 10 {
		text := body("idempotencyKey", strconv.Quote(strconv.Itoa(i)))
		fmt.Fprintf(&sent, "POST /notifications HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Request-ID: r%d\r\nContent-Length: %d\r\n\r\n%s", i, len(text), text)
	}
	_, err = io.WriteString(conn, sent.String())
	require.NoError(t, err)
	answers := bufio.NewReader(conn)
	for i := range 10 {
		response, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		require.Equal(t, http.StatusCreated, response.StatusCode)
		require.Equal(t, "r"+strconv.Itoa(i), response.Header.Get("X-Request-ID"))
	}
}

// Who leaves in the middle has stored all or nothing, and nothing of it is a server's error.
func TestClientThatLeavesIsNoError(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i := range 20 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		require.NoError(t, err)
		text := body("idempotencyKey", strconv.Quote(strconv.Itoa(i)))
		whole := "POST /notifications HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(text)) + "\r\n\r\n" + text
		_, err = io.WriteString(conn, whole[:len(whole)-i%2])
		require.NoError(t, err)
		conn.Close()
	}
	s.get(t, "/notifications")
	require.NotContains(t, s.logs.String(), `"level":"ERROR"`)
}
