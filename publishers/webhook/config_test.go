package webhook

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	p, err := New(Config{URL: "https://shop.example/hook", Secrets: []string{secret("a")}})
	require.NoError(t, err)
	endpoint := p.Endpoint(newEvent("x"))
	require.Regexp(t, "^[0-9a-f]{32}$", endpoint.Target)
	endpoint.Target = ""
	require.Equal(t, notifyq.Endpoint{
		Name: "default", Concurrency: 10, MaxAttempts: 10, DisableAfter: 5 * 24 * time.Hour,
	}, endpoint)
	require.Equal(t, 15*time.Second, p.cfg.Timeout)
	require.Equal(t, 5*time.Second, p.dialer.Timeout)
	require.Nil(t, p.transport.Proxy)

	p, err = New(Config{
		URL: "https://shop.example/hook", Secrets: []string{secret("a")}, Name: "shop", Concurrency: 3, MaxAttempts: 4, DisableAfter: time.Hour,
	})
	require.NoError(t, err)
	endpoint = p.Endpoint(newEvent("x"))
	endpoint.Target = ""
	require.Equal(t, notifyq.Endpoint{Name: "shop", Concurrency: 3, MaxAttempts: 4, DisableAfter: time.Hour}, endpoint)

	p, err = New(Config{URL: "https://shop.example/hook", Secrets: []string{secret("a")}, NeverDisable: true})
	require.NoError(t, err)
	require.Zero(t, p.Endpoint(newEvent("x")).DisableAfter)
}

func TestTargetIsTheURLs(t *testing.T) {
	t.Parallel()
	target := func(url string, change ...func(*Config)) string {
		return newPublisher(t, url, change...).Endpoint(newEvent("x")).Target
	}
	first := target("https://shop.example/hook")
	require.Equal(t, first, target("https://shop.example/hook", timeout(time.Second), func(cfg *Config) { cfg.Secrets = []string{secret("b")} }))
	for _, other := range []string{"http://shop.example/hook", "https://shop.example/hook2", "https://shop.example/hook?x", "https://shop.example:8443/hook"} {
		require.NotEqual(t, first, target(other))
	}
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	for field, changes := range map[string][]func(*Config){
		"URL": {func(c *Config) { c.URL = "" }}, // and guard_test.go
		"Secrets": {
			func(c *Config) { c.Secrets = nil },
			func(c *Config) { c.Secrets = []string{""} },
			func(c *Config) { c.Secrets = []string{secret("a"), " \n"} },
			func(c *Config) { c.Secrets = []string{"hunter2"} },
			func(c *Config) { c.Secrets = []string{"whsec_aHVudGVyMg=="} },
			func(c *Config) { c.Secrets = []string{secret("a") + "," + secret("b")} },
		},
		"Name": {
			func(c *Config) { c.Name = strings.Repeat("x", 256) },
			func(c *Config) { c.Name = "hunter2\n" },
			func(c *Config) { c.Name = "\xff" },
			func(c *Config) { c.Name = " " },
		},
		"ContentType": {
			func(c *Config) { c.ContentType = "hunter2; x" },
			func(c *Config) { c.ContentType = "text/plain\r\nX-Evil: 1" },
			func(c *Config) { c.ContentType = "text/plain; a=\"é\"" },
		},
		"UserAgent":      {func(c *Config) { c.UserAgent = "hunter2\r\nX-Evil: 1" }, func(c *Config) { c.UserAgent = "é" }},
		"Timeout":        {func(c *Config) { c.Timeout = -1 }},
		"ConnectTimeout": {func(c *Config) { c.ConnectTimeout = -1 }},
		"Concurrency":    {func(c *Config) { c.Concurrency = -1 }},
		"MaxAttempts":    {func(c *Config) { c.MaxAttempts = -1 }},
		"DisableAfter": {
			func(c *Config) { c.DisableAfter = -1 },
			func(c *Config) { c.DisableAfter, c.NeverDisable = time.Hour, true },
		},
		"AllowCIDRs": {
			func(c *Config) { c.AllowCIDRs = []netip.Prefix{{}} },
			func(c *Config) { c.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")} },
		},
		"TLS": {
			func(c *Config) { c.TLS = &tls.Config{MinVersion: tls.VersionTLS11} },
			func(c *Config) { c.TLS = &tls.Config{MaxVersion: tls.VersionTLS11} },
			func(c *Config) { c.URL, c.TLS = "http://shop.example", &tls.Config{} },
		},
	} {
		for i, change := range changes {
			cfg := Config{URL: "https://shop.example/hush-hush", Secrets: []string{secret("a")}}
			change(&cfg)
			_, err := New(cfg)
			var broken *notifyq.InvalidError
			require.ErrorAs(t, err, &broken, "%s %d", field, i)
			require.Equal(t, "webhook "+field, broken.Field)
			for _, value := range []string{"hunter2", "aHVudG", "hush", secret("a")} {
				require.NotContains(t, err.Error(), value)
			}
		}
	}
}

func TestNothingPrintsSecrets(t *testing.T) {
	t.Parallel()
	cfg := Config{URL: "https://shop.example:8443/hush-hush?token=hush", Secrets: []string{secret("a")}, Name: "shop"}
	p, err := New(cfg)
	require.NoError(t, err)
	for _, v := range []any{cfg, &cfg, p} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			require.Equal(t, "shop (https://shop.example:8443)", fmt.Sprintf(format, v), format)
		}
	}
	require.Equal(t, "shop (https://shop.example:8443)", cfg.LogValue().String())
	require.Equal(t, slog.StringValue("shop (https://shop.example:8443)"), p.LogValue())
	require.Equal(t, "shop (https://shop.example:8443)", p.String())
	require.Equal(t, "default", Config{URL: "::hush"}.String())
}
