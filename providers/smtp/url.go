package smtp

import (
	"net/url"
	"strconv"
	"time"
)

// ParseURL reads a server's settings from a URL; From is to be set by the caller before New.
//
//	smtp://user:password@mail.example.com:587?tls=starttls
//	smtps://user:password@mail.example.com
//	smtp://localhost:1025
//
// The scheme smtp takes tls=starttls or tls=none, by default starttls, and none on the machine itself; smtps is TLS
// from the first byte. Other parameters are helo, messageIdDomain and retryDelay ("5m"), as in Config. User and
// password are percent-encoded. Anything else is an error that shows nothing of the URL's user and password.
func ParseURL(rawURL string) (Config, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The parser's own error quotes the URL, and with it the password.
		return Config{}, invalid("URL", "is malformed; special characters in user and password must be percent-encoded")
	}
	switch {
	case u.Scheme != "smtp" && u.Scheme != "smtps":
		return Config{}, invalid("URL", "must begin with smtp:// or smtps://")
	case u.Opaque != "" || u.Host == "" || u.Hostname() == "":
		return Config{}, invalid("URL", "must name a host")
	case u.Path != "" && u.Path != "/":
		return Config{}, invalid("URL", "must not have a path")
	case u.Fragment != "":
		return Config{}, invalid("URL", "must not have a fragment; percent-encode # in a password")
	}
	cfg := Config{Host: u.Hostname(), Username: u.User.Username()}
	cfg.Password, _ = u.User.Password()
	if port := u.Port(); port != "" {
		if cfg.Port, err = strconv.Atoi(port); err != nil || cfg.Port < 1 {
			return Config{}, invalid("URL", "must have a port from 1 to 65535, or none")
		}
	}
	if err := cfg.setParameters(u.Scheme, u.RawQuery); err != nil {
		return Config{}, err
	}
	if err := cfg.validate(); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

func (c *Config) setParameters(scheme, rawQuery string) error {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return invalid("URL", "has malformed parameters; percent-encode ? in a password")
	}
	for name, values := range query {
		if len(values) != 1 {
			return invalid("URL", "must not repeat a parameter")
		}
		value := values[0]
		switch name {
		case "tls":
			c.TLS = TLSMode(value)
			if c.TLS == TLSDefault {
				return invalid("URL", "must have tls=starttls or tls=none, or no tls")
			}
		case "helo":
			c.HELO = value
		case "messageIdDomain":
			c.MessageIDDomain = value
		case "retryDelay":
			if c.RetryDelay, err = time.ParseDuration(value); err != nil {
				return invalid("URL", "must have a retryDelay like 5m or 90s")
			}
		default:
			return invalid("URL", "has an unknown parameter; known are tls, helo, messageIdDomain and retryDelay")
		}
	}
	return c.setScheme(scheme)
}

func (c *Config) setScheme(scheme string) error {
	if scheme == "smtps" {
		if c.TLS != TLSDefault && c.TLS != TLSImplicit {
			return invalid("URL", "must not contradict smtps:// by its tls parameter")
		}
		c.TLS = TLSImplicit
		return nil
	}
	if c.TLS == TLSImplicit {
		return invalid("URL", "must begin with smtps:// for implicit TLS")
	}
	return nil
}
