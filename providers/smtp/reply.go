package smtp

import (
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"strings"

	"github.com/notifyq/notifyq"
)

// stage is a step of the dialogue, as errors name it.
type stage string

const (
	stageConnect  stage = "connect"
	stageTLS      stage = "TLS"
	stageGreeting stage = "greeting"
	stageEHLO     stage = "EHLO"
	stageSTARTTLS stage = "STARTTLS"
	stageAUTH     stage = "AUTH"
	stageMAIL     stage = "MAIL"
	stageRCPT     stage = "RCPT"
	stageDATA     stage = "DATA"
	stageContent  stage = "message"        // the content, up to the dot
	stageDot      stage = "end of message" // the dot and the reply to it
)

// inMessage tells that the server has let us in and judges this one message.
func (s stage) inMessage() bool {
	switch s {
	case stageMAIL, stageRCPT, stageDATA, stageContent, stageDot:
		return true
	case stageConnect, stageTLS, stageGreeting, stageEHLO, stageSTARTTLS, stageAUTH:
	}
	return false
}

// ReplyError is a server's refusal.
type ReplyError struct {
	// Stage is what was answered: greeting, EHLO, STARTTLS, AUTH, MAIL, RCPT, DATA or "end of message".
	Stage string
	// Code is the basic status code, 550 say.
	Code int
	// EnhancedCode is the enhanced status code (RFC 3463), "5.1.1" say, or empty if the reply began with none.
	EnhancedCode string
	// Text is the rest of the reply. The password and the recipient are taken out of it, whatever a server puts in.
	Text string
}

func (e *ReplyError) Error() string {
	text := fmt.Sprintf("smtp: %s: %d", e.Stage, e.Code)
	for _, part := range []string{e.EnhancedCode, e.Text} {
		if part != "" {
			text += " " + part
		}
	}
	return text
}

var enhancedCode = regexp.MustCompile(`^([245]\.\d{1,3}\.\d{1,3})(?:\s+|$)`)

// replyError is the reply inside err, or nil if the server gave none. clean removes what must not be kept.
func replyError(at stage, err error, clean func(string) string) *ReplyError {
	var reply *textproto.Error
	if !errors.As(err, &reply) {
		return nil
	}
	text, enhanced := reply.Msg, ""
	if found := enhancedCode.FindStringSubmatch(text); found != nil {
		text, enhanced = text[len(found[0]):], found[1]
	}
	return &ReplyError{
		Stage: string(at), Code: reply.Code, EnhancedCode: enhanced,
		Text: clean(strings.ReplaceAll(text, "\n", " ")),
	}
}

// severity is the digit that decides: the enhanced code's first if it is one of failure, else the basic code's.
func (e *ReplyError) severity() int {
	if e.EnhancedCode != "" && e.EnhancedCode[0] != '2' {
		return int(e.EnhancedCode[0] - '0')
	}
	return e.Code / 100
}

// misconfigurations are enhanced codes that blame the sender or the account wherever they come.
var misconfigurations = map[string]bool{
	"5.1.7": true, "5.1.8": true, // the sender's address
	"5.4.5": true, // the account's quota, at Google
	// RFC 4954 and its registry: credentials, mechanism, encryption, account disabled, no trust.
	"5.7.8": true, "5.7.9": true, "5.7.10": true, "5.7.11": true, "5.7.12": true, "5.7.13": true, "5.7.14": true,
	// RFC 7372 and RFC 7505: DKIM, SPF, reverse DNS or the MX of the sender's domain.
	"5.7.20": true, "5.7.21": true, "5.7.22": true, "5.7.23": true,
	"5.7.24": true, "5.7.25": true, "5.7.26": true, "5.7.27": true,
	"5.7.57": true, "5.7.60": true, // Exchange: not authenticated, may not send as this sender
}

// mark gives a refusal its class. utf8 tells that MAIL asked for SMTPUTF8.
func (p *Provider) mark(at stage, reply *ReplyError, utf8 bool) error {
	switch reply.severity() {
	case 4:
		if at.inMessage() && p.cfg.RetryDelay > 0 {
			return notifyq.RetryAfter(reply, p.cfg.RetryDelay)
		}
		return reply
	case 5:
		if isMisconfiguration(at, reply, utf8) {
			return notifyq.Misconfigured(reply)
		}
		return notifyq.Permanent(reply)
	default:
		if at == stageDot {
			return notifyq.Ambiguous(reply)
		}
		return reply
	}
}

func isMisconfiguration(at stage, reply *ReplyError, utf8 bool) bool {
	if !at.inMessage() {
		return true
	}
	// MAIL names only the configured sender, unless the recipient made it ask for SMTPUTF8.
	if at == stageMAIL && !utf8 {
		return true
	}
	switch reply.Code {
	case 530, 534, 535, 538:
		return true
	}
	return misconfigurations[reply.EnhancedCode]
}
