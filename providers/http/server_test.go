package httpprovider

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

const (
	canaryRecipient = "canary-recipient@example.com"
	canaryPayload   = `{"text":"canary-payload","n":1.50}`
	canaryPath      = "/canary-path?token=canary-token"
)

// endpoint is a server, and a provider that posts to it. Both end with the test.
func endpoint(t *testing.T, handler http.HandlerFunc, change ...func(*Config)) (*Provider, *httptest.Server) {
	server := httptest.NewServer(handler)
	cfg := Config{URL: server.URL + canaryPath}
	for _, f := range change {
		f(&cfg)
	}
	p, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	return p, server
}

// raw is a server that speaks no HTTP but what talk says, and then hangs up.
func raw(t *testing.T, talk func(net.Conn)) string {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer func() { _ = conn.Close() }()
				talk(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		open.Wait()
	})
	return "http://" + listener.Addr().String() + canaryPath
}

// readRequest reads up to the end of the payload, so that the request is known to have arrived.
func readRequest(conn net.Conn) string {
	var all []byte
	buffer := make([]byte, 4096)
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		n, err := conn.Read(buffer)
		all = append(all, buffer[:n]...)
		if err != nil || len(all) > 2 && string(all[len(all)-2:]) == "}}" {
			return string(all)
		}
	}
}

func provider(t *testing.T, url string) *Provider {
	p, err := New(Config{URL: url})
	require.NoError(t, err)
	t.Cleanup(p.CloseIdleConnections)
	return p
}

func delivery() notifyq.Delivery {
	return notifyq.Delivery{
		Key: uuid.Must(uuid.NewV7()), Attempt: 3, Tenant: "acme", Recipient: canaryRecipient,
		Channel: notifyq.ChannelSMS, Payload: []byte(canaryPayload),
	}
}

func requireNothingPersonal(t *testing.T, err error) {
	t.Helper()
	for _, text := range []string{"canary", "127.0.0.1", "acme"} {
		require.NotContains(t, err.Error(), text)
	}
}

func class(err error) string {
	switch {
	case err == nil:
		return "accepted"
	case notifyq.IsPermanent(err):
		return "permanent"
	case notifyq.IsAmbiguous(err):
		return "ambiguous"
	case notifyq.IsMisconfigured(err):
		return "misconfigured"
	default:
		return "transient"
	}
}

func answerWith(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for i := 0; i < len(header); i += 2 {
			w.Header().Add(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
