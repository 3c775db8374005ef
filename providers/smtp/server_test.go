package smtp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math/big"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	gosmtp "github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

const (
	testFrom     = "Shop <no-reply@shop.example>"
	testUser     = "mailer"
	testPassword = "hunter2!secret"
)

// received is one message as the server has it.
type received struct {
	from, to, user string
	utf8, tls      bool
	data           string
}

// server is a real SMTP server that keeps what it gets. The hooks may refuse.
type server struct {
	host string
	port int

	onMail, onRcpt func(address string) error
	onData         func() error

	mu       sync.Mutex
	messages []received
	sessions int
}

func startServer(t *testing.T, configure func(*server, *gosmtp.Server)) *server {
	t.Helper()
	s := &server{}
	srv := gosmtp.NewServer(gosmtp.BackendFunc(func(c *gosmtp.Conn) (gosmtp.Session, error) {
		s.mu.Lock()
		s.sessions++
		s.mu.Unlock()
		return &serverSession{server: s, conn: c}, nil
	}))
	srv.Domain = "mail.test"
	srv.ErrorLog = log.New(io.Discard, "", 0)
	srv.AllowInsecureAuth = true
	if configure != nil {
		configure(s, srv)
	}
	ln := listen(t)
	s.host, s.port = "127.0.0.1", ln.Addr().(*net.TCPAddr).Port
	if srv.TLSConfig != nil && srv.Addr == "implicit" {
		ln = tls.NewListener(ln, srv.TLSConfig)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		_ = srv.Close()
		_ = ln.Close() // Close knows the listener only once Serve has begun
		if err := <-done; err != nil {
			t.Log("serve:", err)
		}
	})
	return s
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return ln
}

// withTLS gives the server a certificate for 127.0.0.1 and returns a client configuration that trusts it.
func withTLS(t *testing.T, srv *gosmtp.Server) *tls.Config {
	t.Helper()
	certificate, roots := newCertificate(t)
	srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
	return &tls.Config{RootCAs: roots}
}

func newCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// config is for this server, in clear.
func (s *server) config() Config { return Config{Host: s.host, Port: s.port, From: testFrom} }

func (s *server) all() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.messages...)
}

func (s *server) only(t *testing.T) received {
	t.Helper()
	all := s.all()
	require.Len(t, all, 1)
	return all[0]
}

func (s *server) sessionCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions
}

type serverSession struct {
	server *server
	conn   *gosmtp.Conn
	now    received
}

func (s *serverSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *serverSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, username, password string) error {
		if username != testUser || password != testPassword {
			return gosmtp.ErrAuthFailed
		}
		s.now.user = username
		return nil
	}), nil
}

func (s *serverSession) Mail(from string, opts *gosmtp.MailOptions) error {
	if s.server.onMail != nil {
		if err := s.server.onMail(from); err != nil {
			return err
		}
	}
	s.now.from, s.now.utf8 = from, opts.UTF8
	_, s.now.tls = s.conn.TLSConnectionState()
	return nil
}

func (s *serverSession) Rcpt(to string, _ *gosmtp.RcptOptions) error {
	if s.server.onRcpt != nil {
		if err := s.server.onRcpt(to); err != nil {
			return err
		}
	}
	if s.now.to != "" {
		return errors.New("more than one recipient")
	}
	s.now.to = to
	return nil
}

func (s *serverSession) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if s.server.onData != nil {
		if err := s.server.onData(); err != nil {
			return err
		}
	}
	s.now.data = string(data)
	s.server.mu.Lock()
	s.server.messages = append(s.server.messages, s.now)
	s.server.mu.Unlock()
	return nil
}

func (s *serverSession) Reset()        { s.now = received{user: s.now.user} }
func (s *serverSession) Logout() error { return nil }

// parts is a message as a mail program reads it.
type parts struct {
	header     mail.Header
	subject    string
	text, html string
}

func (r received) parse(t *testing.T) parts {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(r.data))
	require.NoError(t, err)
	for line := range strings.SplitSeq(r.data, "\r\n") {
		require.LessOrEqual(t, len(line), 998, "RFC 5322 line length")
		require.NotContains(t, line, "\n", "no bare line feeds")
		require.NotContains(t, line, "\r", "no bare carriage returns")
	}
	p := parts{header: m.Header}
	p.subject, err = new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	require.NoError(t, err)
	contentType, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	require.NoError(t, err)
	if contentType != "multipart/alternative" {
		p.add(t, contentType, params, m.Header.Get("Content-Transfer-Encoding"), m.Body)
		return p
	}
	reader := multipart.NewReader(m.Body, params["boundary"])
	for {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return p
		}
		require.NoError(t, err)
		contentType, params, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		require.NoError(t, err)
		p.add(t, contentType, params, part.Header.Get("Content-Transfer-Encoding"), part)
	}
}

func (p *parts) add(t *testing.T, contentType string, params map[string]string, encoding string, body io.Reader) {
	t.Helper()
	require.Equal(t, "quoted-printable", encoding)
	require.Equal(t, "utf-8", strings.ToLower(params["charset"]))
	decoded, err := io.ReadAll(quotedprintable.NewReader(body))
	require.NoError(t, err)
	text := strings.ReplaceAll(string(decoded), "\r\n", "\n")
	switch contentType {
	case "text/plain":
		require.Empty(t, p.text)
		p.text = text
	case "text/html":
		require.Empty(t, p.html)
		p.html = text
	default:
		t.Fatalf("unexpected part %s", contentType)
	}
}

func newProvider(t *testing.T, cfg Config) *Provider {
	t.Helper()
	p, err := New(cfg)
	require.NoError(t, err)
	return p
}

// delivery is to u@example.test, with the members given in pairs.
func delivery(t *testing.T, members ...string) notifyq.Delivery {
	t.Helper()
	content := map[string]string{}
	for i := 0; i < len(members); i += 2 {
		content[members[i]] = members[i+1]
	}
	if len(content) == 0 {
		content = map[string]string{"subject": "Hello", "text": "World"}
	}
	raw, err := json.Marshal(content)
	require.NoError(t, err)
	return notifyq.Delivery{
		Key: uuid.New(), Attempt: 1, FirstAttemptAt: time.Now(),
		Recipient: "u@example.test", Channel: notifyq.ChannelEmail, Payload: raw,
	}
}
