package smtp

import (
	"crypto/tls"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestConfigErrorsNameTheField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		field  string
		change func(*Config)
	}{
		{"Host", func(c *Config) { c.Host = "" }},
		{"Host", func(c *Config) { c.Host = "mail.example.com:587" }},
		{"Host", func(c *Config) { c.Host = "mail\r\n.example.com" }},
		{"Host", func(c *Config) { c.Host = strings.Repeat("a", 254) }},
		{"Port", func(c *Config) { c.Port = -1 }},
		{"Port", func(c *Config) { c.Port = 65536 }},
		{"TLS", func(c *Config) { c.TLS = "STARTTLS" }},
		{"TLS", func(c *Config) { c.TLS, c.Username, c.Password = TLSNone, "u", "p" }},
		{"TLSConfig", func(c *Config) { c.TLS, c.TLSConfig = TLSNone, &tls.Config{} }},
		{"TLSConfig", func(c *Config) { c.Host, c.TLSConfig = "localhost", &tls.Config{} }},
		{"Username", func(c *Config) { c.Password = "p" }},
		{"Username", func(c *Config) { c.Username, c.Password = "u\n", "p" }},
		{"Password", func(c *Config) { c.Username = "u" }},
		{"Password", func(c *Config) { c.Username, c.Password = "u", "secret\x00" }},
		{"From", func(c *Config) { c.From = "" }},
		{"From", func(c *Config) { c.From = "shop" }},
		{"From", func(c *Config) { c.From = "a@b.example, c@d.example" }},
		{"From", func(c *Config) { c.From = "Shop\r\n <a@b.example>" }},
		{"From", func(c *Config) { c.From = `"a> ORCPT=x"@b.example` }},
		{"From", func(c *Config) { c.From = `"a"@b.example` }},
		{"From", func(c *Config) { c.From = `Shop <"a"@b.example>` }},
		{"From", func(c *Config) { c.From = "jörg@b.example" }},
		{"From", func(c *Config) { c.From = "=?UTF-8?B?U2hvcA0KQmNjOiB4?= <a@b.example>" }},
		{"MessageIDDomain", func(c *Config) { c.MessageIDDomain = "a b" }},
		{"MessageIDDomain", func(c *Config) { c.MessageIDDomain = "a>\r\nX: y" }},
		{"HELO", func(c *Config) { c.HELO = "a\r\nMAIL" }},
		{"ConnectTimeout", func(c *Config) { c.ConnectTimeout = -1 }},
		{"CommandTimeout", func(c *Config) { c.CommandTimeout = -1 }},
		{"DataTimeout", func(c *Config) { c.DataTimeout = -1 }},
		{"RetryDelay", func(c *Config) { c.RetryDelay = -1 }},
	} {
		cfg := Config{Host: "mail.example.com", From: testFrom}
		c.change(&cfg)
		_, err := New(cfg)
		require.ErrorIs(t, err, notifyq.ErrInvalid)
		var invalid *notifyq.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "smtp "+c.field, invalid.Field, "%v", err)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"mail.example.com": "smtp://mail.example.com:587?tls=starttls",
		"mail_1":           "smtp://mail_1:587?tls=starttls",
		"192.0.2.1":        "smtp://192.0.2.1:587?tls=starttls",
		"2001:db8::1":      "smtp://[2001:db8::1]:587?tls=starttls",
		"localhost":        "smtp://localhost:587?tls=none",
		"127.0.0.1":        "smtp://127.0.0.1:587?tls=none",
		"::1":              "smtp://[::1]:587?tls=none",
		"localhost.evil":   "smtp://localhost.evil:587?tls=starttls",
	} {
		require.Equal(t, want, newProvider(t, Config{Host: host, From: testFrom}).String())
	}
	p := newProvider(t, Config{Host: "mail.example.com", From: testFrom, TLS: TLSImplicit})
	require.Equal(t, "smtps://mail.example.com:465?tls=implicit", p.String())
	require.Equal(t, "shop.example", p.helo)
	require.Equal(t, "shop.example", p.idDomain)
	require.Equal(t, 30*time.Second, p.cfg.ConnectTimeout)
	require.Equal(t, 5*time.Minute, p.cfg.CommandTimeout)
	require.Equal(t, 10*time.Minute, p.cfg.DataTimeout)
	require.Equal(t, "mail.example.com", p.tls.ServerName)
	require.EqualValues(t, tls.VersionTLS12, p.tls.MinVersion)

	own := &tls.Config{ServerName: "other.example"}
	p = newProvider(t, Config{Host: "mail.example.com", From: testFrom, TLSConfig: own})
	require.Equal(t, "other.example", p.tls.ServerName)
	require.EqualValues(t, tls.VersionTLS12, p.tls.MinVersion)
	require.Zero(t, own.MinVersion, "the caller's is left alone")
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]Config{
		"smtp://mail.example.com":                         {Host: "mail.example.com"},
		"smtp://mail.example.com:2525/":                   {Host: "mail.example.com", Port: 2525},
		"smtp://u:p@mail.example.com:587?tls=starttls":    {Host: "mail.example.com", Port: 587, Username: "u", Password: "p", TLS: TLSStartTLS},
		"smtp://u%40x:p%3Aa%2F%23%40@mail.example.com":    {Host: "mail.example.com", Username: "u@x", Password: "p:a/#@"},
		"smtps://u:p@mail.example.com":                    {Host: "mail.example.com", Username: "u", Password: "p", TLS: TLSImplicit},
		"smtps://mail.example.com?tls=implicit":           {Host: "mail.example.com", TLS: TLSImplicit},
		"smtp://mailpit:1025?tls=none":                    {Host: "mailpit", Port: 1025, TLS: TLSNone},
		"smtp://localhost:1025":                           {Host: "localhost", Port: 1025},
		"smtp://u:p@[::1]:1025":                           {Host: "::1", Port: 1025, Username: "u", Password: "p"},
		"SMTP://mail.example.com?helo=a.b&retryDelay=5m":  {Host: "mail.example.com", HELO: "a.b", RetryDelay: 5 * time.Minute},
		"smtp://mail.example.com?messageIdDomain=ids.a.b": {Host: "mail.example.com", MessageIDDomain: "ids.a.b"},
	} {
		got, err := ParseURL(raw)
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
		got.From = testFrom
		_, err = New(got)
		require.NoError(t, err, raw)
	}
}

func TestParseURLErrorsShowNoPassword(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "mail.example.com:587", "http://u:secret@mail.example.com", "smtp:u:secret@mail.example.com", "smtp://u:secret@",
		"smtp://u:secret@:587", "smtp://u:secret@host:0", "smtp://u:secret@host:65536", "smtp://u:secret@host:x", "smtp://u:secret%zz@host",
		"smtp://u:sec ret@host", "smtp://u:secret/@host", "smtp://u:secret#@host", "smtp://u:secret?@host", "smtp://u:secret@host/path",
		"smtp://u:secret@host#x", "smtp://u:secret@host?tls=", "smtp://u:secret@host?tls=maybe", "smtp://u:secret@host?tls=implicit",
		"smtps://u:secret@host?tls=starttls", "smtps://u:secret@host?tls=none", "smtp://u:secret@host?tls=none", "smtp://u:secret@host?TLS=none",
		"smtp://u:secret@host?tls=starttls&tls=none", "smtp://u:secret@host?x=secret", "smtp://u:secret@host?retryDelay=5",
		"smtp://u:secret@host?retryDelay=-5m", "smtp://u@host", "smtp://:secret@host", "smtp://u:secret@ho st", "smtp://u:secret@host?a=%zz",
		"smtp://u:secret@host;x", "smtp://u:secret@h\u00f6st",
	} {
		cfg, err := ParseURL(raw)
		require.ErrorIs(t, err, notifyq.ErrInvalid, raw)
		require.NotContains(t, err.Error(), "sec", raw)
		require.Equal(t, Config{}, cfg)
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("smtp://u:p@mail.example.com:587?tls=starttls")
	f.Add("smtps://[::1]?helo=a.b")
	f.Fuzz(func(t *testing.T, raw string) {
		cfg, err := ParseURL(raw)
		if err != nil {
			return
		}
		again, err := ParseURL(cfg.String())
		if cfg.Username == "" {
			require.NoError(t, err)
			require.Equal(t, cfg.addr(), again.addr())
			require.Equal(t, cfg.mode(), again.mode())
		}
		u, err := url.Parse(raw)
		require.NoError(t, err)
		require.Equal(t, u.Hostname(), cfg.Host)
	})
}
