package smtp

import (
	"context"
	"encoding/json"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	gosmtp "github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestMessageArrivesAsWritten(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	p := newProvider(t, s.config())
	d := delivery(t, "subject", "Order 7", "text", "Hello\nWorld", "html", "<p>Hello</p>", "replyTo", "help@shop.example")

	receipt, err := p.Deliver(t.Context(), d)
	require.NoError(t, err)

	got := s.only(t)
	require.Equal(t, "no-reply@shop.example", got.from)
	require.Equal(t, "u@example.test", got.to)
	require.False(t, got.utf8)
	m := got.parse(t)
	id := "<" + d.Key.String() + "@shop.example>"
	require.Equal(t, id, receipt.ProviderID)
	require.Equal(t, id, m.header.Get("Message-ID"))
	require.Contains(t, got.data, "\r\nMessage-ID: "+id+"\r\n", "not folded")
	require.Equal(t, `"Shop" <no-reply@shop.example>`, m.header.Get("From"))
	require.Equal(t, "<u@example.test>", m.header.Get("To"))
	require.Equal(t, "<help@shop.example>", m.header.Get("Reply-To"))
	require.Equal(t, "auto-generated", m.header.Get("Auto-Submitted"))
	require.Equal(t, "Order 7", m.subject)
	require.Equal(t, "Hello\nWorld", strings.TrimSuffix(m.text, "\n"))
	require.Equal(t, "<p>Hello</p>", strings.TrimSuffix(m.html, "\n"))
	date, err := m.header.Date()
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), date, time.Minute)
	for name, values := range m.header {
		require.Len(t, values, 1, "header %s must not repeat", name)
	}
	require.NotContains(t, got.data, "go-mail")
}

func TestMessageIDStaysOverAttempts(t *testing.T) {
	t.Parallel()
	s := (&script{closeAt: "."}).start(t)
	again := startServer(t, nil)
	d := delivery(t)

	_, err := newProvider(t, s.config()).Deliver(t.Context(), d)
	require.Error(t, err)
	d.Attempt = 2
	cfg := again.config()
	_, err = newProvider(t, cfg).Deliver(t.Context(), d)
	require.NoError(t, err)
	d.Attempt = 3
	_, err = newProvider(t, cfg).Deliver(t.Context(), d)
	require.NoError(t, err)

	require.Len(t, s.received(), 1)
	first, err := mail.ReadMessage(strings.NewReader(s.received()[0]))
	require.NoError(t, err)
	all := again.all()
	require.Len(t, all, 2)
	for _, later := range all {
		require.Equal(t, first.Header.Get("Message-ID"), later.parse(t).header.Get("Message-ID"))
	}
	require.Contains(t, first.Header.Get("Message-ID"), d.Key.String())
}

func TestTextSurvives(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	p := newProvider(t, s.config())
	long := strings.Repeat("ä", 300)
	for name, text := range map[string]string{
		"a lone dot":            "before\n.\nafter",
		"a lone dot with CRLF":  "before\r\n.\r\nafter",
		"commands after a dot":  ".\r\nMAIL FROM:<x@y.test>\r\nRCPT TO:<v@y.test>\r\nDATA\r\n",
		"dots":                  ".\n..\n...\n.x\n",
		"smuggling":             "a\n.\r\nb\r.\rc\r\n.\nd",
		"UTF-8":                 "Grüße, 你好, 😀 \u202eabc \u2028\u2029 <a&b> é e\u0301",
		"a line beyond limits":  strings.Repeat("x", 5000),
		"a UTF-8 line beyond":   long,
		"trailing white space":  "a \nb\t\n",
		"NUL":                   "a\x00b",
		"a From at line start":  "From here on",
		"equals signs":          "a=3D=\n=",
		"a boundary look-alike": "--\n--x--\n",
	} {
		for _, member := range []string{"text", "body", "html"} {
			d := delivery(t, "subject", "Grüße 😀 <a&b>", member, text)
			_, err := p.Deliver(t.Context(), d)
			require.NoError(t, err, name)
			all := s.all()
			m := all[len(all)-1].parse(t)
			require.Equal(t, "Grüße 😀 <a&b>", m.subject)
			got := m.text + m.html
			// Carriage returns are line ends in text; mail knows one kind.
			want := strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
			require.Equal(t, strings.TrimSuffix(want, "\n"), strings.TrimSuffix(got, "\n"), "%s as %s", name, member)
		}
	}
	require.Len(t, s.all(), 13*3, "one message each, nothing smuggled")
	for _, m := range s.all() {
		require.Equal(t, "u@example.test", m.to)
	}
}

func TestSubjectSurvives(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	p := newProvider(t, s.config())
	for _, subject := range []string{
		"plain", "Grüße aus Köln", strings.Repeat("你好", 100), strings.Repeat("😀", 60), strings.Repeat("a", 1000),
		strings.Repeat("word ", 150) + "end", "  spaces   kept  ",
		"a" + strings.Repeat(" ", 200) + "b", strings.Repeat("two  spaces ", 30) + "end", "=?UTF-8?Q?not_encoded?=", `"quoted" <a@b>, (c) \d`,
		strings.Repeat("x", 44) + "é" + strings.Repeat("y", 44), "\u202eright to left", "a: b", "=", "?=",
		"e\u0301 " + strings.Repeat("é ", 100) + "!",
	} {
		_, err := p.Deliver(t.Context(), delivery(t, "subject", subject, "text", "x"))
		require.NoError(t, err)
		all := s.all()
		got := all[len(all)-1]
		require.Equal(t, subject, got.parse(t).subject)
		for line := range strings.SplitSeq(got.data, "\r\n") {
			require.LessOrEqual(t, len(line), 78+12)
			if line == "" {
				break
			}
			require.NotEmpty(t, strings.TrimSpace(line), "a line of spaces ends a header for some")
		}
	}
}

func TestInternationalAddresses(t *testing.T) {
	t.Parallel()
	plain := startServer(t, nil)
	utf8 := startServer(t, func(_ *server, srv *gosmtp.Server) { srv.EnableSMTPUTF8 = true })

	d := delivery(t)
	d.Recipient = "jörg@bücher.example"
	_, err := newProvider(t, plain.config()).Deliver(t.Context(), d)
	requireClass(t, "permanent", err)
	require.ErrorContains(t, err, "SMTPUTF8")
	require.Empty(t, plain.all())

	_, err = newProvider(t, utf8.config()).Deliver(t.Context(), d)
	require.NoError(t, err)
	got := utf8.only(t)
	require.Equal(t, "jörg@xn--bcher-kva.example", got.to)
	require.True(t, got.utf8)
	require.Contains(t, got.data, "To: <jörg@xn--bcher-kva.example>\r\n")

	d = delivery(t)
	d.Recipient = "joerg@bücher.example"
	_, err = newProvider(t, plain.config()).Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, "joerg@xn--bcher-kva.example", plain.only(t).to)
	_, err = newProvider(t, utf8.config()).Deliver(t.Context(), d)
	require.NoError(t, err)
	require.False(t, utf8.all()[1].utf8, "SMTPUTF8 is asked for only where it is needed")
}

func TestRefusedSMTPUTF8BlamesTheRecipient(t *testing.T) {
	t.Parallel()
	for reply, class := range map[string]string{
		"553 5.6.7 no such addresses here": "permanent",
		"530 5.7.0 authentication wanted":  "misconfigured",
	} {
		s := (&script{replies: map[string]string{"EHLO": "250-script\r\n250 SMTPUTF8", "MAIL": reply}}).start(t)
		d := delivery(t)
		d.Recipient = "jörg@example.test"
		_, err := newProvider(t, s.config()).Deliver(t.Context(), d)
		requireClass(t, class, err)
	}
}

func TestSenderNameIsEncoded(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	cfg := s.config()
	cfg.From = `"Bücher, \"und\" mehr" <no-reply@bücher.example>`
	cfg.MessageIDDomain = "ids.shop.example"
	p := newProvider(t, cfg)
	d := delivery(t)
	receipt, err := p.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.Equal(t, "<"+d.Key.String()+"@ids.shop.example>", receipt.ProviderID)
	from, err := mail.ParseAddress(s.only(t).parse(t).header.Get("From"))
	require.NoError(t, err)
	require.Equal(t, &mail.Address{Name: `Bücher, "und" mehr`, Address: "no-reply@xn--bcher-kva.example"}, from)
}

func TestLongMessageIDIsNotFolded(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	cfg := s.config()
	cfg.MessageIDDomain = strings.Repeat(strings.Repeat("a", 60)+".", 4) + "example"
	receipt, err := newProvider(t, cfg).Deliver(t.Context(), delivery(t))
	require.NoError(t, err)
	require.Contains(t, s.only(t).data, "\r\nMessage-ID: "+receipt.ProviderID+"\r\n")
}

func TestConcurrentDeliveriesDoNotMix(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	p := newProvider(t, s.config())
	const n = 64
	var wg sync.WaitGroup
	errs := make([]error, n)
	keys := make([]uuid.UUID, n)
	for i := range n {
		d := delivery(t)
		name := strings.Repeat("x", i%20) + d.Key.String()
		d.Recipient = d.Key.String() + "@example.test"
		d.Payload, _ = json.Marshal(map[string]string{"subject": name, "text": name})
		keys[i] = d.Key
		wg.Go(func() { _, errs[i] = p.Deliver(context.Background(), d) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	seen := map[string]bool{}
	for _, got := range s.all() {
		key := strings.TrimSuffix(got.to, "@example.test")
		m := got.parse(t)
		require.Contains(t, m.subject, key)
		require.Contains(t, m.text, key)
		require.Contains(t, m.header.Get("Message-ID"), key)
		seen[key] = true
	}
	require.Len(t, seen, n)
	for _, key := range keys {
		require.True(t, seen[key.String()])
	}
}
