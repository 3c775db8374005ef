package webhook

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"mime"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/notifyq/notifyq"
)

// Defaults of Config.
const (
	DefaultName           = "default"
	DefaultContentType    = "application/json"
	DefaultUserAgent      = "notifyq"
	DefaultTimeout        = 15 * time.Second
	DefaultConnectTimeout = 5 * time.Second
	DefaultConcurrency    = 10
	DefaultMaxAttempts    = 10
	DefaultDisableAfter   = 5 * 24 * time.Hour
)

// maxURLBytes is what servers and proxies between them take.
const maxURLBytes = 2048

// Config is what New needs. URL and Secrets are required; every other zero value is the stated default. It prints
// without the URL's path and the secrets.
type Config struct {
	// URL is the endpoint: https or http, with a host, without user and fragment, at most 2,048 bytes. The path and the
	// query may be secret. A host that is not ASCII is given in its xn-- form.
	URL string `json:"-"`
	// Secrets sign every request, the newest first: 1 to 10, each 24 to 64 random bytes in standard base64, with or
	// without "whsec_" before them. White space around one is ignored, as what was read from a file ends in a newline.
	Secrets []string `json:"-"`
	// Name stands for the endpoint in tables, metrics and logs: 1 to 255 bytes, nothing secret. Empty means "default".
	Name string
	// ContentType is what the bodies are. Empty means application/json.
	ContentType string
	// UserAgent is who asks. Empty means notifyq.
	UserAgent string
	// Timeout bounds an attempt, from the lookup to the end of the answer. Zero means 15 s. The context of Start bounds
	// it too.
	Timeout time.Duration
	// ConnectTimeout bounds lookup and connecting, and then the TLS handshake. Zero means 5 s.
	ConnectTimeout time.Duration
	// Concurrency is how many events one relay has on their way at once. Zero means 10.
	Concurrency int
	// MaxAttempts is after how many failures an event is parked. Zero means 10, which with the default backoff of a relay
	// is used up in 4 to 9 minutes: for receivers that may be away for longer choose more, or a longer RelayConfig.Retry.
	MaxAttempts int
	// DisableAfter is for how long the endpoint may do nothing but fail before it is disabled. Zero means 5 days.
	DisableAfter time.Duration
	// NeverDisable leaves an endpoint enabled that does nothing but fail. It is still disabled by a 410. Not together
	// with DisableAfter.
	NeverDisable bool
	// AllowCIDRs are the addresses outside the public internet that may be sent to: 10.1.0.0/16 for a receiver in one's
	// own network, 127.0.0.0/8 for one on the same machine. Not for anybody but the operator to choose. None by default.
	AllowCIDRs []netip.Prefix
	// TLS replaces the default client configuration: the system's roots, TLS 1.2 or later. A MinVersion that is 0
	// becomes TLS 1.2, and one below that is an error. Only with https.
	TLS *tls.Config
}

// String is the name, and the URL without path and query.
func (c Config) String() string {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" {
		return c.name()
	}
	return fmt.Sprintf("%s (%s://%s)", c.name(), u.Scheme, u.Host)
}

// Format prints String for every verb, so that %+v and %#v do not show the secrets.
func (c Config) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Config) name() string { return cmp.Or(c.Name, DefaultName) }

// withDefaults is c as it is used.
func (c Config) withDefaults() Config {
	c.Name = c.name()
	c.ContentType = cmp.Or(c.ContentType, DefaultContentType)
	c.UserAgent = cmp.Or(c.UserAgent, DefaultUserAgent)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, DefaultMaxAttempts)
	if !c.NeverDisable {
		c.DisableAfter = cmp.Or(c.DisableAfter, DefaultDisableAfter)
	}
	return c
}

// validate returns the first broken rule, but for those of URL and Secrets.
func (c Config) validate() error {
	switch {
	case len(c.Name) > 255:
		return invalid("Name", "must be at most 255 bytes")
	case c.Name != "" && !headerSafe(c.Name):
		return invalid("Name", "must be UTF-8 without control characters and outer blanks")
	case c.UserAgent != "" && (!headerSafe(c.UserAgent) || !isASCII(c.UserAgent)):
		return invalid("UserAgent", "must be printable ASCII without outer blanks")
	case c.Concurrency < 0 || c.Concurrency > 10_000:
		return invalid("Concurrency", "must be between 0 and 10,000")
	case c.MaxAttempts < 0 || c.MaxAttempts > notifyq.MaxAttemptsLimit:
		return invalid("MaxAttempts", fmt.Sprintf("must be between 0 and %d", notifyq.MaxAttemptsLimit))
	case c.NeverDisable && c.DisableAfter != 0:
		return invalid("DisableAfter", "must be zero with NeverDisable")
	}
	if c.ContentType != "" {
		if _, _, err := mime.ParseMediaType(c.ContentType); err != nil || !headerSafe(c.ContentType) || !isASCII(c.ContentType) {
			return invalid("ContentType", "must be a media type")
		}
	}
	for _, t := range []struct {
		field string
		value time.Duration
	}{
		{"Timeout", c.Timeout},
		{"ConnectTimeout", c.ConnectTimeout},
		{"DisableAfter", c.DisableAfter},
	} {
		if t.value < 0 {
			return invalid(t.field, "must not be negative")
		}
	}
	for _, prefix := range c.AllowCIDRs {
		if !prefix.IsValid() || prefix.Addr().Is4In6() {
			return invalid("AllowCIDRs", "must hold prefixes of IPv4 or IPv6 addresses")
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

// headerSafe reports whether a text arrives in a header as it is: HTTP takes outer blanks off, and control characters
// would end the header, or the reader's patience.
func headerSafe(text string) bool {
	if text == "" || text != strings.TrimSpace(text) || !utf8.ValidString(text) {
		return false
	}
	return strings.IndexFunc(text, unicode.IsControl) < 0
}

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

func invalid(field, rule string) error {
	return &notifyq.InvalidError{Field: "webhook " + field, Rule: rule}
}
