package smtp

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	gosmtp "github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func requireClass(t *testing.T, class string, err error) {
	t.Helper()
	got := "sent"
	switch {
	case err == nil:
	case notifyq.IsPermanent(err):
		got = "permanent"
	case notifyq.IsAmbiguous(err):
		got = "ambiguous"
	case notifyq.IsMisconfigured(err):
		got = "misconfigured"
	case notifyq.IsTransient(err):
		got = "transient"
	}
	require.Equal(t, class, got, "%v", err)
}

func TestReplyDecidesOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ step, reply, class string }{
		{"connect", "421 4.3.2 shutting down", "transient"},
		{"connect", "554 5.7.1 your host is blocked", "misconfigured"},
		{"EHLO", "421 try later", "transient"},
		{"EHLO", "550 5.7.1 not you", "misconfigured"},
		{"MAIL", "421 closing", "transient"},
		{"MAIL", "451 4.3.0 local error", "transient"},
		{"MAIL", "452 4.3.1 no space", "transient"},
		{"MAIL", "550 sender rejected", "misconfigured"},
		{"MAIL", "530 5.7.0 authentication required", "misconfigured"},
		{"MAIL", "553 5.1.8 no such sender domain", "misconfigured"},
		{"MAIL", "550 4.1.8 sender domain not resolved now", "transient"},
		{"RCPT", "421 4.7.0 too many connections", "transient"},
		{"RCPT", "450 4.2.0 greylisted", "transient"},
		{"RCPT", "450 mailbox busy", "transient"},
		{"RCPT", "451 4.7.1 greylisted", "transient"},
		{"RCPT", "452 4.2.2 mailbox full", "transient"},
		{"RCPT", "454 4.7.1 relay access denied", "transient"},
		{"RCPT", "450 5.1.1 no such user", "permanent"},
		{"RCPT", "550 4.2.1 mailbox disabled for now", "transient"},
		{"RCPT", "550 5.1.1 no such user", "permanent"},
		{"RCPT", "550 no such user", "permanent"},
		{"RCPT", "550 2.1.5 nonsense", "permanent"},
		{"RCPT", "550-5.1.1 no such\r\n550 5.1.1 user", "permanent"},
		{"RCPT", "501 5.1.3 bad syntax", "permanent"},
		{"RCPT", "553 5.1.3 bad syntax", "permanent"},
		{"RCPT", "554 5.7.1 relay access denied", "permanent"},
		{"RCPT", "530 5.7.0 authentication required", "misconfigured"},
		{"RCPT", "530 authentication required", "misconfigured"},
		{"RCPT", "535 authentication failed", "misconfigured"},
		{"RCPT", "538 encryption required", "misconfigured"},
		{"RCPT", "550 5.1.8 sender domain not found", "misconfigured"},
		{"RCPT", "550 5.7.8 credentials", "misconfigured"},
		{"RCPT", "550 5.4.5 daily limit", "misconfigured"},
		{"DATA", "451 4.3.0 local error", "transient"},
		{"DATA", "554 5.5.1 no valid recipients", "permanent"},
		{"DATA", "530 5.7.57 not authenticated", "misconfigured"},
		{".", "451 4.3.0 queue write error", "transient"},
		{".", "421 4.3.2 shutting down", "transient"},
		{".", "552 5.3.4 too big", "permanent"},
		{".", "554 5.6.0 content rejected", "permanent"},
		{".", "554 4.7.1 rejected for now", "transient"},
		{".", "550 5.7.26 unauthenticated sender", "misconfigured"},
		{".", "550 5.7.60 may not send as this sender", "misconfigured"},
		{".", "250 ", "sent"},
		{".", "250", "ambiguous"}, // the reader below wants the space
		{".", "250-2.0.0 ok\r\n250 queued", "sent"},
		{".", "251 will forward", "sent"},
		{".", "354 what?", "ambiguous"},
		{".", "ok thanks", "ambiguous"},
		{".", "\x00\xff", "ambiguous"},
		{"RCPT", "what?", "transient"},
		{"RCPT", "354 what?", "transient"},
		{"QUIT", "500 what?", "sent"},
		{"QUIT", "what?", "sent"},
	} {
		t.Run(c.step+" "+c.reply, func(t *testing.T) {
			t.Parallel()
			replies := map[string]string{c.step: c.reply}
			if c.step == "EHLO" {
				replies["HELO"] = c.reply
			}
			s := (&script{replies: replies}).start(t)
			_, err := newProvider(t, s.config()).Deliver(t.Context(), delivery(t))
			requireClass(t, c.class, err)
			if c.step != "." && c.step != "QUIT" {
				require.Empty(t, s.received())
			}
			if strings.HasPrefix(c.reply, "5") && c.step != "QUIT" {
				var reply *ReplyError
				require.ErrorAs(t, err, &reply)
				require.Equal(t, c.reply[:3], strconv.Itoa(reply.Code))
			}
		})
	}
}

func TestReplyErrorTellsCodeAndText(t *testing.T) {
	t.Parallel()
	s := (&script{replies: map[string]string{
		"EHLO": "250-script\r\n250 AUTH PLAIN LOGIN",
		"AUTH": "235 ok",
		"RCPT": "550-5.1.1 <U@Example.test> does not\r\n550 exist, said hunter2!secret",
	}}).start(t)
	cfg := s.config()
	cfg.Username, cfg.Password = testUser, testPassword
	_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
	var reply *ReplyError
	require.ErrorAs(t, err, &reply)
	require.Equal(t, ReplyError{
		Stage: "RCPT", Code: 550, EnhancedCode: "5.1.1",
		Text: "<[recipient]> does not exist, said [password]",
	}, *reply)
	require.Equal(t, "smtp: RCPT: 550 5.1.1 <[recipient]> does not exist, said [password]", err.Error())
}

func TestRetryDelayAfterDeferral(t *testing.T) {
	t.Parallel()
	s := (&script{replies: map[string]string{"RCPT": "451 4.7.1 greylisted"}}).start(t)
	cfg := s.config()
	_, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
	_, asked := notifyq.RetryDelay(err)
	require.False(t, asked)

	cfg.RetryDelay = 5 * time.Minute
	_, err = newProvider(t, cfg).Deliver(t.Context(), delivery(t))
	requireClass(t, "transient", err)
	after, _ := notifyq.RetryDelay(err)
	require.Equal(t, 5*time.Minute, after)
}

// The steps of a dialogue, and what a connection lost there means.
var steps = []struct{ step, class string }{
	{"connect", "transient"},
	{"EHLO", "transient"},
	{"MAIL", "transient"},
	{"RCPT", "transient"},
	{"DATA", "transient"},
	{"content", "transient"},
	{".", "ambiguous"},
	{"QUIT", "sent"},
}

// atStep is a provider for a script and a delivery that gets stuck at the step: where nobody reads the content, it must
// not fit the buffers between client and server.
func atStep(t *testing.T, step string, cfg Config) (*Provider, notifyq.Delivery) {
	p := newProvider(t, cfg)
	if step != "content" {
		return p, delivery(t)
	}
	dial := p.dial
	p.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return c, c.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return p, delivery(t, "subject", "large", "text", strings.Repeat("0123456789abcdef\n", 1<<16))
}

func TestServerHangsUntilContextEnds(t *testing.T) {
	t.Parallel()
	for _, c := range steps {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			s := (&script{hangAt: c.step}).start(t)
			p, d := atStep(t, c.step, s.config())
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			_, err := p.Deliver(ctx, d)
			require.Less(t, time.Since(start), 3*time.Second)
			requireClass(t, c.class, err)
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		})
	}
}

func TestCancelReturnsAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range steps {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			s := (&script{hangAt: c.step}).start(t)
			p, d := atStep(t, c.step, s.config())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var cancelled time.Time
			waiting := make(chan struct{})
			go func() {
				defer close(waiting)
				<-s.hung
				cancelled = time.Now()
				cancel()
			}()
			_, err := p.Deliver(ctx, d)
			<-waiting
			require.Less(t, time.Since(cancelled), 500*time.Millisecond)
			requireClass(t, c.class, err)
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
		})
	}
}

func TestOwnTimeouts(t *testing.T) {
	t.Parallel()
	for _, c := range steps[:len(steps)-1] {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			s := (&script{hangAt: c.step}).start(t)
			cfg := s.config()
			switch c.step {
			case "connect", "EHLO":
				cfg.ConnectTimeout = 300 * time.Millisecond
			case "MAIL", "RCPT", "DATA":
				cfg.CommandTimeout = 300 * time.Millisecond
			default:
				cfg.DataTimeout = 300 * time.Millisecond
			}
			p, d := atStep(t, c.step, cfg)
			_, err := p.Deliver(t.Context(), d)
			requireClass(t, c.class, err)
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			require.True(t, timeout.Timeout())
		})
	}
}

func TestServerClosesConnection(t *testing.T) {
	t.Parallel()
	for _, c := range steps {
		t.Run(c.step, func(t *testing.T) {
			t.Parallel()
			s := (&script{closeAt: c.step}).start(t)
			p, d := atStep(t, c.step, s.config())
			_, err := p.Deliver(t.Context(), d)
			requireClass(t, c.class, err)
			if c.step == "." {
				require.Len(t, s.received(), 1, "the server had it all")
			}
		})
	}
}

// cutConn fails in the write that holds the dot, after handing on some of it.
type cutConn struct {
	net.Conn
	keep int // bytes of the dot's line that still go out
}

func (c *cutConn) Write(p []byte) (int, error) {
	if !strings.HasSuffix(string(p), "\r\n.\r\n") {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:len(p)-5+c.keep])
	_ = c.Conn.Close()
	return n, errors.New("cut")
}

func TestConnectionCutWithinTheDotIsNotAmbiguous(t *testing.T) {
	t.Parallel()
	for keep := range 5 {
		s := (&script{}).start(t)
		p := newProvider(t, s.config())
		dial := p.dial
		p.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return &cutConn{Conn: c, keep: keep}, err
		}
		_, err := p.Deliver(t.Context(), delivery(t))
		requireClass(t, "transient", err)
		require.ErrorContains(t, err, "end of message")
		require.Empty(t, s.received())
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	port := ln.Addr().(*net.TCPAddr).Port
	require.NoError(t, ln.Close())

	_, err := newProvider(t, Config{Host: "127.0.0.1", Port: port, From: testFrom}).Deliver(t.Context(), delivery(t))
	requireClass(t, "transient", err)
	require.ErrorContains(t, err, "smtp: connect: ")

	p := newProvider(t, Config{Host: "mail.invalid", From: testFrom})
	p.dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "mail.invalid", IsNotFound: true}
	}
	_, err = p.Deliver(t.Context(), delivery(t))
	requireClass(t, "transient", err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = newProvider(t, Config{Host: "127.0.0.1", Port: port, From: testFrom}).Deliver(ctx, delivery(t))
	requireClass(t, "transient", err)
	require.ErrorIs(t, err, context.Canceled)
}

func TestEndlessReplyIsCutOff(t *testing.T) {
	t.Parallel()
	s := (&script{replies: map[string]string{
		"EHLO": strings.Repeat("250-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n", 1<<16) + "250 ok",
	}}).start(t)
	_, err := newProvider(t, s.config()).Deliver(t.Context(), delivery(t))
	requireClass(t, "transient", err)
	require.ErrorContains(t, err, "1 MiB")
}

func TestRealServerRefusals(t *testing.T) {
	t.Parallel()
	refuse := func(code int, enhanced gosmtp.EnhancedCode) error {
		return &gosmtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: "refused"}
	}
	for name, c := range map[string]struct {
		configure func(*server)
		class     string
	}{
		"MAIL": {func(s *server) {
			s.onMail = func(string) error { return refuse(550, gosmtp.EnhancedCode{5, 7, 1}) }
		}, "misconfigured"},
		"RCPT": {func(s *server) {
			s.onRcpt = func(string) error { return refuse(550, gosmtp.EnhancedCode{5, 1, 1}) }
		}, "permanent"},
		"RCPT later": {func(s *server) {
			s.onRcpt = func(string) error { return refuse(451, gosmtp.EnhancedCode{4, 7, 1}) }
		}, "transient"},
		"message": {func(s *server) {
			s.onData = func() error { return refuse(554, gosmtp.EnhancedCode{5, 6, 0}) }
		}, "permanent"},
		"message later": {func(s *server) {
			s.onData = func() error { return refuse(452, gosmtp.EnhancedCode{4, 3, 1}) }
		}, "transient"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, func(s *server, _ *gosmtp.Server) { c.configure(s) })
			_, err := newProvider(t, s.config()).Deliver(t.Context(), delivery(t))
			requireClass(t, c.class, err)
			require.Empty(t, s.all())
		})
	}
	s := startServer(t, func(_ *server, srv *gosmtp.Server) { srv.MaxMessageBytes = 1000 })
	_, err := newProvider(t, s.config()).Deliver(t.Context(), delivery(t, "subject", "s", "text", strings.Repeat("x", 2000)))
	requireClass(t, "permanent", err)
}
