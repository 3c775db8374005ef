package nats

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/notifyq/notifyq"
)

// Headers of a message, beside Nats-Msg-Id, which holds the event's id.
const (
	HeaderTopic = "Notifyq-Topic"
	HeaderKey   = "Notifyq-Key" // absent if the event has no key
)

// MaxSubjectBytes is the longest subject that is sent. A server closes the connection over a command line of more than
// 4,096 bytes, its default; the subject is the only part of ours that can be long.
const MaxSubjectBytes = 512

// The rules of a message. Their texts hold nothing of the event.
var (
	errSubjectLength   = errors.New("the subject must be 1 to 512 bytes")
	errSubjectToken    = errors.New("the subject must not have an empty token: no dot at an end, no two in a row")
	errSubjectChars    = errors.New("the subject must be UTF-8 without spaces and control characters")
	errSubjectWildcard = errors.New("the subject must not have a wildcard, * or >")
	errSubjectReserved = errors.New("the subject must not begin with $ or _INBOX, which are the server's")
	errTopicHeader     = errors.New("the topic must be UTF-8 without control characters and spaces at its ends, to be a header")
	errKeyHeader       = errors.New("the key must be UTF-8 without control characters and spaces at its ends, to be a header")
)

// message is what is sent for an event.
func (p *Publisher) message(e notifyq.Event) (*natsgo.Msg, error) {
	subject := p.cfg.SubjectPrefix + p.cfg.Subject(e)
	if err := checkSubject(subject); err != nil {
		return nil, err
	}
	// Published to $JS.API.STREAM.DELETE.x, a topic would be a command. Only the operator may aim at such subjects, by the
	// prefix: "$KV.bucket." is a use of it.
	if isReserved(subject) && !isReserved(p.cfg.SubjectPrefix) {
		return nil, errSubjectReserved
	}
	if !isHeaderSafe(e.Topic) {
		return nil, errTopicHeader
	}
	if !isHeaderSafe(e.Key) {
		return nil, errKeyHeader
	}
	header := natsgo.Header{
		jetstream.MsgIDHeader: {e.ID.String()},
		HeaderTopic:           {e.Topic},
	}
	if e.Key != "" {
		header[HeaderKey] = []string{e.Key}
	}
	if p.cfg.Stream != "" {
		header[jetstream.ExpectedStreamHeader] = []string{p.cfg.Stream}
	}
	return &natsgo.Msg{Subject: subject, Header: header, Data: e.Body}, nil
}

// checkSubject is stricter than the client, which looks for white space only, and than the server, which takes what it
// is given unless it is pedantic.
func checkSubject(subject string) error {
	if subject == "" || len(subject) > MaxSubjectBytes {
		return errSubjectLength
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" {
			return errSubjectToken
		}
	}
	if !utf8.ValidString(subject) {
		return errSubjectChars
	}
	for _, r := range subject {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			return errSubjectChars
		case r == '*' || r == '>':
			return errSubjectWildcard
		}
	}
	return nil
}

func isReserved(subject string) bool {
	return strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_INBOX.")
}

// isHeaderSafe holds for what arrives as it was sent: the client trims the ends of a header and turns line ends into
// spaces.
func isHeaderSafe(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) && strings.Trim(s, " ") == s
}
