package httpserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// running is a server under test.
type running struct {
	addr   string
	client *http.Client
	stop   context.CancelFunc
	ended  chan error
}

func run(t *testing.T, h http.HandlerFunc, cfg Config) *running {
	t.Helper()
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	cfg.Listener = ln
	ctx, stop := context.WithCancel(t.Context())
	transport := &http.Transport{}
	s := &running{addr: ln.Addr().String(), client: &http.Client{Transport: transport}, stop: stop, ended: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.ended <- Run(ctx, h, cfg)
	}()
	t.Cleanup(func() {
		stop()
		<-done
		transport.CloseIdleConnections()
	})
	return s
}

func (s *running) get(t *testing.T) (got, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://"+s.addr+"/", nil)
	require.NoError(t, err)
	response, err := s.client.Do(r)
	if err != nil {
		return got{}, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return got{response.StatusCode, response.Close}, err
}

// got is an answer.
type got struct {
	status int
	closes bool // its connection
}

func (s *running) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestRunningRequestsEndInTheirTime(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}), make(chan struct{})
	s := run(t, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		if r.Context().Err() != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, Config{})
	answered := make(chan got, 1)
	go func() {
		answer, err := s.get(t)
		if err != nil {
			t.Error(err)
		}
		answered <- answer
	}()
	<-begun
	s.stop()
	require.Eventually(t, func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, 10*time.Second, time.Millisecond, "nothing new is taken")
	select {
	case err := <-s.ended:
		t.Fatalf("ended before its request: %v", err)
	default:
	}
	close(finish)
	require.Equal(t, got{http.StatusOK, true}, <-answered, "under a context that the stop did not end")
	require.NoError(t, <-s.ended)
}

func TestRequestsThatDoNotEndAreCutOff(t *testing.T) {
	t.Parallel()
	begun, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	s := run(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		<-over // or its answer could be there before the connection is cut
	}, Config{Grace: time.Millisecond})
	failed := make(chan error, 1)
	go func() {
		_, err := s.get(t)
		failed <- err
	}()
	<-begun
	s.stop()
	require.ErrorIs(t, <-s.ended, ErrGrace)
	require.Error(t, <-failed)
}

func TestIdleConnectionsDoNotHoldUpTheStop(t *testing.T) {
	t.Parallel()
	s := run(t, func(http.ResponseWriter, *http.Request) {}, Config{})
	_, err := s.get(t) // and keeps its connection
	require.NoError(t, err)
	s.stop()
	require.NoError(t, <-s.ended)
}

func TestSlowClientsAreLetGo(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	read := make(chan error, 1)
	s := run(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		read <- err
	}, Config{ReadHeaderTimeout: limit, ReadTimeout: 2 * limit, IdleTimeout: limit})

	head := s.dial(t)
	for _, b := range []byte("GET / HTTP/1.1\r\nX: ") { // a byte at a time, and no end
		if _, err := head.Write([]byte{b}); err != nil {
			break
		}
	}
	_, _ = io.Copy(io.Discard, head) // until the server closes

	body := s.dial(t)
	_, err := io.WriteString(body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx")
	require.NoError(t, err)
	var timeout net.Error
	require.ErrorAs(t, <-read, &timeout)
	require.True(t, timeout.Timeout())
	_, _ = io.Copy(io.Discard, body)

	idle := s.dial(t)
	_, err = io.WriteString(idle, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, idle)
}

func TestThousandIdleConnectionsDoNotDisturb(t *testing.T) {
	t.Parallel()
	s := run(t, func(http.ResponseWriter, *http.Request) {}, Config{Grace: time.Minute})
	conns := make([]net.Conn, 1000)
	for i := range conns {
		conns[i] = s.dial(t)
		if i%2 == 0 { // half of them have begun a request
			_, err := io.WriteString(conns[i], "GET / HTT")
			require.NoError(t, err)
		}
	}
	for range 20 {
		answer, err := s.get(t)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.status)
	}
	for _, conn := range conns {
		conn.Close()
	}
}

func TestHeadsThatAreTooLargeAreRefused(t *testing.T) {
	t.Parallel()
	s := run(t, func(http.ResponseWriter, *http.Request) {}, Config{})
	conn := s.dial(t)
	go func() { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 64<<10)) }()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
}

func TestListenErrorsNameTheSetting(t *testing.T) {
	t.Parallel()
	taken, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for addr, setting := range map[string]string{
		taken.Addr().String(): "PORT: ", "127.0.0.1:99999": "PORT: ", "192.0.2.1:0": "HOST: ", "no such host:0": "HOST: ",
	} {
		_, err := Listen(t.Context(), addr)
		require.Error(t, err)
		require.True(t, strings.HasPrefix(err.Error(), setting), err)
	}
}

func TestServingThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	ln, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ln.Close()
	err = Run(t.Context(), http.NotFoundHandler(), Config{Listener: ln})
	require.ErrorIs(t, err, net.ErrClosed)
	require.False(t, errors.Is(err, ErrGrace))
}
