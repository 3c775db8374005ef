package smtp

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	gomail "github.com/wneessen/go-mail"

	"github.com/notifyq/notifyq"
)

// errNoKey guards the Message-ID: equal ids would make receivers drop all messages but the first.
var errNoKey = errors.New("the delivery has no key")

// message is one email, ready to be written.
type message struct {
	id        string // the Message-ID, with its brackets
	recipient address
	given     string // the recipient as it was given
	utf8      bool   // an address in it needs SMTPUTF8
	content   []byte
}

// compose checks a delivery and renders it. Its errors are permanent: nothing in here depends on the outside.
// Everything is in memory before a connection is opened, so that no failure of rendering can leave half a message at
// the server.
func (p *Provider) compose(d notifyq.Delivery) (*message, error) {
	if d.Key == uuid.Nil {
		return nil, errNoKey
	}
	recipient, err := parseAddress(d.Recipient)
	if err != nil {
		return nil, errors.New("recipient " + err.Error())
	}
	content, err := parsePayload(d.Payload)
	if err != nil {
		return nil, err
	}
	id := d.Key.String() + "@" + p.idDomain
	rendered, err := p.render(id, recipient, content)
	if err != nil {
		return nil, fmt.Errorf("rendering: %w", err)
	}
	return &message{
		id:        "<" + id + ">",
		recipient: recipient,
		given:     d.Recipient,
		utf8:      recipient.utf8 || content.replyTo.utf8,
		content:   rendered,
	}, nil
}

func (p *Provider) render(id string, to address, content payload) ([]byte, error) {
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	m.FromMailAddress(&p.from)
	m.ToMailAddress(&mail.Address{Address: to.wire})
	if content.replyTo.wire != "" {
		m.ReplyToMailAddress(&mail.Address{Address: content.replyTo.wire})
	}
	m.SetGenHeader(gomail.HeaderSubject, encodeHeader(content.subject))
	m.SetMessageIDWithValue(id)
	m.SetDateWithValue(time.Now())
	m.SetGenHeader("Auto-Submitted", "auto-generated")
	switch {
	case content.html == "":
		m.SetBodyString(gomail.TypeTextPlain, content.text)
	case content.text == "":
		m.SetBodyString(gomail.TypeTextHTML, content.html)
	default:
		m.SetBodyString(gomail.TypeTextPlain, content.text)
		m.AddAlternativeString(gomail.TypeTextHTML, content.html)
	}
	var rendered bytes.Buffer
	if _, err := m.WriteTo(&rendered); err != nil {
		return nil, err
	}
	// go-mail folds a long Message-ID off its own line, which is legal and unread by some. The first match is the
	// header: those before it hold no line end of the caller's.
	return bytes.Replace(rendered.Bytes(), []byte("Message-ID:\r\n <"), []byte("Message-ID: <"), 1), nil
}

// encodedWordBytes is how much text fits an encoded word: at most 75 characters (RFC 2047), 12 of them around the
// base64.
const encodedWordBytes = 45

// encodeHeader makes header text of s: as it is if that survives folding, else as encoded words split between
// characters. go-mail would write an ASCII value as it is even if a word of it is longer than a line, its spaces get
// lost in folding, or a reader would take it for an encoded word.
func encodeHeader(s string) string {
	if isPlainHeader(s) {
		return s
	}
	var words []string
	for s != "" {
		end := 0
		for end < len(s) {
			_, size := utf8.DecodeRuneInString(s[end:])
			if end+size > encodedWordBytes {
				break
			}
			end += size
		}
		words = append(words, "=?UTF-8?B?"+base64.StdEncoding.EncodeToString([]byte(s[:end]))+"?=")
		s = s[end:]
	}
	return strings.Join(words, " ")
}

func isPlainHeader(s string) bool {
	if strings.Contains(s, "=?") || strings.TrimSpace(s) != s || strings.Contains(s, "  ") {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	for word := range strings.SplitSeq(s, " ") {
		if len(word) > encodedWordBytes {
			return false
		}
	}
	return true
}
