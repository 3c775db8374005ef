package httpprovider

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/notifyq/notifyq"
)

// Defaults of Config.
const (
	DefaultUserAgent      = "notifyq"
	DefaultConnectTimeout = 5 * time.Second
	DefaultMaxIdle        = 100
)

// maxURLBytes is what servers and proxies between them take.
const maxURLBytes = 2048

// Config is what New needs. URL is required; every other zero value is the stated default. It prints without the URL's
// user, path and query and without the headers.
type Config struct {
	// URL is the endpoint: https or http, with a host, without fragment, at most 2,048 bytes. All of it but the host may
	// be secret.
	URL string `json:"-"`
	// Header is sent with every request: an Authorization, say. It may not set what the provider sets itself
	// (Content-Type, Content-Length, Idempotency-Key, Host and what governs the connection), nor Authorization beside a
	// user in the URL.
	Header http.Header `json:"-"`
	// UserAgent is who asks. Empty means notifyq.
	UserAgent string
	// ConnectTimeout bounds lookup and connecting, and then the TLS handshake. Zero means 5 s.
	ConnectTimeout time.Duration
	// MaxIdle is how many connections are kept for the next requests. As many as run at once, or more, avoids making new
	// ones under load. Zero means 100.
	MaxIdle int
	// TLS replaces the default client configuration: the system's roots, TLS 1.2 or later. A MinVersion that is 0
	// becomes TLS 1.2, and one below that is an error. Only with https.
	TLS *tls.Config
}

// String is the URL without user, path and query.
func (c Config) String() string {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" {
		return "http provider"
	}
	return u.Scheme + "://" + u.Host
}

// Format prints String for every verb, so that %+v and %#v show no secret.
func (c Config) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Config) withDefaults() Config {
	c.UserAgent = cmp.Or(c.UserAgent, DefaultUserAgent)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.MaxIdle = cmp.Or(c.MaxIdle, DefaultMaxIdle)
	return c
}

// target takes the URL apart. Its errors never show it: all of it may be secret.
func (c Config) target() (*url.URL, error) {
	if c.URL == "" {
		return nil, invalid("URL", "is required")
	}
	if len(c.URL) > maxURLBytes {
		return nil, invalid("URL", "must be at most 2,048 bytes")
	}
	u, err := url.Parse(c.URL)
	if err != nil { // the parser's own error quotes the URL
		return nil, invalid("URL", "is malformed; special characters in user and password must be percent-encoded")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, invalid("URL", "must begin with https:// or http://")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, invalid("URL", "must name a host")
	case strings.Contains(c.URL, "#"):
		return nil, invalid("URL", "must not have a fragment; percent-encode # in a password")
	case !validPort(u):
		return nil, invalid("URL", "must have a port from 1 to 65535, or none")
	case u.User != nil && u.Scheme == "http" && !isLoopback(u.Hostname()):
		return nil, invalid("URL", "must begin with https:// with a user: the password would cross the network in clear")
	}
	return u, nil
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

func isLoopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// reserved are the headers that the provider or the transport sets.
var reserved = []string{
	"Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key", "Keep-Alive",
	"Proxy-Connection", "Te", "Traceparent", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent",
}

// validate returns the first broken rule, but for those of URL.
func (c Config) validate() error {
	switch {
	case c.UserAgent != "" && !headerSafe(c.UserAgent):
		return invalid("UserAgent", "must be printable ASCII without outer blanks")
	case c.ConnectTimeout < 0:
		return invalid("ConnectTimeout", "must not be negative")
	case c.MaxIdle < 0:
		return invalid("MaxIdle", "must not be negative")
	}
	for name, values := range c.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return invalid("Header", "must hold names of letters, digits and '-'")
		}
		if slices.Contains(reserved, http.CanonicalHeaderKey(name)) {
			return invalid("Header", "must not set "+http.CanonicalHeaderKey(name))
		}
		if slices.ContainsFunc(values, func(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }) {
			return invalid("Header", "must hold values without control characters")
		}
	}
	return c.validateTLS()
}

func (c Config) validateTLS() error {
	switch {
	case c.TLS == nil:
	case !strings.HasPrefix(strings.ToLower(c.URL), "https:"):
		return invalid("TLS", "needs a URL that begins with https://")
	case c.TLS.MinVersion != 0 && c.TLS.MinVersion < tls.VersionTLS12,
		c.TLS.MaxVersion != 0 && c.TLS.MaxVersion < tls.VersionTLS12:
		return invalid("TLS", "must not allow less than TLS 1.2")
	}
	return nil
}

// tlsConfig is the configuration to shake hands with.
func (c Config) tlsConfig() *tls.Config {
	if c.TLS == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	tlsConfig := c.TLS.Clone()
	if tlsConfig.MinVersion == 0 {
		tlsConfig.MinVersion = tls.VersionTLS12
	}
	return tlsConfig
}

func headerSafe(text string) bool {
	return text == strings.TrimSpace(text) && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

func invalid(field, rule string) error {
	return &notifyq.InvalidError{Field: "http " + field, Rule: rule}
}
