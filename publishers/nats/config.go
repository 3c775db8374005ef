package nats

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"
	"unicode"

	natsgo "github.com/nats-io/nats.go"

	"github.com/notifyq/notifyq"
)

// DefaultAckTimeout is Config.AckTimeout where that is zero.
const DefaultAckTimeout = 10 * time.Second

const (
	maxPrefixBytes     = 255
	maxStreamNameBytes = 255
)

// Config is what New needs. URL is required; every other zero value is the stated default. It prints without what may be
// secret in it.
type Config struct {
	// URL names the servers, one or several separated by commas: nats://host:4222, tls://, ws:// or wss://, with user and
	// password, or a token, if they want one.
	URL string `json:"-"`
	// Options are further settings of the connection, such as nats.UserCredentials, nats.RootCAs or nats.ReconnectWait.
	// What the package comment lists under Connection is set after them and can't be undone by them. Handlers among them
	// are called, and must not block; a nats.ErrorHandler gets the server's complaints instead of Logger.
	Options []natsgo.Option `json:"-"`
	// SubjectPrefix is put before every subject, with its dot: "shop.events.". At most 255 bytes. Default: nothing.
	SubjectPrefix string
	// Subject gives the subject of an event, to which SubjectPrefix is added. It answers the same for the same event, or
	// its repetitions are not recognized. Default: the topic.
	Subject func(e notifyq.Event) string `json:"-"`
	// Stream is the only stream that an event may be stored in. An event whose subject another stream takes is then
	// rejected. At most 255 bytes. Default: whichever stream takes the subject.
	Stream string
	// AckTimeout is how long an acknowledgement is waited for. Zero means 10 s. Together with the relay's backoff it should
	// stay below the stream's window for duplicates, 2 min by default, or a late repetition is stored twice.
	AckTimeout time.Duration
	// Logger gets connections lost and won, and what the server complains of, such as missing permissions. It never gets
	// a URL, and a subject only from such a complaint. Default slog.Default().
	Logger *slog.Logger `json:"-"`
}

// String is the servers without user, password and token.
func (c Config) String() string {
	servers, _ := parseServers(c.URL)
	var names []string
	for _, u := range servers {
		names = append(names, u.Scheme+"://"+u.Host)
	}
	return strings.Join(names, ",")
}

// Format prints String for every verb, so that %+v and %#v do not show the password.
func (c Config) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// LogValue is String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Config) validate() error {
	if _, err := parseServers(c.URL); err != nil {
		return err
	}
	switch {
	case len(c.SubjectPrefix) > maxPrefixBytes:
		return invalid("SubjectPrefix", "must be at most 255 bytes")
	case checkSubject(c.SubjectPrefix+"x") != nil:
		return invalid("SubjectPrefix", "must be tokens separated by dots, without spaces, control characters, * and >")
	case len(c.Stream) > maxStreamNameBytes || strings.ContainsFunc(c.Stream, notInStreamName):
		return invalid("Stream", `must be at most 255 bytes, without spaces, control characters, . * > / and \`)
	case c.AckTimeout < 0:
		return invalid("AckTimeout", "must not be negative")
	}
	return nil
}

// parseServers reads a list of servers as the client does. Its errors show nothing of them.
func parseServers(list string) ([]*url.URL, error) {
	if list == "" {
		return nil, invalid("URL", "is required")
	}
	var servers []*url.URL
	for server := range strings.SplitSeq(list, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(server)
		if err != nil {
			return nil, invalid("URL", "is malformed; special characters in user and password must be percent-encoded")
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return nil, invalid("URL", "must begin with nats://, tls://, ws:// or wss://")
		}
		if u.Hostname() == "" {
			return nil, invalid("URL", "must name a host in each of its parts")
		}
		servers = append(servers, u)
	}
	return servers, nil
}

func notInStreamName(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune(`.*>/\`, r)
}

func invalid(field, rule string) error {
	return &notifyq.InvalidError{Field: "nats " + field, Rule: rule}
}
