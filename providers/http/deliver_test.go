package httpprovider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestRequestIsTheContract(t *testing.T) {
	t.Parallel()
	type seen struct {
		body   string
		header http.Header
		uri    string
		method string
	}
	requests := make(chan seen, 1)
	p, _ := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- seen{string(body), r.Header, r.RequestURI, r.Method}
	}, func(cfg *Config) { cfg.Header = http.Header{"authorization": {"Bearer s3cret"}} })
	d := delivery()
	d.Recipient, d.Payload = `<a&b>"@example.com`, []byte(`{ "n": 1.50, "html":"<b>", "big": 12345678901234567890 }`)
	d.TraceContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	_, err := p.Deliver(t.Context(), d)
	require.NoError(t, err)
	got := <-requests
	require.Equal(t, d.TraceContext, got.header.Get("Traceparent"))
	require.Equal(t, fmt.Sprintf(
		`{"deliveryKey":%q,"attempt":3,"recipient":"<a&b>\"@example.com","channel":"SMS","payload":%s}`, d.Key, d.Payload), got.body)
	require.Equal(t, d.Key.String(), got.header.Get("Idempotency-Key"))
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, "notifyq", got.header.Get("User-Agent"))
	require.Equal(t, "Bearer s3cret", got.header.Get("Authorization"))
	require.Empty(t, got.header.Get("Accept-Encoding"))
	require.Equal(t, canaryPath, got.uri)
	require.Equal(t, http.MethodPost, got.method)

	d.TraceContext = "something else"
	_, err = p.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Empty(t, (<-requests).header.Get("Traceparent"))
}

func TestUserInTheURLIsBasicAuthentication(t *testing.T) {
	t.Parallel()
	requests := make(chan *http.Request, 1)
	p, _ := endpoint(t, func(_ http.ResponseWriter, r *http.Request) { requests <- r }, func(cfg *Config) {
		cfg.URL = strings.Replace(cfg.URL, "http://", "http://us%20er:p%40ss@", 1)
	})
	_, err := p.Deliver(t.Context(), delivery())
	require.NoError(t, err)
	user, password, ok := (<-requests).BasicAuth()
	require.True(t, ok)
	require.Equal(t, []string{"us er", "p@ss"}, []string{user, password})
}

func TestAnswersByStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		200: "accepted", 201: "accepted", 202: "accepted", 204: "accepted", 299: "accepted",
		301: "permanent", 302: "permanent", 303: "permanent", 307: "permanent", 308: "permanent",
		400: "permanent", 404: "permanent", 409: "permanent", 410: "permanent", 422: "permanent", 499: "permanent",
		401: "misconfigured", 403: "misconfigured",
		429: "transient", 500: "transient", 501: "transient", 502: "transient", 503: "transient", 504: "transient", 599: "transient",
		600: "ambiguous", 999: "ambiguous",
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			followed := false
			p, _ := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
				if r.RequestURI != canaryPath {
					followed = true
				}
				// An echo of everything that the request held.
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
				if status != 204 {
					_, _ = w.Write(body)
				}
			})
			_, err := p.Deliver(t.Context(), delivery())
			require.Equal(t, want, class(err))
			require.False(t, followed)
			if err == nil {
				return
			}
			requireNothingPersonal(t, err)
			var told *StatusError
			require.ErrorAs(t, err, &told)
			require.Equal(t, status, told.Status)
		})
	}
}

func TestProviderIDOfAnAnswer(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"id":"msg-1"}`:                     "msg-1",
		` {"x":[1],"id":"msg-2"} `:           "msg-2",
		`{"id":12345678901234567890}`:        "12345678901234567890",
		`{"id":null}`:                        "",
		`{"id":{"a":1}}`:                     "",
		`{"id":true}`:                        "",
		`["id"]`:                             "",
		`id`:                                 "",
		``:                                   "",
		`{"id":"` + strings.Repeat("x", 300): "",
		`{"id":"far","x":"` + strings.Repeat("x", maxAnswerBytes) + `"}`: "",
	} {
		p, _ := endpoint(t, answerWith(202, body))
		receipt, err := p.Deliver(t.Context(), delivery())
		require.NoError(t, err)
		require.Equal(t, want, receipt.ProviderID, body[:min(len(body), 40)])
	}
}

func TestCodeOfARefusal(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"invalid_number": "http provider: 422 Unprocessable Entity: invalid_number",
		"canary":         "http provider: 422 Unprocessable Entity", // it is in the notification
		"two words":      "http provider: 422 Unprocessable Entity",
		"+15550100":      "http provider: 422 Unprocessable Entity",
		"x@example.com":  "http provider: 422 Unprocessable Entity",
		"":               "http provider: 422 Unprocessable Entity",
	} {
		p, _ := endpoint(t, answerWith(422, fmt.Sprintf(`{"code":%q,"detail":%q}`, code, canaryRecipient)))
		_, err := p.Deliver(t.Context(), delivery())
		require.EqualError(t, err, want)
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 503} {
		for value, want := range map[string]time.Duration{
			"7": 7 * time.Second, "0": 0, "-1": 0, "1.5": 0, "soon": 0, "999999999999": 24 * time.Hour,
			"Wed, 21 Oct 2015 07:28:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": 24 * time.Hour,
		} {
			p, _ := endpoint(t, answerWith(status, "", "Retry-After", value))
			_, err := p.Deliver(t.Context(), delivery())
			require.True(t, notifyq.IsTransient(err))
			wait, _ := notifyq.RetryDelay(err)
			require.Equal(t, want, wait, value)
		}
	}
	p, _ := endpoint(t, answerWith(429, "", "Retry-After", "7", "Retry-After", "8"))
	_, err := p.Deliver(t.Context(), delivery())
	wait, _ := notifyq.RetryDelay(err)
	require.Zero(t, wait)
}

func TestTimeoutAfterTheRequestWasWrittenIsAmbiguous(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	p := provider(t, raw(t, func(conn net.Conn) {
		readRequest(conn)
		close(arrived)
		_, _ = io.Copy(io.Discard, conn) // until the other side hangs up
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-arrived
		cancel()
	}()
	_, err := p.Deliver(ctx, delivery())
	require.True(t, notifyq.IsAmbiguous(err), "%v", err)
	require.ErrorIs(t, err, context.Canceled)
	requireNothingPersonal(t, err)
}

func TestConnectionLostAfterTheRequestIsAmbiguousAndNotRepeated(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	p := provider(t, raw(t, func(conn net.Conn) {
		// The first request of a connection is answered, so that the second finds it kept; that one is read and left
		// without an answer.
		readRequest(conn)
		requests.Add(1)
		_, _ = io.WriteString(conn, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
		if readRequest(conn) != "" {
			requests.Add(1)
		}
	}))
	_, err := p.Deliver(t.Context(), delivery())
	require.NoError(t, err)
	_, err = p.Deliver(t.Context(), delivery())
	require.Equal(t, "ambiguous", class(err), "%v", err)
	require.EqualValues(t, 2, requests.Load())
	requireNothingPersonal(t, err)
}

func TestAnswerThatIsNoHTTPIsAmbiguous(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"220 canary-banner ESMTP\r\n", "HTTP/1.1 canary\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n"} {
		p := provider(t, raw(t, func(conn net.Conn) {
			readRequest(conn)
			_, _ = io.WriteString(conn, text)
		}))
		_, err := p.Deliver(t.Context(), delivery())
		require.Equal(t, "ambiguous", class(err), "%q: %v", text, err)
		requireNothingPersonal(t, err)
	}
}

func TestWithoutConnectionNothingWasSent(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := listener.Addr().String()
	require.NoError(t, listener.Close())
	noTLS := httptest.NewServer(http.NotFoundHandler())
	defer noTLS.Close()
	for what, c := range map[string]struct {
		url string
		ctx context.Context
	}{
		"nobody listens":         {"http://" + closed, t.Context()},
		"no such name":           {"http://canary.invalid", t.Context()},
		"no TLS":                 {strings.Replace(noTLS.URL, "http:", "https:", 1), t.Context()},
		"the context had ended":  {noTLS.URL, ended()},
		"an address that is not": {"http://[::ffff:0:0]:1", t.Context()},
	} {
		_, err := provider(t, c.url).Deliver(c.ctx, delivery())
		require.Equal(t, "transient", class(err), "%s: %v", what, err)
		requireNothingPersonal(t, err)
		var marked interface{ Unwrap() error }
		require.True(t, errors.As(err, &marked))
	}
	noTLS.CloseClientConnections()
}

// A worker takes an unmarked error at the end of its context for an unknown outcome, so that an attempt that hung in
// connecting would be parked.
func TestTimeoutInConnectingIsMarkedAsTransient(t *testing.T) {
	t.Parallel()
	p := provider(t, "https://127.0.0.1:1")
	arrived := make(chan struct{})
	p.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		close(arrived)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := p.Deliver(ctx, delivery())
	require.Equal(t, "transient", class(err))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, notifyq.RetryAfter(errors.New("x"), 0) != nil, err != nil)
	require.IsType(t, notifyq.RetryAfter(errors.New("x"), 0), err, "marked")
}

func TestCertificateThatDoesNotVerifyIsMisconfigured(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(answerWith(200, `{"id":"1"}`))
	server.Config.ErrorLog = nil
	server.StartTLS()
	defer server.Close()
	_, err := provider(t, server.URL).Deliver(t.Context(), delivery())
	require.Equal(t, "misconfigured", class(err))
	require.EqualError(t, err, "http provider: the certificate is of an unknown authority")

	trusting, err := New(Config{URL: server.URL, TLS: server.Client().Transport.(*http.Transport).TLSClientConfig})
	require.NoError(t, err)
	receipt, err := trusting.Deliver(t.Context(), delivery())
	require.NoError(t, err)
	require.Equal(t, "1", receipt.ProviderID)
	trusting.CloseIdleConnections()
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	connections := map[string]bool{}
	status := atomic.Int32{}
	p, _ := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		connections[r.RemoteAddr] = true
		mu.Unlock()
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, strings.Repeat("x", maxAnswerBytes/2))
	})
	for _, s := range []int32{200, 202, 503, 422, 429, 200} {
		status.Store(s)
		_, _ = p.Deliver(t.Context(), delivery())
	}
	require.Len(t, connections, 1)
}

// An endpoint that accepts and then sends for ever has accepted.
func TestEndlessAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	p, _ := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(202)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
				return
			}
		}
	})
	receipt, err := p.Deliver(t.Context(), delivery())
	require.NoError(t, err)
	require.Empty(t, receipt.ProviderID)
}

func TestDrippingAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	p, _ := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(202)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	_, err := p.Deliver(t.Context(), delivery())
	require.NoError(t, err)
}

func TestPayloadThatIsNotJSONIsPermanent(t *testing.T) {
	t.Parallel()
	p := provider(t, "http://127.0.0.1:1")
	d := delivery()
	d.Payload = []byte(`{"canary`)
	_, err := p.Deliver(t.Context(), d)
	require.Equal(t, "permanent", class(err))
	requireNothingPersonal(t, err)
	d.Payload = nil
	text, err := body(d)
	require.NoError(t, err)
	require.Contains(t, string(text), `"payload":null}`)
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for rawURL, ok := range map[string]bool{
		"http://gateway.example/send": true, "https://u:p@gateway.example": true, "http://u:p@localhost:1": true,
		"http://10.0.0.1:8080": true, "http://[::1]:80/x?y=z": true,
		"": false, "gateway.example": false, "ftp://canary.example": false, "http://": false, "http:///x": false, "http:x": false,
		"http://canary.example/#x": false, "http://canary.example:0": false, "http://canary.example:": false,
		"http://canary.example:99999": false, "http://canary:canary@canary.example": false, "http://canary:p%zz@h": false,
		"https://h/" + strings.Repeat("x", 2048): false, "http://canary\n": false,
	} {
		p, err := New(Config{URL: rawURL})
		require.Equal(t, ok, err == nil, rawURL)
		if err != nil {
			require.ErrorIs(t, err, notifyq.ErrInvalid)
			require.NotContains(t, err.Error(), "canary")
			continue
		}
		require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", p, p, p, p), "u:p")
	}
	for what, cfg := range map[string]Config{
		"agent":         {UserAgent: "a\nb"},
		"timeout":       {ConnectTimeout: -1},
		"idle":          {MaxIdle: -1},
		"reserved":      {Header: http.Header{"idempotency-key": {"x"}}},
		"name":          {Header: http.Header{"a b": {"x"}}},
		"value":         {Header: http.Header{"X-A": {"x\r\nY: z"}}},
		"old TLS":       {TLS: &tls.Config{MinVersion: tls.VersionTLS11}},
		"two passwords": {URL: "https://u:p@h", Header: http.Header{"Authorization": {"x"}}},
	} {
		if cfg.URL == "" {
			cfg.URL = "https://gateway.example"
		}
		_, err := New(cfg)
		require.ErrorIs(t, err, notifyq.ErrInvalid, what)
	}
	_, err := New(Config{URL: "http://gateway.example", TLS: &tls.Config{}})
	require.ErrorIs(t, err, notifyq.ErrInvalid)
	cfg := Config{URL: "https://canary:canary@gateway.example/canary?canary", Header: http.Header{"X": {"canary"}}}
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", cfg, &cfg, cfg, cfg.LogValue()), "canary")
	require.Equal(t, "https://gateway.example", cfg.String())
	require.Equal(t, "http provider", Config{URL: ":"}.String())
}
