package smtp

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	gosmtp "github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestStartTLSAndAuthentication(t *testing.T) {
	t.Parallel()
	var trust *tls.Config
	s := startServer(t, func(_ *server, srv *gosmtp.Server) {
		trust = withTLS(t, srv)
		srv.AllowInsecureAuth = false
	})
	cfg := s.config()
	cfg.TLS, cfg.TLSConfig, cfg.Username, cfg.Password = TLSStartTLS, trust, testUser, testPassword
	_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
	require.NoError(t, err)
	got := s.only(t)
	require.True(t, got.tls)
	require.Equal(t, testUser, got.user)
}

func TestImplicitTLS(t *testing.T) {
	t.Parallel()
	var trust *tls.Config
	s := startServer(t, func(_ *server, srv *gosmtp.Server) {
		trust = withTLS(t, srv)
		srv.Addr = "implicit"
	})
	cfg := s.config()
	cfg.TLS, cfg.TLSConfig, cfg.Username, cfg.Password = TLSImplicit, trust, testUser, testPassword
	_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
	require.NoError(t, err)
	require.True(t, s.only(t).tls)

	// Ambiguous works through TLS too, where a lost connection looks different.
	s.onData = func() error { panic("gone") } // go-smtp answers 421 and closes
	_, err = newProvider(t, cfg).Deliver(t.Context(), delivery(t))
	requireClass(t, "transient", err)
	require.Len(t, s.all(), 1)
}

func TestConnectionLostUnderTLS(t *testing.T) {
	t.Parallel()
	certificate, roots := newCertificate(t)
	for _, c := range []struct{ step, class string }{
		{"connect", "transient"}, {"MAIL", "transient"}, {"DATA", "transient"}, {".", "ambiguous"}, {"QUIT", "sent"},
	} {
		s := (&script{closeAt: c.step}).start(t)
		front := tlsFront(t, s, certificate)
		cfg := s.config()
		cfg.Port, cfg.TLS, cfg.TLSConfig = front, TLSImplicit, &tls.Config{RootCAs: roots}
		_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
		requireClass(t, c.class, err)
	}
	// The dot is inside a record that was cut: nobody can have read it.
	s := (&script{}).start(t)
	cfg := s.config()
	cfg.Port, cfg.TLS, cfg.TLSConfig = tlsFront(t, s, certificate), TLSImplicit, &tls.Config{RootCAs: roots}
	p := newProvider(t, cfg)
	dial := p.dial
	p.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &cutRecord{Conn: c}, err
	}
	_, err := p.Deliver(t.Context(), delivery(t))
	requireClass(t, "transient", err)
	require.Empty(t, s.received())
}

// cutRecord fails one byte before the end of the first record that is as long as a message.
type cutRecord struct{ net.Conn }

func (c *cutRecord) Write(p []byte) (int, error) {
	if p[0] != 23 || len(p) < 200 {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:len(p)-1])
	_ = c.Conn.Close()
	return n, net.ErrClosed
}

// tlsFront puts TLS before a script and returns its port.
func tlsFront(t *testing.T, s *script, certificate tls.Certificate) int {
	t.Helper()
	ln := tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{certificate}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.talk(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
	return ln.Addr().(*net.TCPAddr).Port
}

func TestNothingInClearWithoutStartTLS(t *testing.T) {
	t.Parallel()
	s := (&script{replies: map[string]string{"EHLO": "250-script\r\n250 AUTH PLAIN LOGIN"}}).start(t)
	cfg := s.config()
	cfg.TLS, cfg.Username, cfg.Password = TLSStartTLS, testUser, testPassword
	_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
	requireClass(t, "misconfigured", err)
	require.ErrorContains(t, err, "STARTTLS")
	require.Equal(t, []string{"EHLO", "QUIT"}, s.verbs())
}

func TestStartTLSFailures(t *testing.T) {
	t.Parallel()
	offer := "250-script\r\n250 STARTTLS"
	for _, c := range []struct {
		reply, class string
	}{
		{"454 4.7.0 TLS not available", "transient"},
		{"554 5.7.3 no TLS today", "misconfigured"},
		{"220 go\r\n250 injected", "transient"}, // not a handshake
	} {
		s := (&script{replies: map[string]string{"EHLO": offer, "STARTTLS": c.reply}}).start(t)
		cfg := s.config()
		cfg.TLS, cfg.ConnectTimeout = TLSStartTLS, 500*time.Millisecond
		_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
		requireClass(t, c.class, err)
		for _, line := range s.commands() {
			require.NotContains(t, line, "MAIL")
		}
	}

	s := (&script{hangAt: "TLS", replies: map[string]string{"EHLO": offer, "STARTTLS": "220 go"}}).start(t)
	cfg := s.config()
	cfg.TLS = TLSStartTLS
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := newProvider(t, cfg).Deliver(ctx, delivery(t))
	requireClass(t, "transient", err)
	require.Less(t, time.Since(start), 2*time.Second)
}

func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	for _, mode := range []TLSMode{TLSStartTLS, TLSImplicit} {
		s := startServer(t, func(_ *server, srv *gosmtp.Server) {
			withTLS(t, srv)
			if mode == TLSImplicit {
				srv.Addr = "implicit"
			}
		})
		cfg := s.config()
		cfg.TLS, cfg.Username, cfg.Password = mode, testUser, testPassword
		_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
		requireClass(t, "misconfigured", err)
		require.Empty(t, s.all())
	}
}

func TestAuthenticationFailures(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	cfg := s.config()
	cfg.Username, cfg.Password = testUser, "wrong-password"
	_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
	requireClass(t, "misconfigured", err)
	require.ErrorContains(t, err, "smtp: AUTH: 535 5.7.8")
	require.Empty(t, s.all())

	plain := base64.StdEncoding.EncodeToString([]byte("\x00" + testUser + "\x00" + testPassword))
	for _, c := range []struct{ offered, reply, class string }{
		{"AUTH PLAIN LOGIN", "535 5.7.8 wrong: " + testPassword + " " + plain, "misconfigured"},
		{"AUTH PLAIN", "534 5.7.9 mechanism too weak", "misconfigured"},
		{"AUTH PLAIN", "454 4.7.0 temporary failure", "transient"},
		{"AUTH PLAIN", "535 4.7.0 temporary failure", "transient"},
		{"AUTH PLAIN", testPassword + " " + plain, "transient"}, // no reply at all
		{"AUTH CRAM-MD5", "", "misconfigured"},
		{"8BITMIME", "", "misconfigured"},
	} {
		s := (&script{replies: map[string]string{"EHLO": "250-script\r\n250 " + c.offered, "AUTH": c.reply}}).start(t)
		cfg := s.config()
		cfg.Username, cfg.Password = testUser, testPassword
		_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
		requireClass(t, c.class, err)
		require.NotContains(t, err.Error(), testPassword)
		require.NotContains(t, err.Error(), plain)
		require.NotContains(t, s.verbs(), "MAIL")
	}
}

func TestAuthLogin(t *testing.T) {
	t.Parallel()
	b64 := base64.StdEncoding.EncodeToString
	s := (&script{replies: map[string]string{
		"EHLO":                                 "250-script\r\n250 AUTH LOGIN XOAUTH2",
		"AUTH":                                 "334 " + b64([]byte("Username:")),
		strings.ToUpper(b64([]byte(testUser))): "334 " + b64([]byte("Password:")),
		strings.ToUpper(b64([]byte(testPassword))): "235 2.7.0 welcome",
	}}).start(t)
	cfg := s.config()
	cfg.Username, cfg.Password = testUser, testPassword
	_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
	require.NoError(t, err)
	require.Contains(t, s.commands(), b64([]byte(testPassword)))
}

func TestInjectionIsRefusedBeforeConnecting(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	p := newProvider(t, s.config())
	for _, recipient := range []string{
		"u@example.test\r\nBcc: v@example.test", "u@example.test>\r\nDATA\r\n", "u@example.test\u0085x",
		"u@example.test\u2028x", "u@example.test\n", "u\r\n@example.test", "u\x00@example.test", "u\u202e@example.test",
		"u@example.test> ORCPT=x", `"a> ORCPT=x"@example.test`, `"u"@example.test`, `"a b"@example.test`, "<u@example.test>",
		"Bob <u@example.test>", "u@example.test,v@example.test", "u@example.test v@example.test", "u@v@example.test",
		"u@[127.0.0.1]", "u@example.test (comment)", " u@example.test", "u@example.test ", "u@example..test", "u@.example.test",
		"u@example.test.", ".u@example.test", "u.@example.test", "u..v@example.test", "u@-example.test", "u@exa_mple.test",
		"u@", "@example.test", "u", "", "u\u200b@example.test", "u@exam\u200bple.test", "u\xff@example.test", "u\ufffd\x80@example.test",
		strings.Repeat("u", 65) + "@example.test", "u@" + strings.Repeat("a", 64) + ".test",
		"u@" + strings.Repeat("abcdefgh.", 28) + "test",
	} {
		d := delivery(t)
		d.Recipient = recipient
		_, err := p.Deliver(t.Context(), d)
		requireClass(t, "permanent", err)
		require.ErrorContains(t, err, "smtp: recipient ")
		require.Less(t, len(err.Error()), 120, "and does not quote it")

		if recipient != "" {
			_, err = p.Deliver(t.Context(), delivery(t, "subject", "s", "text", "t", "replyTo", recipient))
			requireClass(t, "permanent", err)
		}
	}
	for _, subject := range []string{
		"a\r\nX: y", "a\rb", "a\nb", "a\x00b", "a\x7fb", "a\tb", "a\u0085b", "a\u2028b", "a\u2029b", "a\u009bb", "", " ",
		strings.Repeat("x", 1001),
	} {
		_, err := p.Deliver(t.Context(), delivery(t, "subject", subject, "text", "x"))
		requireClass(t, "permanent", err)
		require.ErrorContains(t, err, "subject")
	}
	d := delivery(t)
	d.Key = uuid.Nil
	_, err := p.Deliver(t.Context(), d)
	requireClass(t, "permanent", err)
	require.Zero(t, s.sessionCount())
}

func TestBadPayloadIsRefusedBeforeConnecting(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	p := newProvider(t, s.config())
	for _, raw := range []string{
		"", "null", "[]", `"x"`, "1", "{", `{"subject":"s","text":"t"`, `{"subject":"s","text":"t"} x`, `{"subject":"s","text":"t"}{}`,
		`{"subject":"s"}`, `{"text":"t"}`, `{"subject":"s","text":""}`, `{"subject":null,"text":"t"}`, `{"Subject":"s","text":"t"}`,
		`{"subject":1,"text":"t"}`, `{"subject":"s","text":["t"]}`, `{"subject":"s","html":{}}`, `{"subject":"s","text":"t","replyTo":1}`,
		`{"subject":"s","text":"t","body":"t"}`, `{"subject":"s","subject":"s","text":"t"}`, `{"subject":"s","text":"t","x":1,"x":2}`,
		`{"subject":"a\r\nX: y","body":".\r\nMAIL FROM:<x>"}`, `{"subject":"a\u2028b","text":"t"}`,
	} {
		d := delivery(t)
		d.Payload = json.RawMessage(raw)
		_, err := p.Deliver(t.Context(), d)
		requireClass(t, "permanent", err)
	}
	require.Zero(t, s.sessionCount())

	d := delivery(t)
	d.Payload = json.RawMessage(` {"subject":"s","body":"t","html":null,"text":"","x":{"y":[1,{}]},"SUBJECT":7}` + "\n")
	_, err := p.Deliver(t.Context(), d)
	require.NoError(t, err, "members of others are ignored")
	require.Equal(t, "t", strings.TrimSpace(s.only(t).parse(t).text))
}

func TestNothingPrintsThePassword(t *testing.T) {
	t.Parallel()
	cfg := Config{Host: "mail.example.com", Username: testUser, Password: testPassword, From: testFrom}
	p := newProvider(t, cfg)
	var logged strings.Builder
	logger := slog.New(slog.NewJSONHandler(&logged, nil))
	logger.Info("x", "config", cfg, "provider", p)
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "config", &cfg, "provider", p)
	texts := []string{logged.String(), cfg.String(), p.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
		texts = append(texts, fmt.Sprintf(verb, cfg), fmt.Sprintf(verb, &cfg), fmt.Sprintf(verb, p), fmt.Sprintf(verb, *p))
	}
	for _, text := range texts {
		require.NotContains(t, text, testPassword)
		require.NotContains(t, text, fmt.Sprintf("%x", testPassword))
	}
	require.Equal(t, "smtp://mail.example.com:587?tls=starttls", p.String())
}
