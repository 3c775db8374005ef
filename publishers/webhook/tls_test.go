package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProtocols(t *testing.T) {
	t.Parallel()
	server, client := certificate(t)
	for want, protocols := range map[int][]string{1: {"http/1.1"}, 2: nil} {
		tlsConfig := server.Clone()
		tlsConfig.NextProtos = protocols
		s := newSink(t, tlsConfig, status(http.StatusOK))
		p := newPublisher(t, s.url, func(cfg *Config) { cfg.TLS = client })
		for range 3 {
			require.NoError(t, send(t, p, newEvent("x")))
		}
		require.Equal(t, want, s.got()[0].ProtoMajor)
		require.EqualValues(t, 1, s.conns.Load(), "good answers keep the connection")
	}
}

func TestServersThatAreNotTrusted(t *testing.T) {
	t.Parallel()
	good, trusting := certificate(t)
	other, trustingOther := certificate(t, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"hush.example"} })
	expired, trustingExpired := certificate(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	old := good.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	clientAuth := good.Clone()
	clientAuth.ClientAuth = tls.RequireAndVerifyClientCert
	clientAuth.MaxVersion = tls.VersionTLS12 // 1.3 asks when the handshake is over for the client
	for want, c := range map[string]struct{ server, client *tls.Config }{
		"the certificate is of an unknown authority":            {good, nil},
		"the certificate is for another name":                   {other, trustingOther},
		"the certificate has expired or is not valid yet":       {expired, trustingExpired},
		"tls: protocol version not supported":                   {old, trusting},
		"webhook: no connection: tls: handshake failure":        {clientAuth, trusting},
		"webhook: no connection: the server does not speak TLS": {nil, trusting},
	} {
		s := newSink(t, c.server, status(http.StatusOK))
		p := newPublisher(t, strings.Replace(s.url, "http:", "https:", 1), func(cfg *Config) { cfg.TLS = c.client })
		err := send(t, p, newEvent("x"))
		requireNotSent(t, err)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hush")
		require.Empty(t, s.got())
	}
}

// The server's answer in clear to a client of TLS is not told: it is what reads services that were not meant.
func TestWhatIsNoTLSIsNotTold(t *testing.T) {
	t.Parallel()
	url, _ := rawServer(t, func(c net.Conn) { _, _ = c.Write([]byte("220 hush-hush.internal ESMTP\r\n")) })
	err := send(t, newPublisher(t, strings.Replace(url, "http:", "https:", 1)), newEvent("x"))
	requireNotSent(t, err)
	require.EqualError(t, err, "webhook: no connection: the server does not speak TLS")
}

func TestTLSVersion(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, tls.VersionTLS12, Config{}.tlsConfig().MinVersion)
	own := &tls.Config{ServerName: "x"}
	got := Config{TLS: own}.tlsConfig()
	require.EqualValues(t, tls.VersionTLS12, got.MinVersion)
	require.Equal(t, "x", got.ServerName)
	require.Zero(t, own.MinVersion, "the caller's is left alone")
	require.EqualValues(t, tls.VersionTLS13, Config{TLS: &tls.Config{MinVersion: tls.VersionTLS13}}.tlsConfig().MinVersion)
}
