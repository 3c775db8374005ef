package smtp

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/mail"
	"strings"

	"github.com/wneessen/go-mail/smtp"

	"github.com/notifyq/notifyq"
)

// Provider sends email. It is safe for concurrent use and holds nothing open between calls.
type Provider struct {
	cfg      Config // with defaults filled in, without the password
	from     mail.Address
	idDomain string
	helo     string
	tls      *tls.Config                      // nil for none
	auth     func(mechanism string) smtp.Auth // knows the password
	conceal  func(string) string              // takes the password out of a text
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
}

var _ notifyq.Provider = (*Provider)(nil)

// New checks the configuration and connects to nothing. The error for a bad field is a *notifyq.InvalidError, which
// names it and never shows its value.
func New(cfg Config) (*Provider, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	from, err := cfg.sender()
	if err != nil {
		return nil, err
	}
	_, domain, _ := strings.Cut(from.Address, "@")
	p := &Provider{cfg: cfg, from: from, tls: cfg.tlsConfig(), dial: (&net.Dialer{}).DialContext}
	if p.idDomain, err = domainOr("MessageIDDomain", cfg.MessageIDDomain, domain); err != nil {
		return nil, err
	}
	if p.helo, err = domainOr("HELO", cfg.HELO, domain); err != nil {
		return nil, err
	}
	p.cfg.TLS = cfg.mode()
	p.cfg.ConnectTimeout = durationOr(cfg.ConnectTimeout, DefaultConnectTimeout)
	p.cfg.CommandTimeout = durationOr(cfg.CommandTimeout, DefaultCommandTimeout)
	p.cfg.DataTimeout = durationOr(cfg.DataTimeout, DefaultDataTimeout)
	// Only these two know the password from here on, and functions print as addresses.
	p.auth, p.conceal = authOf(cfg), concealerOf(cfg)
	p.cfg.Password = ""
	return p, nil
}

// Deliver sends one email to one recipient and returns its Message-ID as the ProviderID. The package comment has the
// payload and the outcomes. A refusal by the server comes as a *ReplyError inside the error.
func (p *Provider) Deliver(ctx context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	msg, err := p.compose(d)
	if err != nil {
		return notifyq.Receipt{}, notifyq.Permanent(fmt.Errorf("smtp: %w", err))
	}
	if err := p.send(ctx, msg); err != nil {
		return notifyq.Receipt{}, err
	}
	return notifyq.Receipt{ProviderID: msg.id}, nil
}

// String is the server without user and password.
func (p *Provider) String() string { return p.cfg.String() }

// authOf makes the answers to AUTH: PLAIN or LOGIN, or nil. The last argument lets go-mail send a password in clear;
// validate allows that to the machine itself only.
func authOf(cfg Config) func(mechanism string) smtp.Auth {
	return func(mechanism string) smtp.Auth {
		switch mechanism {
		case "PLAIN":
			return smtp.PlainAuth("", cfg.Username, cfg.Password, cfg.Host, true)
		case "LOGIN":
			return smtp.LoginAuth(cfg.Username, cfg.Password, cfg.Host, true)
		default:
			return nil
		}
	}
}

// concealerOf finds the password in each form in which it is given to a server.
func concealerOf(cfg Config) func(string) string {
	if cfg.Password == "" {
		return func(text string) string { return text }
	}
	b64 := base64.StdEncoding.EncodeToString
	var pairs []string
	for _, secret := range []string{
		b64([]byte("\x00" + cfg.Username + "\x00" + cfg.Password)), b64([]byte(cfg.Password)), cfg.Password,
	} {
		pairs = append(pairs, secret, "[password]")
	}
	return strings.NewReplacer(pairs...).Replace
}
