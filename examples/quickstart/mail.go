package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"

	gosmtp "github.com/emersion/go-smtp"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/providers/smtp"
)

// mailing is where mails go: a given server, or one inside this process that makes trouble for some recipients.
type mailing struct {
	provider notifyq.Provider
	server   *gosmtp.Server // nil if it is not ours
	served   chan struct{}

	mu       sync.Mutex
	seen     map[string]int
	repaired bool
}

func openMail(ctx context.Context, url string) (*mailing, error) {
	m := &mailing{seen: make(map[string]int), served: make(chan struct{})}
	if url == "" {
		address, err := m.serve(ctx)
		if err != nil {
			return nil, err
		}
		url = "smtp://" + address
	}
	cfg, err := smtp.ParseURL(url)
	if err != nil {
		return nil, err
	}
	cfg.From = "The shop <no-reply@shop.example>"
	m.provider, err = smtp.New(cfg)
	return m, err
}

func (m *mailing) ours() bool { return m.server != nil }

// serve starts the SMTP server on a free port of this machine.
func (m *mailing) serve(ctx context.Context) (address string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	m.server = gosmtp.NewServer(gosmtp.BackendFunc(func(*gosmtp.Conn) (gosmtp.Session, error) { return &session{mailing: m}, nil }))
	m.server.Domain = "mail.shop.example"
	m.server.ErrorLog = log.New(io.Discard, "", 0) // clients that hang up are no news
	go func() {
		defer close(m.served)
		_ = m.server.Serve(listener)
	}()
	return listener.Addr().String(), nil
}

func (m *mailing) close() {
	if m.server != nil {
		_ = m.server.Close()
		<-m.served
	}
}

// repair ends the outage.
func (m *mailing) repair() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.repaired = true
}

// answer is what the server says to a recipient.
func (m *mailing) answer(to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[to]++
	switch {
	case to == "flaky@example.test" && m.seen[to] == 1:
		return &gosmtp.SMTPError{Code: 451, EnhancedCode: gosmtp.EnhancedCode{4, 3, 0}, Message: "try again later"}
	case to == "nobody@example.test":
		return &gosmtp.SMTPError{Code: 550, EnhancedCode: gosmtp.EnhancedCode{5, 1, 1}, Message: "no such user here"}
	case to == "outage@example.test" && !m.repaired:
		return &gosmtp.SMTPError{Code: 421, EnhancedCode: gosmtp.EnhancedCode{4, 3, 2}, Message: "service not available"}
	}
	return nil
}

// session is one connection to our server.
type session struct {
	mailing *mailing
	rcpt    bool
}

func (s *session) Mail(string, *gosmtp.MailOptions) error { return nil }

func (s *session) Rcpt(to string, _ *gosmtp.RcptOptions) error {
	s.rcpt = true
	return s.mailing.answer(to)
}

func (s *session) Data(r io.Reader) error {
	if !s.rcpt {
		return errors.New("no recipient")
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("read the mail: %w", err)
	}
	return nil
}

func (s *session) Reset() {}

func (s *session) Logout() error { return nil }
