package webhook

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	short = 200 * time.Millisecond
	// soon is how late the end of a short timeout may be noticed on a busy machine.
	soon = 5 * time.Second
)

// drip writes a byte now and then until the other side has gone.
func drip(c io.Writer, text string) {
	for i := 0; ; i++ {
		if _, err := c.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// flood writes at full speed until the other side has gone, and at most 10 GB.
func flood(c io.Writer, text string, written *atomic.Int64) {
	part := []byte(strings.Repeat(text, 1+(64<<10)/len(text)))
	for written.Load() < 10<<30 {
		n, err := c.Write(part)
		written.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func TestSlowAndEndlessAnswers(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		talk func(c net.Conn, written *atomic.Int64)
		want func(testing.TB, error)
		late bool // it takes the whole timeout
	}{
		"no answer": {
			func(c net.Conn, _ *atomic.Int64) { _, _ = c.Read(make([]byte, 1)) }, requireTimeout, true,
		},
		"headers byte by byte": {
			func(c net.Conn, _ *atomic.Int64) { drip(c, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: b\r\n", 10000)) }, requireTimeout, true,
		},
		"200, and a body byte by byte": {
			func(c net.Conn, _ *atomic.Int64) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"); drip(c, "x") }, requireAcknowledged, true,
		},
		"500, and a body byte by byte": {
			func(c net.Conn, _ *atomic.Int64) { _, _ = io.WriteString(c, "HTTP/1.1 500 No\r\n\r\n"); drip(c, "x") }, requireRejected, true,
		},
		"200, and a body without end": {
			func(c net.Conn, n *atomic.Int64) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
				flood(c, "x", n)
			}, requireAcknowledged, false,
		},
		"200, and chunks without end": {
			func(c net.Conn, n *atomic.Int64) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
				flood(c, "4\r\nabcd\r\n", n)
			}, requireAcknowledged, false,
		},
		"500, and a body without end": {
			func(c net.Conn, n *atomic.Int64) {
				_, _ = io.WriteString(c, "HTTP/1.1 500 No\r\n\r\n")
				flood(c, "x", n)
			}, requireRejected, false,
		},
		"a body that is shorter than it says": {
			func(c net.Conn, _ *atomic.Int64) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
			}, requireAcknowledged, false,
		},
		"headers without end": {
			func(c net.Conn, n *atomic.Int64) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
				flood(c, "X-A: b\r\n", n)
			}, requireUnknown, false,
		},
		"a header without end": {
			func(c net.Conn, n *atomic.Int64) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX-A: ")
				flood(c, "x", n)
			}, requireUnknown, false,
		},
		"a megabyte of headers": {
			func(c net.Conn, _ *atomic.Int64) {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: b\r\n", 1<<17)+"\r\n")
			}, requireUnknown, false,
		},
		"100 Continue for ever": {
			func(c net.Conn, n *atomic.Int64) { flood(c, "HTTP/1.1 100 Continue\r\n\r\n", n) }, requireUnknown, false,
		},
		"100 Continue now and then": {
			func(c net.Conn, _ *atomic.Int64) { drip(c, "HTTP/1.1 100 Continue\r\n\r\n") }, requireTimeout, true,
		},
		"101, and silence": {
			func(c net.Conn, _ *atomic.Int64) {
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
				_, _ = c.Read(make([]byte, 1))
			}, requireRejected, false,
		},
		"half a status line": {
			func(c net.Conn, _ *atomic.Int64) { _, _ = io.WriteString(c, "HTTP/1.1 20") }, requireUnknown, false,
		},
		"half the headers": {
			func(c net.Conn, _ *atomic.Int64) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-") }, requireUnknown, false,
		},
		"nothing, and the end": {
			func(net.Conn, *atomic.Int64) {}, requireUnknown, false,
		},
		"a reset": {
			func(c net.Conn, _ *atomic.Int64) { _ = c.(*net.TCPConn).SetLinger(0) }, requireUnknown, false,
		},
		"another protocol": {
			func(c net.Conn, _ *atomic.Int64) { _, _ = io.WriteString(c, "SSH-2.0-hush-hush\r\n") }, requireUnknown, false,
		},
		"a bad status": {
			func(c net.Conn, _ *atomic.Int64) { _, _ = io.WriteString(c, "HTTP/1.1 hush-hush OK\r\n\r\n") }, requireUnknown, false,
		},
		"a bad header": {
			func(c net.Conn, _ *atomic.Int64) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nhush hush\r\n\r\n") }, requireUnknown, false,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var written atomic.Int64
			url, conns := rawServer(t, answering(func(conn net.Conn) { c.talk(conn, &written) }))
			limit := 5 * time.Second
			if c.late {
				limit = short
			}
			p := newPublisher(t, url, timeout(limit))
			start := time.Now()
			err := send(t, p, newEvent("x"))
			took := time.Since(start)
			c.want(t, err)
			if c.late {
				require.GreaterOrEqual(t, took, limit)
				require.Less(t, took, limit+soon)
			} else {
				require.Less(t, took, limit)
			}
			if err != nil {
				require.NotContains(t, err.Error(), "hush")
				require.NotContains(t, err.Error(), url)
			}
			// What the system's buffers took is counted too.
			require.Less(t, written.Load(), int64(64<<20))
			_ = send(t, p, newEvent("y"))
			require.EqualValues(t, 2, conns.Load(), "the connection was used again")
		})
	}
}

func requireTimeout(t testing.TB, err error) {
	t.Helper()
	requireUnknown(t, err)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "webhook: no answer: ")
}

func requireAcknowledged(t testing.TB, err error) {
	t.Helper()
	require.NoError(t, err)
}

// One that does not answer holds its own slot and nothing else.
func TestHangingRequestsDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{}, 20)
	s := newSink(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerTopic) == "hang" {
			hung <- struct{}{}
			<-r.Context().Done()
		}
	})
	p := newPublisher(t, s.url)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 20 {
		e := newEvent("x")
		e.Topic = "hang"
		pending, err := p.Start(ctx, e)
		require.NoError(t, err)
		waiting.Go(func() { requireUnknown(t, pending.Wait(t.Context())) })
	}
	for range 20 {
		<-hung
	}
	for range 20 {
		require.NoError(t, send(t, p, newEvent("x")))
	}
	cancel()
	waiting.Wait()
}

func TestWaitEndsTheRequest(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	reached := make(chan struct{})
	s := newSink(t, nil, func(_ http.ResponseWriter, r *http.Request) {
		close(reached)
		<-r.Context().Done()
		close(gone)
	})
	pending, err := newPublisher(t, s.url).Start(t.Context(), newEvent("x"))
	require.NoError(t, err)
	<-reached
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = pending.Wait(ctx)
	requireUnknown(t, err)
	require.ErrorIs(t, err, context.Canceled)
	<-gone

	// What had no connection yet was not sent, and Wait knows.
	hanging, _ := rawServer(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	pending, err = newPublisher(t, strings.Replace(hanging, "http:", "https:", 1)).Start(t.Context(), newEvent("x"))
	require.NoError(t, err)
	requireNotSent(t, pending.Wait(ctx))
}

func TestNoConnection(t *testing.T) {
	t.Parallel()
	closed := listen(t)
	require.NoError(t, closed.Close())
	err := send(t, newPublisher(t, "http://"+closed.Addr().String()+"/hook?token=hush"), newEvent("x"))
	requireNotSent(t, err)
	require.EqualError(t, err, "webhook: no connection: connection refused")

	p := newPublisher(t, "http://nowhere.test/hook?token=hush")
	p.dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "hush.test", IsNotFound: true}
	}}
	err = send(t, p, newEvent("x"))
	requireNotSent(t, err)
	require.EqualError(t, err, "webhook: no connection: the host's name can't be looked up")

	hanging, _ := rawServer(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)); _, _ = io.Copy(io.Discard, c) })
	p = newPublisher(t, strings.Replace(hanging, "http:", "https:", 1), func(cfg *Config) { cfg.ConnectTimeout = short })
	err = send(t, p, newEvent("x"))
	requireNotSent(t, err)
	require.EqualError(t, err, "webhook: no connection: timeout", "a TLS handshake that hangs")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Start(ctx, newEvent("x"))
	requireNotSent(t, err)
	require.ErrorIs(t, err, context.Canceled)
}

// goAway is what an HTTP/2 server says that takes no more streams after the given one.
func goAway(last uint32) []byte {
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	frame := append(settings, 0, 0, 8, 7, 0, 0, 0, 0, 0)
	frame = binary.BigEndian.AppendUint32(frame, last)
	return binary.BigEndian.AppendUint32(frame, 0)
}

// awaitHeaders reads what an HTTP/2 client says until its first request has come.
func awaitHeaders(c io.Reader) {
	_, err := io.ReadFull(c, make([]byte, 24)) // the preface
	for header := make([]byte, 9); err == nil; {
		if _, err = io.ReadFull(c, header); err != nil {
			return
		}
		_, err = io.CopyN(io.Discard, c, int64(header[0])<<16|int64(header[1])<<8|int64(header[2]))
		if header[3] == 1 {
			return
		}
	}
}

// firstBy is a listener whose first connection goes to a function. The others go to whoever accepts them.
type firstBy struct {
	net.Listener
	first func(net.Conn)
	once  sync.Once
	conns atomic.Int64
}

func (l *firstBy) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.conns.Add(1)
		mine := false
		l.once.Do(func() { mine = true })
		if !mine {
			return c, nil
		}
		l.first(c)
	}
}

func TestGoAway(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		last uint32 // stream that is taken
		stay bool   // for other connections
	}{
		"before the request":           {0, true},
		"before the request, for good": {0, false},
		"after the request":            {1, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			secured, client := certificate(t)
			secured.NextProtos = []string{"h2"}
			var served atomic.Int64
			var group sync.WaitGroup
			ln := &firstBy{Listener: listen(t)}
			ln.first = func(raw net.Conn) {
				group.Go(func() {
					defer raw.Close()
					conn := tls.Server(raw, secured)
					awaitHeaders(conn)
					if !c.stay {
						_ = ln.Close()
					}
					_, _ = conn.Write(goAway(c.last))
					_ = conn.CloseWrite()
					_, _ = io.Copy(io.Discard, conn)
				})
			}
			server := &http.Server{
				Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }),
				TLSConfig: secured, ErrorLog: log.New(io.Discard, "", 0),
			}
			group.Go(func() { _ = server.ServeTLS(ln, "", "") })
			t.Cleanup(func() {
				_ = server.Close()
				group.Wait()
			})
			p := newPublisher(t, "https://"+ln.Addr().String(), func(cfg *Config) { cfg.TLS = client })
			err := send(t, p, newEvent("x"))
			if c.last > 0 {
				requireUnknown(t, err)
				require.Zero(t, served.Load())
				return
			}
			// A stream that was not taken was not seen: the transport goes elsewhere with it.
			if !c.stay {
				requireNotSent(t, err)
				return
			}
			require.NoError(t, err)
			require.EqualValues(t, 1, served.Load())
			require.EqualValues(t, 2, ln.conns.Load())
		})
	}
}
