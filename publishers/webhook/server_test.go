package webhook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// secret makes a valid one of a letter.
func secret(letter string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// newPublisher is one that may send to this machine.
func newPublisher(t testing.TB, url string, change ...func(*Config)) *Publisher {
	cfg := Config{URL: url, Secrets: []string{secret("a")}, AllowCIDRs: loopback}
	for _, f := range change {
		f(&cfg)
	}
	p, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.CloseIdleConnections)
	return p
}

func timeout(d time.Duration) func(*Config) { return func(cfg *Config) { cfg.Timeout = d } }

func newEvent(body string) notifyq.Event {
	return notifyq.Event{
		ID: uuid.New(), Topic: "test.event", Key: "order-1234567", Body: []byte(body), CreatedAt: time.Now(), Attempt: 1,
	}
}

func send(t testing.TB, p *Publisher, e notifyq.Event) error {
	pending, err := p.Start(t.Context(), e)
	if err != nil {
		return err
	}
	return pending.Wait(t.Context())
}

// request is one that a sink got.
type request struct {
	*http.Request
	body []byte
	at   time.Time
}

// sink is an HTTP server that keeps what it gets.
type sink struct {
	url    string
	server *http.Server
	conns  atomic.Int64 // that were opened

	mu       sync.Mutex
	requests []request
}

func (s *sink) got() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// newSink serves plain HTTP, or HTTPS with the given configuration.
func newSink(t testing.TB, secured *tls.Config, answer http.HandlerFunc) *sink {
	s := &sink{url: "http://"}
	s.server = &http.Server{
		TLSConfig: secured,
		ErrorLog:  log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.conns.Add(1)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			s.mu.Lock()
			s.requests = append(s.requests, request{r, body, time.Now()})
			s.mu.Unlock()
			answer(w, r)
		}),
	}
	ln := listen(t)
	s.url += ln.Addr().String() + "/hook?token=hush-hush"
	serve := func() { _ = s.server.Serve(ln) }
	if secured != nil {
		protocols := &http.Protocols{}
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(!slices.Contains(secured.NextProtos, "http/1.1"))
		s.server.Protocols = protocols
		s.url = strings.Replace(s.url, "http:", "https:", 1)
		serve = func() { _ = s.server.ServeTLS(ln, "", "") }
	}
	var group sync.WaitGroup
	group.Go(serve)
	t.Cleanup(func() {
		_ = s.server.Close()
		group.Wait()
	})
	return s
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func listen(t testing.TB) net.Listener {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return ln
}

// rawServer talks to every connection by hand. Its connections are closed with the test, or when talk returns.
func rawServer(t testing.TB, talk func(net.Conn)) (url string, conns *atomic.Int64) {
	ln := listen(t)
	conns = &atomic.Int64{}
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			group.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { _ = c.Close() })()
				talk(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		stop()
		group.Wait()
	})
	return "http://" + ln.Addr().String() + "/hook", conns
}

// readRequest takes one whole request off a connection, as it came.
func readRequest(c net.Conn) []byte {
	var raw []byte
	part := make([]byte, 4096)
	for {
		n, err := c.Read(part)
		raw = append(raw, part[:n]...)
		head, body, complete := bytes.Cut(raw, []byte("\r\n\r\n"))
		if err != nil || complete && len(body) >= contentLength(head) {
			return raw
		}
	}
}

func contentLength(head []byte) int {
	for line := range strings.SplitSeq(string(head), "\r\n") {
		if value, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			n, _ := new(big.Int).SetString(value, 10)
			return int(n.Int64())
		}
	}
	return 0
}

// answering reads a request and writes what talk writes, once a connection.
func answering(talk func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		readRequest(c)
		talk(c)
	}
}

// certificate makes one that is its own authority, and a client's configuration that trusts it.
func certificate(t testing.TB, change ...func(*x509.Certificate)) (server, client *tls.Config) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	for _, f := range change {
		f(template)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: roots}
}

func requireUnknown(t testing.TB, err error) {
	t.Helper()
	require.Error(t, err)
	require.False(t, notifyq.IsNotSent(err) || notifyq.IsRejected(err) || notifyq.IsPermanent(err), "%v", err)
}

func requireRejected(t testing.TB, err error) {
	t.Helper()
	require.Error(t, err)
	require.True(t, notifyq.IsRejected(err), "%v", err)
	require.False(t, notifyq.IsGone(err), "%v", err)
}

func requireNotSent(t testing.TB, err error) {
	t.Helper()
	require.Error(t, err)
	require.True(t, notifyq.IsNotSent(err), "%v", err)
	require.False(t, notifyq.IsUnavailable(err), "%v", err)
}

// askedBy is the wait that an answer leads to.
func askedBy(t testing.TB, answer string) time.Duration {
	url, _ := rawServer(t, answering(func(c net.Conn) { _, _ = io.WriteString(c, answer) }))
	err := send(t, newPublisher(t, url), newEvent("x"))
	requireRejected(t, err)
	wait, _ := notifyq.RetryDelay(err)
	return wait
}
