package httpprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/traceparent"
)

const (
	// maxHeaderBytes bounds the headers of an answer, informational ones included.
	maxHeaderBytes  = 64 << 10
	idleConnTimeout = 90 * time.Second
)

// Provider posts notifications to one endpoint. It is safe for concurrent use.
type Provider struct {
	name      string // what it prints as
	url       *url.URL
	header    http.Header
	transport *http.Transport
}

var _ notifyq.Provider = (*Provider)(nil)

// New checks the configuration and connects to nothing. The error for a bad field is a *notifyq.InvalidError, which
// names it and never shows its value.
func New(cfg Config) (*Provider, error) {
	target, err := cfg.target()
	if err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	p := &Provider{name: cfg.String(), url: target, header: http.Header{}, transport: newTransport(cfg)}
	for name, values := range cfg.Header {
		for _, value := range values {
			p.header.Add(name, value)
		}
	}
	if target.User != nil {
		if p.header.Get("Authorization") != "" {
			return nil, invalid("Header", "must not set Authorization beside a user in the URL")
		}
		password, _ := target.User.Password()
		req := http.Request{Header: p.header}
		req.SetBasicAuth(target.User.Username(), password)
		target.User = nil
	}
	p.header.Set("Content-Type", "application/json")
	p.header.Set("User-Agent", cfg.UserAgent)
	return p, nil
}

// newTransport is one without a proxy, without decompression and, as nobody but http.Client follows them, without
// redirects.
func newTransport(cfg Config) *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: cfg.ConnectTimeout}).DialContext,
		TLSClientConfig:        cfg.tlsConfig(),
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    cfg.MaxIdle,
		IdleConnTimeout:        idleConnTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		// Without pings a connection whose other end has vanished would be given to one request after another until TCP
		// gives up, which takes a quarter of an hour.
		HTTP2: &http.HTTP2Config{SendPingTimeout: cfg.ConnectTimeout, PingTimeout: cfg.ConnectTimeout},
	}
}

// Deliver posts one notification. The package comment has the outcomes.
func (p *Provider) Deliver(ctx context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return notifyq.Receipt{}, notSent(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &passage{}
	req, err := p.request(w.watch(ctx), d)
	if err != nil {
		return notifyq.Receipt{}, notifyq.Permanent(err)
	}
	answer, err := p.transport.RoundTrip(req)
	if err != nil {
		return notifyq.Receipt{}, failure(ctx, w.begun.Load(), err)
	}
	defer func() { _ = answer.Body.Close() }()
	// The outcome is known: a body that drips in may not hold the delivery up.
	defer time.AfterFunc(maxReadTime, cancel).Stop()
	if answer.StatusCode/100 == 2 {
		return notifyq.Receipt{ProviderID: providerID(answer)}, nil
	}
	return notifyq.Receipt{}, refusal(answer, d, time.Now())
}

// CloseIdleConnections closes the connections that no request is using. A Provider that is not needed any more leaves
// nothing behind after it; without it they close by themselves after 90 s.
func (p *Provider) CloseIdleConnections() { p.transport.CloseIdleConnections() }

// String is the URL without user, path and query.
func (p *Provider) String() string { return p.name }

// Format prints String for every verb, so that %#v shows no secret.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(p.name)) }

// LogValue is String.
func (p *Provider) LogValue() slog.Value { return slog.StringValue(p.name) }

// headerKey is in lower case because the transport looks for the usual spelling: it repeats such a request by itself when a
// kept connection ends before the answer. One attempt is to be one request, or a notification that must rather be missed
// than sent twice could be sent twice. Names of headers have no case.
const headerKey = "idempotency-key"

// request makes the request of one attempt.
func (p *Provider) request(ctx context.Context, d notifyq.Delivery) (*http.Request, error) {
	text, err := body(d)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url.String(), bytes.NewReader(text))
	if err != nil {
		return nil, errors.New("http provider: the request can't be made") // the error quotes the URL
	}
	req.Header = p.header.Clone()
	req.Header[headerKey] = []string{d.Key.String()}
	if traceparent.Valid(d.TraceContext) {
		req.Header.Set(traceparent.Header, d.TraceContext)
	}
	return req, nil
}

// body is the JSON of an attempt. The payload is put in as it is: an encoder would rewrite it.
func body(d notifyq.Delivery) ([]byte, error) {
	payload := d.Payload
	if len(payload) == 0 {
		payload = json.RawMessage("null")
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		DeliveryKey string          `json:"deliveryKey"`
		Attempt     int             `json:"attempt"`
		Recipient   string          `json:"recipient"`
		Channel     notifyq.Channel `json:"channel"`
	}{d.Key.String(), d.Attempt, d.Recipient, d.Channel})
	if err != nil || !json.Valid(payload) {
		return nil, errors.New("http provider: the payload is not JSON") // the encoder's error would quote it
	}
	head := bytes.TrimSuffix(b.Bytes(), []byte("}\n"))
	return append(append(append(head, `,"payload":`...), payload...), '}'), nil
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
