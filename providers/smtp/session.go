package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"

	"github.com/notifyq/notifyq"
)

// quitTimeout bounds the farewell. Whatever comes of it, the message's fate is known by then.
const quitTimeout = time.Second

var (
	errNoStartTLS = errors.New("the server does not offer STARTTLS; to send in clear, set TLS to none")
	errNoAuth     = errors.New("the server offers neither AUTH PLAIN nor AUTH LOGIN")
	errNoSMTPUTF8 = errors.New("an address needs SMTPUTF8, which the server does not offer")
)

// session is one connection for one message.
//
// It drives go-mail's protocol client step by step, instead of its Send. Send replaces the deadline of the context by
// its own, can't tell a connection lost before the dot from one lost after it, reports an accepted message as failed
// when the RSET behind it fails, and says QUIT after a failure to render, which makes the writer below it end the half
// message with a dot first.
type session struct {
	p      *Provider
	msg    *message
	conn   *conn
	client *smtp.Client
	at     stage
	asked  bool // the dot was handed to the network
}

// send takes a message to the server. The error has its class.
func (p *Provider) send(ctx context.Context, msg *message) error {
	s := &session{p: p, msg: msg, at: stageConnect}
	dialCtx, cancel := context.WithTimeout(ctx, p.cfg.ConnectTimeout)
	defer cancel()
	raw, err := p.dial(dialCtx, "tcp", p.cfg.addr())
	if err != nil {
		return s.failure(ctx, err)
	}
	s.conn = newConn(raw)
	// Closing is final: no later deadline of ours can revive the connection, as one set in a race could.
	closeConn := func() { _ = raw.Close() }
	defer closeConn()
	defer context.AfterFunc(ctx, closeConn)()

	err = s.within(p.cfg.ConnectTimeout, func() error { return s.open(dialCtx) })
	if err == nil {
		err = s.transfer()
	}
	var failure error
	if err != nil {
		failure = s.failure(ctx, err)
	}
	if err == nil || inStep(err) {
		s.quit()
	}
	return failure
}

// open goes as far as MAIL may be said.
func (s *session) open(ctx context.Context) error {
	var stream net.Conn = s.conn
	if s.p.cfg.TLS == TLSImplicit {
		s.at = stageTLS
		secured := tls.Client(s.conn, s.p.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return err
		}
		stream = secured
	}
	s.at = stageGreeting
	client, err := smtp.NewClient(stream, s.p.cfg.Host)
	if err != nil {
		return err
	}
	s.client = client
	s.at = stageEHLO
	if err := s.client.Hello(s.p.helo); err != nil {
		return err
	}
	if s.p.cfg.TLS == TLSStartTLS {
		s.at = stageSTARTTLS
		if offered, _ := s.client.Extension("STARTTLS"); !offered {
			return notifyq.Misconfigured(errNoStartTLS)
		}
		if err := s.client.StartTLS(s.p.tls); err != nil {
			return err
		}
	}
	return s.authenticate()
}

func (s *session) authenticate() error {
	if s.p.cfg.Username == "" {
		return nil
	}
	s.at = stageAUTH
	_, offered := s.client.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	for _, mechanism := range []string{"PLAIN", "LOGIN"} {
		if slices.Contains(mechanisms, mechanism) {
			return s.client.Auth(s.p.auth(mechanism))
		}
	}
	return notifyq.Misconfigured(errNoAuth)
}

// transfer hands the message over. It returns nil once the server has accepted it.
func (s *session) transfer() error {
	// go-mail asks for SMTPUTF8 whenever it is offered. A relay then can't pass the message on to a server without it.
	s.client.SkipSMTPUTF8(!s.msg.utf8)
	s.at = stageMAIL
	if offered, _ := s.client.Extension("SMTPUTF8"); s.msg.utf8 && !offered {
		return notifyq.Permanent(errNoSMTPUTF8)
	}
	limit := s.p.cfg.CommandTimeout
	err := s.within(limit, func() error { return s.client.Mail("<" + s.p.from.Address + ">") })
	if err != nil {
		return err
	}
	s.at = stageRCPT
	err = s.within(limit, func() error { return s.client.Rcpt("<" + s.msg.recipient.wire + ">") })
	if err != nil {
		return err
	}
	s.at = stageDATA
	var writer io.WriteCloser
	err = s.within(limit, func() (err error) { writer, err = s.client.Data(); return err })
	if err != nil {
		return err
	}
	s.at = stageContent
	return s.within(s.p.cfg.DataTimeout, func() error { return s.write(writer) })
}

// write sends the content and the dot, and reads the reply.
func (s *session) write(writer io.WriteCloser) error {
	if _, err := writer.Write(s.msg.content); err != nil {
		return err
	}
	s.at = stageDot
	before := s.conn.written
	err := writer.Close() // tells only what came of the reply, so the connection is asked about the dot
	s.asked = !s.conn.broken && s.conn.written > before
	if reply := new(textproto.Error); errors.As(err, &reply) && reply.Code/100 == 2 {
		return nil // 250 is expected, but the first digit is what counts (RFC 5321, section 4.3.2)
	}
	return err
}

func (s *session) within(limit time.Duration, command func() error) error {
	if err := s.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	return command()
}

// quit says goodbye. A failure is of no interest.
func (s *session) quit() {
	if s.client != nil && s.client.HasConnection() {
		_ = s.within(quitTimeout, s.client.Quit)
	}
}

// inStep tells that client and server wait for each other's next word: the server's last was a reply, or we stopped by
// ourselves. After any other error a QUIT could end up inside the message.
func inStep(err error) bool {
	var reply *textproto.Error
	return errors.As(err, &reply) || notifyq.IsMisconfigured(err) || notifyq.IsPermanent(err)
}

// failure gives an error of the dialogue its class and its text.
func (s *session) failure(ctx context.Context, err error) error {
	if reply := replyError(s.at, err, s.clean); reply != nil {
		return s.p.mark(s.at, reply, s.msg.utf8)
	}
	var certificate *tls.CertificateVerificationError
	switch {
	case notifyq.IsMisconfigured(err) || errors.As(err, &certificate):
		return notifyq.Misconfigured(s.described(err))
	case notifyq.IsPermanent(err):
		return notifyq.Permanent(s.described(err))
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx) // rather than "use of closed network connection"
	}
	if s.asked {
		return notifyq.Ambiguous(s.described(err))
	}
	return s.described(err)
}

// described adds the stage. An error that quotes what must not be kept is replaced by its cleaned text.
func (s *session) described(err error) error {
	err = fmt.Errorf("smtp: %s: %w", s.at, err)
	if text := s.clean(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// clean takes the password and the recipient out of a text that is going to be kept with the job.
func (s *session) clean(text string) string {
	text = s.p.conceal(text)
	for _, address := range []string{s.msg.given, s.msg.recipient.wire} {
		text = regexp.MustCompile(`(?i)`+regexp.QuoteMeta(address)).ReplaceAllLiteralString(text, "[recipient]")
	}
	return text
}
