package webhook

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/signature"
)

// Publisher sends events to one endpoint. It is safe for concurrent use.
type Publisher struct {
	cfg       Config // with defaults filled in, without URL and secrets
	name      string // what it prints as
	url       *url.URL
	keys      []signature.Key
	private   [][]byte // what must not be told of an answer, beside the event
	endpoint  notifyq.Endpoint
	dialer    *net.Dialer
	transport *http.Transport
}

var _ notifyq.EndpointPublisher = (*Publisher)(nil)

// secretParts are the path and the query, as they are sent and as a receiver may quote them.
func secretParts(target *url.URL) [][]byte {
	parts := [][]byte{[]byte(target.RequestURI()), []byte(target.Path)}
	for name, values := range target.Query() {
		parts = append(parts, []byte(name))
		for _, value := range values {
			parts = append(parts, []byte(value))
		}
	}
	return parts
}

// New checks the configuration and connects to nothing. The error for a bad field is a *notifyq.InvalidError, which
// names it and never shows its value. A URL whose host is an address outside the public internet is one, as is a name
// that can lead nowhere else, localhost say, unless AllowCIDRs allows it.
func New(cfg Config) (*Publisher, error) {
	guard := guard{allow: cfg.AllowCIDRs}
	target, err := parseTarget(cfg.URL, guard)
	if err != nil {
		return nil, err
	}
	keys, err := signature.ParseSecrets(cfg.Secrets)
	if err != nil {
		return nil, invalid("Secrets", err.Error())
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	p := &Publisher{
		name: cfg.String(),
		url:  target,
		keys: keys,
		endpoint: notifyq.Endpoint{
			Name: cfg.Name, Target: targetID(target), Concurrency: cfg.Concurrency,
			MaxAttempts: cfg.MaxAttempts, DisableAfter: cfg.DisableAfter,
		},
		private: secretParts(target),
		dialer:  &net.Dialer{Timeout: cfg.ConnectTimeout, ControlContext: guard.control},
	}
	for _, secret := range cfg.Secrets {
		p.private = append(p.private, []byte(strings.TrimSpace(secret)))
	}
	p.transport = newTransport(cfg, p.dialer)
	p.cfg, p.cfg.URL, p.cfg.Secrets = cfg, "", nil
	return p, nil
}

// Endpoint is the same for every event. Its Target is a hash of the URL.
func (p *Publisher) Endpoint(notifyq.Event) notifyq.Endpoint { return p.endpoint }

// Start begins the request and returns. The request ends with ctx, with the context of Wait, or after Config.Timeout. The
// package comment has the outcomes.
func (p *Publisher) Start(ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
	if err := ctx.Err(); err != nil {
		return nil, notifyq.NotSent(fmt.Errorf("webhook: %w", err))
	}
	w := &passage{}
	ctx, cancel := context.WithTimeout(w.watch(ctx), p.cfg.Timeout)
	req, err := p.request(ctx, e, time.Now())
	if err != nil {
		cancel()
		return nil, notifyq.Permanent(err)
	}
	a := &attempt{cancel: cancel, done: make(chan error, 1)}
	go func() {
		defer cancel()
		a.done <- p.post(req, w, e)
	}()
	return a, nil
}

// CloseIdleConnections closes the connections that no request is using. A Publisher that is not needed any more leaves
// nothing behind after it; without it they close by themselves after 90 s.
func (p *Publisher) CloseIdleConnections() { p.transport.CloseIdleConnections() }

// String is the endpoint's name, and its URL without path and query.
func (p *Publisher) String() string { return p.name }

// Format prints String for every verb, so that %#v does not show the secrets.
func (p *Publisher) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(p.name)) }

// LogValue is String.
func (p *Publisher) LogValue() slog.Value { return slog.StringValue(p.name) }

// post sends a request and reads the answer.
func (p *Publisher) post(req *http.Request, w *passage, e notifyq.Event) error {
	answer, err := p.transport.RoundTrip(req)
	if err != nil {
		return failure(req.Context(), w.begun.Load(), err)
	}
	if accepted(answer) {
		drain(answer.Body)
		_ = answer.Body.Close()
		return nil
	}
	refusal := p.refusal(answer, e, time.Now())
	_ = answer.Body.Close()
	// The connection is idle by now, if it can be used again at all. To close it by itself could hit a request that has
	// taken it a moment ago.
	p.transport.CloseIdleConnections()
	return refusal
}

// attempt is one request on its way.
type attempt struct {
	cancel context.CancelFunc
	done   chan error
}

// Wait returns what came of the request. When ctx ends first the request is cancelled, and what is known of it then is
// the outcome; it may have been acknowledged just before.
func (a *attempt) Wait(ctx context.Context) error {
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		a.cancel()
		return <-a.done
	}
}
