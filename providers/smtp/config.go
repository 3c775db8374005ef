package smtp

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/notifyq/notifyq"
)

// TLSMode says how the connection is encrypted. There is no opportunistic mode: whoever can remove the offer of
// STARTTLS from a reply would read the mail and the password.
type TLSMode string

const (
	// TLSDefault is TLSStartTLS, but TLSNone if Host is the machine itself: localhost, 127.0.0.0/8 or ::1.
	TLSDefault TLSMode = ""
	// TLSStartTLS begins in clear and demands STARTTLS before anything else. A server that does not offer it is
	// Misconfigured, and sees neither message nor password.
	TLSStartTLS TLSMode = "starttls"
	// TLSImplicit speaks TLS from the first byte, as on port 465.
	TLSImplicit TLSMode = "implicit"
	// TLSNone never encrypts. Together with a Username it is refused unless Host is the machine itself.
	TLSNone TLSMode = "none"
)

// Defaults of Config. The waits for a command and for the message are those of RFC 5321, section 4.5.3.2.
const (
	DefaultPort           = 587
	DefaultPortImplicit   = 465
	DefaultConnectTimeout = 30 * time.Second
	DefaultCommandTimeout = 5 * time.Minute
	DefaultDataTimeout    = 10 * time.Minute
)

// Config is what New needs. Host and From are required; every other zero value is the stated default. It prints without
// the password.
type Config struct {
	// Host is the server's name or IP address, and the name its certificate must carry.
	Host string
	// Port is 1 to 65,535. Zero means 465 for TLSImplicit and 587 otherwise.
	Port int
	// TLS is the encryption. The zero value demands STARTTLS, except on the machine itself.
	TLS TLSMode
	// TLSConfig replaces the default client configuration: the system's roots, TLS 1.2 or later, ServerName = Host.
	// Where it leaves ServerName or MinVersion empty, those are filled in. Not with TLSNone.
	TLSConfig *tls.Config
	// Username and Password authenticate with PLAIN, or LOGIN if that is all the server offers. Both or neither.
	Username string
	Password string `json:"-"`
	// From is the sender, an address with or without a name: "Shop <no-reply@shop.example>". Its address is the
	// envelope sender too, so bounces go there. Its local part must be ASCII.
	From string
	// MessageIDDomain stands right of the @ in every Message-ID. Changing it changes the ids of jobs under way. Empty
	// means the domain of From.
	MessageIDDomain string
	// HELO is the name given in EHLO. Empty means the domain of From.
	HELO string
	// ConnectTimeout bounds everything before the message: lookup, connecting, TLS, greeting and authentication. Zero
	// means 30 s.
	ConnectTimeout time.Duration
	// CommandTimeout bounds each of MAIL, RCPT and DATA. Zero means 5 min.
	CommandTimeout time.Duration
	// DataTimeout bounds sending the message and waiting for the reply to it. Zero means 10 min; a shorter one risks
	// duplicates. The context of Deliver bounds all three.
	DataTimeout time.Duration
	// RetryDelay is the least wait after a 4yz reply to MAIL, RCPT, DATA or the message. Greylisting servers want
	// about 5 min. Zero leaves the wait to the worker's backoff.
	RetryDelay time.Duration
}

// String is the server without user and password.
func (c Config) String() string {
	scheme, mode := "smtp", c.mode()
	if mode == TLSImplicit {
		scheme = "smtps"
	}
	u := url.URL{Scheme: scheme, Host: c.addr(), RawQuery: "tls=" + url.QueryEscape(string(mode))}
	return u.String()
}

// Format prints String for every verb, so that %+v and %#v do not show the password.
func (c Config) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Config) mode() TLSMode {
	if c.TLS != TLSDefault {
		return c.TLS
	}
	if isLoopback(c.Host) {
		return TLSNone
	}
	return TLSStartTLS
}

func (c Config) addr() string {
	port := c.Port
	if port == 0 {
		port = DefaultPort
		if c.mode() == TLSImplicit {
			port = DefaultPortImplicit
		}
	}
	return net.JoinHostPort(c.Host, strconv.Itoa(port))
}

// tlsConfig is the configuration to shake hands with, nil for none. It is shared by all connections, read only.
func (c Config) tlsConfig() *tls.Config {
	if c.mode() == TLSNone {
		return nil
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLSConfig != nil {
		tlsConfig = c.TLSConfig.Clone()
	}
	if tlsConfig.ServerName == "" {
		tlsConfig.ServerName = c.Host
	}
	if tlsConfig.MinVersion == 0 {
		tlsConfig.MinVersion = tls.VersionTLS12
	}
	return tlsConfig
}

// validate returns the first broken rule. From, and what defaults to its domain, is sender's business.
func (c Config) validate() error {
	switch {
	case c.Host == "":
		return invalid("Host", "is required")
	case net.ParseIP(c.Host) == nil && !isHostname(c.Host):
		return invalid("Host", "must be a host name or an IP address, without port")
	case c.Port < 0 || c.Port > 65535:
		return invalid("Port", "must be 1 to 65535, or 0 for the default")
	case c.Username == "" && c.Password != "":
		return invalid("Username", "is required with a Password")
	case c.Username != "" && c.Password == "":
		return invalid("Password", "is required with a Username")
	case !isHeaderSafe(c.Username):
		return invalid("Username", "must be UTF-8 without control characters")
	case strings.ContainsRune(c.Password, 0) || !utf8.ValidString(c.Password):
		return invalid("Password", "must be UTF-8 without NUL")
	}
	if err := c.validateTLS(); err != nil {
		return err
	}
	for _, t := range []struct {
		field string
		value time.Duration
	}{
		{"ConnectTimeout", c.ConnectTimeout},
		{"CommandTimeout", c.CommandTimeout},
		{"DataTimeout", c.DataTimeout},
		{"RetryDelay", c.RetryDelay},
	} {
		if t.value < 0 {
			return invalid(t.field, "must not be negative")
		}
	}
	return nil
}

func (c Config) validateTLS() error {
	switch c.TLS {
	case TLSDefault, TLSStartTLS, TLSImplicit, TLSNone:
	default:
		return invalid("TLS", "must be starttls, implicit or none")
	}
	if c.mode() != TLSNone {
		return nil
	}
	if c.TLSConfig != nil {
		return invalid("TLSConfig", "needs TLS to be starttls or implicit")
	}
	if c.Username != "" && !isLoopback(c.Host) {
		return invalid("TLS", "must not be none with a Username: the password would cross the network in clear")
	}
	return nil
}

// sender is From, taken apart and checked.
func (c Config) sender() (mail.Address, error) {
	if c.From == "" {
		return mail.Address{}, invalid("From", "is required")
	}
	if !isHeaderSafe(c.From) {
		return mail.Address{}, invalid("From", "must be UTF-8 without control characters")
	}
	from, err := mail.ParseAddress(c.From)
	if err != nil {
		return mail.Address{}, invalid("From", "must be one address, with or without a name")
	}
	// ParseAddress takes the quotes off a quoted local part, which would let it pass the check below.
	if c.From != from.Address && !strings.HasSuffix(c.From, "<"+from.Address+">") {
		return mail.Address{}, invalid("From", "must end in a plain <address>")
	}
	addr, err := parseAddress(from.Address)
	if err != nil {
		return mail.Address{}, invalid("From", err.Error())
	}
	if addr.utf8 {
		return mail.Address{}, invalid("From", "must have an ASCII local part")
	}
	if !isHeaderSafe(from.Name) {
		return mail.Address{}, invalid("From", "must not hide control characters in its name")
	}
	return mail.Address{Name: from.Name, Address: addr.wire}, nil
}

// domainOr is the value of a field that holds a domain, or the fallback.
func domainOr(field, value, fallback string) (string, error) {
	if value == "" {
		return fallback, nil
	}
	domain, err := asciiDomain(value)
	if err != nil {
		return "", invalid(field, err.Error())
	}
	return domain, nil
}

func isLoopback(host string) bool {
	return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
}

// isHostname is wider than a mail domain: container networks have names with underscores.
func isHostname(host string) bool {
	if len(host) > maxDomainBytes {
		return false
	}
	for _, r := range host {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && r != '-' && r != '_' && r != '.' {
			return false
		}
	}
	return true
}

func durationOr(value, fallback time.Duration) time.Duration {
	if value == 0 {
		return fallback
	}
	return value
}

func invalid(field, rule string) error {
	return &notifyq.InvalidError{Field: "smtp " + field, Rule: rule}
}
