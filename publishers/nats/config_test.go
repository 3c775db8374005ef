package nats

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		field  string
		change func(*Config)
	}{
		"no URL":            {"URL", func(c *Config) { c.URL = "" }},
		"no host":           {"URL", func(c *Config) { c.URL = "nats://" }},
		"no host in a list": {"URL", func(c *Config) { c.URL = "nats://a:4222," }},
		"scheme":            {"URL", func(c *Config) { c.URL = "http://secret@a" }},
		"malformed":         {"URL", func(c *Config) { c.URL = "nats://u:sec%ret@a" }},
		"port":              {"URL", func(c *Config) { c.URL = "nats://u:secret@a:b" }},
		"prefix":            {"SubjectPrefix", func(c *Config) { c.SubjectPrefix = "a b." }},
		"empty token":       {"SubjectPrefix", func(c *Config) { c.SubjectPrefix = ".a." }},
		"wildcard":          {"SubjectPrefix", func(c *Config) { c.SubjectPrefix = "a.*." }},
		"long prefix":       {"SubjectPrefix", func(c *Config) { c.SubjectPrefix = strings.Repeat("a", 256) }},
		"stream":            {"Stream", func(c *Config) { c.Stream = "a.b" }},
		"long stream":       {"Stream", func(c *Config) { c.Stream = strings.Repeat("a", 256) }},
		"timeout":           {"AckTimeout", func(c *Config) { c.AckTimeout = -1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{URL: "nats://127.0.0.1:1"}
			c.change(&cfg)
			_, err := New(cfg)
			var invalid *notifyq.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, "nats "+c.field, invalid.Field)
			require.NotContains(t, err.Error(), "sec")
		})
	}
}

func TestFaultyOptionIsAnError(t *testing.T) {
	t.Parallel()
	_, err := New(Config{URL: "nats://127.0.0.1:1", Options: []natsgo.Option{natsgo.RootCAs("/nowhere")}})
	require.ErrorContains(t, err, "/nowhere")
	_, err = New(Config{URL: "nats://u:secret@127.0.0.1:1,ws://u:secret@127.0.0.1:1"})
	require.ErrorContains(t, err, "websocket")
	require.NotContains(t, err.Error(), "secret")
}

func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	b := startBroker(t, func(o *server.Options) { o.Username, o.Password = "relay", "right" })
	logged := make(logChannel, 100)
	cfg := Config{
		URL:     "nats://relay:s3cret@" + b.srv.Addr().String() + ", tls://t0ken@broker.example",
		Options: quick(), Logger: slog.New(slog.NewTextHandler(logged, nil)),
	}
	p, err := New(cfg)
	require.NoError(t, err)
	_, err = p.Start(t.Context(), event())
	requireClass(t, "unavailable", err)
	said := fmt.Sprintf("%v %+v %#v %s %v %s", cfg, cfg, &cfg, p, err, <-logged)
	require.Contains(t, said, "nats.not_connected")
	p.Close()
	for _, secret := range []string{"relay", "s3cret", "t0ken"} {
		require.NotContains(t, said, secret)
	}
	require.Equal(t, "nats://"+b.srv.Addr().String()+",tls://broker.example", cfg.LogValue().String())
}

func TestOptionsCannotUndoTheRules(t *testing.T) {
	t.Parallel()
	b, px := between(t)
	var called atomic.Int32
	count := func(*natsgo.Conn) { called.Add(1) }
	p := connect(t, px.url(), func(c *Config) {
		c.Options = append(c.Options, natsgo.ReconnectBufSize(1<<20), natsgo.MaxReconnects(1), natsgo.NoReconnect(),
			natsgo.RetryOnFailedConnect(false), natsgo.Name("theirs"), natsgo.ConnectHandler(count),
			natsgo.ReconnectHandler(count), natsgo.ClosedHandler(count),
			natsgo.DisconnectErrHandler(func(c *natsgo.Conn, _ error) { count(c) }))
	})
	opts := p.link.Load().conn.Opts
	require.Equal(t, -1, opts.ReconnectBufSize)
	require.Equal(t, -1, opts.MaxReconnect)
	require.True(t, opts.AllowReconnect)
	require.True(t, opts.RetryOnFailedConnect)
	require.True(t, opts.IgnoreAuthErrorAbort)
	require.True(t, opts.ReconnectOnFlusherError)
	require.Equal(t, "theirs", opts.Name)
	require.Equal(t, writeTimeout, opts.FlusherTimeout)

	px.cut()
	publishSoon(t, p, event())
	p.Close()
	require.Eventually(t, func() bool { return called.Load() == 5 }, patience, time.Millisecond,
		"connected, disconnected, reconnected, disconnected, closed")
	require.NotEmpty(t, b.stored(0))
}

func TestMissingPermissionIsLogged(t *testing.T) {
	t.Parallel()
	b := startBroker(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "test", Password: "pw"},
			{Username: "relay", Password: "pw", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: []string{"test.denied"}},
			}},
		}
	})
	logged := make(logChannel, 100)
	p := connect(t, "nats://relay:pw@"+b.srv.Addr().String(), func(c *Config) {
		c.Logger, c.AckTimeout = slog.New(slog.NewTextHandler(logged, nil)), silence
	})
	e := event()
	e.Topic = "test.denied"
	requireClass(t, "unknown", publish(t, p, e))
	require.Eventually(t, func() bool { return strings.Contains(<-logged, `Permissions Violation for Publish`) },
		patience, time.Millisecond)
}

type logChannel chan string

func (c logChannel) Write(p []byte) (int, error) {
	c <- string(p)
	return len(p), nil
}

func TestNetworkErrorsNameNoHost(t *testing.T) {
	t.Parallel()
	p := connect(t, "nats://127.0.0.1:1")
	require.Eventually(t, func() bool {
		_, err := p.Start(t.Context(), event())
		require.NotContains(t, err.Error(), "127.0.0.1")
		return strings.Contains(err.Error(), "refused")
	}, patience, time.Millisecond)
	require.True(t, errors.Is(p.away(p.link.Load()), errNotConnected))
}
