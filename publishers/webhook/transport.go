package webhook

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

const (
	// maxHeaderBytes bounds the headers of an answer, informational ones included.
	maxHeaderBytes  = 64 << 10
	idleConnTimeout = 90 * time.Second
)

// newTransport is one without a proxy, without decompression and, as nobody but http.Client follows them, without
// redirects.
func newTransport(cfg Config, dialer *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        cfg.tlsConfig(),
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    cfg.Concurrency,
		IdleConnTimeout:        idleConnTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		// Without pings a connection whose other end has vanished would be given to one request after another until TCP
		// gives up, which takes a quarter of an hour. HTTP/1.1 has the problem once, as a timeout ends its connection.
		HTTP2: &http.HTTP2Config{SendPingTimeout: cfg.ConnectTimeout, PingTimeout: cfg.ConnectTimeout},
	}
}

// passage watches a request on its way. From the moment a connection takes it, it may have been sent: the transport can
// return, as its context ends, and write a moment later.
type passage struct{ begun atomic.Bool }

// watch makes the transport report to w. It starts anew with every connection: the transport asks for another one only
// when the one before did not take the request.
func (w *passage) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { w.begun.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { w.begun.Store(true) },
	})
}
