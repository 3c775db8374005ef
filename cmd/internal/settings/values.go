package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/signature"
	httpprovider "github.com/notifyq/notifyq/providers/http"
	"github.com/notifyq/notifyq/providers/smtp"
	"github.com/notifyq/notifyq/publishers/webhook"
)

// value is how a text becomes a field, and a field a text. form says which texts do.
type value struct {
	form string
	read func(text string) error
	show func() string // empty for what is not set
}

// maxDigits keeps numbers within an int64.
const maxDigits = 18

// whole reads decimal digits and nothing else: no sign, no blank, no separator.
func whole(into *int, least, most int64) value {
	rule := fmt.Sprintf("must be a whole number from %d to %d", least, most)
	return value{fmt.Sprintf("%d to %d", least, most), func(text string) error {
		if !digits(text) || len(text) > maxDigits {
			return errors.New(rule)
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			return errors.New(rule)
		}
		*into = int(n)
		return nil
	}, func() string { return strconv.Itoa(*into) }}
}

func digits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

func millis(into *time.Duration, least, most int64) value {
	return units(into, time.Millisecond, "ms", least, most)
}

func seconds(into *time.Duration, least, most int64) value {
	return units(into, time.Second, "s", least, most)
}

func units(into *time.Duration, unit time.Duration, short string, least, most int64) value {
	var n int
	number := whole(&n, least, most)
	return value{number.form + " " + short, func(text string) error {
		if err := number.read(text); err != nil {
			return err
		}
		*into = time.Duration(n) * unit
		return nil
	}, func() string { return strconv.FormatInt(int64(*into/unit), 10) }}
}

var fractionForm = regexp.MustCompile(`^[0-9]{1,3}(\.[0-9]{1,12})?$`)

// fraction is a number from 0 to most, in digits: exponents, hexadecimal and NaN are for programmers.
func fraction(into *float64, most float64) value {
	return value{fmt.Sprintf("0 to %v", most), func(text string) error {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !fractionForm.MatchString(text) || f > most {
			return fmt.Errorf("must be a number from 0 to %v, such as 0.25", most)
		}
		*into = f
		return nil
	}, func() string { return strconv.FormatFloat(*into, 'f', -1, 64) }}
}

func boolean(into *bool) value {
	return value{"true or false", func(text string) error {
		switch text {
		case "true", "1":
			*into = true
		case "false", "0":
			*into = false
		default:
			return errors.New("must be true, false, 1 or 0")
		}
		return nil
	}, func() string { return strconv.FormatBool(*into) }}
}

func word[T ~string](into *T, words ...T) value {
	names := make([]string, len(words))
	for i, w := range words {
		names[i] = string(w)
	}
	return value{oneOf(names), func(text string) error {
		if !slices.Contains(names, text) {
			return errors.New("must be " + oneOf(names))
		}
		*into = T(text)
		return nil
	}, func() string { return string(*into) }}
}

func oneOf(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func level(into *slog.Level) value {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	const form = "debug, info, warn or error"
	return value{form, func(text string) error {
		found, ok := levels[strings.ToLower(text)]
		if !ok {
			return errors.New("must be " + form)
		}
		*into = found
		return nil
	}, func() string { return strings.ToLower(into.String()) }}
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)

func host(into *string) value {
	return value{"an IP address or a name", func(given string) error {
		if _, err := netip.ParseAddr(given); err != nil && !hostForm.MatchString(given) {
			return errors.New("must be an IP address or a host name, without port and brackets")
		}
		*into = given
		return nil
	}, func() string { return *into }}
}

// databaseURL lets pgx judge. Its error may quote what it could not read, and a password may be in it.
func databaseURL(into *string) value {
	return value{"postgres://user:password@host:5432/name, or key=value words", func(given string) error {
		if strings.TrimSpace(given) == "" {
			return errors.New("must not be blank")
		}
		if _, err := pgxpool.ParseConfig(given); err != nil {
			return errors.New("must be a PostgreSQL URL (postgres://user:password@host:5432/name), in which special " +
				"characters of the password are percent-encoded, or key=value words; files that it names must be readable")
		}
		*into = given
		return nil
	}, func() string { return *into }}
}

func schemaName(into *string) value {
	return value{"[a-z_][a-z0-9_]*", func(given string) error {
		if !schema.ValidName(given) {
			return errors.New("must match [a-z_][a-z0-9_]*, be at most 63 bytes and not begin with pg_")
		}
		*into = given
		return nil
	}, func() string { return *into }}
}

func apiKeys(into *[]auth.Key) value {
	return value{"key:tenant:scope+scope,… of schedule, read, operate", func(given string) error {
		keys, err := auth.ParseKeys(given)
		if err != nil {
			return errors.New(strings.TrimPrefix(err.Error(), "API_KEYS: "))
		}
		if len(keys) == 0 {
			return errors.New("must hold at least one key")
		}
		*into = keys
		return nil
	}, func() string { return count(len(*into)) }}
}

var channelForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)

// maxChannels is far above what a service has, and keeps a worker's lanes few.
const maxChannels = 100

func channels(into *[]notifyq.Channel) value {
	return value{"names, separated by commas", func(given string) error {
		var found []notifyq.Channel
		for name := range strings.SplitSeq(given, ",") {
			channel := notifyq.Channel(name)
			switch {
			case !channelForm.MatchString(name):
				return errors.New("must hold names of 1 to 64 letters, digits, '_', '.' and '-' that start with a letter, " +
					"separated by commas without blanks")
			case slices.Contains(found, channel):
				return errors.New("must not hold a name twice")
			}
			found = append(found, channel)
		}
		if len(found) > maxChannels {
			return fmt.Errorf("must hold at most %d names", maxChannels)
		}
		*into = found
		return nil
	}, func() string { return commas(*into) }}
}

// smtpURL lets the provider judge, with some sender: that is another setting.
func smtpURL(into *string) value {
	return value{"smtp://user:password@host:587 or smtps://…", func(given string) error {
		cfg, err := smtp.ParseURL(given)
		if err == nil {
			cfg.From = "nobody@notifyq.invalid"
			_, err = smtp.New(cfg)
		}
		if err != nil {
			return ruleOf(err)
		}
		*into = given
		return nil
	}, func() string { return *into }}
}

// sender lets the provider judge, with some server.
func sender(into *string) value {
	return value{"an address, with or without a name", func(given string) error {
		if _, err := smtp.New(smtp.Config{Host: "localhost", From: given}); err != nil {
			return ruleOf(err)
		}
		*into = given
		return nil
	}, func() string { return *into }}
}

func providerURL(into *string) value {
	return value{"http(s)://user:password@host/path", func(given string) error {
		if _, err := httpprovider.New(httpprovider.Config{URL: given}); err != nil {
			return ruleOf(err)
		}
		*into = given
		return nil
	}, func() string { return *into }}
}

// spareSecret stands in for those of the settings where the URL is judged. It signs nothing.
const spareSecret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// webhookURL lets the publisher judge. Whether it may lead into a private network is another setting's business.
func webhookURL(into *string) value {
	return value{"http(s)://host/path", func(given string) error {
		anywhere := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
		cfg := webhook.Config{URL: given, Secrets: []string{spareSecret}, AllowCIDRs: anywhere}
		if _, err := webhook.New(cfg); err != nil {
			return ruleOf(err)
		}
		*into = given
		return nil
	}, func() string { return *into }}
}

func webhookSecrets(into *[]string) value {
	return value{"whsec_… of 24 to 64 random bytes, several by commas", func(given string) error {
		secrets := strings.Split(given, ",")
		if _, err := signature.ParseSecrets(secrets); err != nil {
			return err
		}
		*into = secrets
		return nil
	}, func() string { return count(len(*into)) }}
}

func cidrs(into *[]netip.Prefix) value {
	return value{"10.0.0.0/8,fd00::/8,…", func(given string) error {
		var found []netip.Prefix
		for text := range strings.SplitSeq(given, ",") {
			prefix, err := netip.ParsePrefix(text)
			if err != nil || prefix.Addr().Is4In6() || prefix != prefix.Masked() {
				return errors.New("must hold networks such as 10.0.0.0/8, separated by commas without blanks")
			}
			found = append(found, prefix)
		}
		*into = found
		return nil
	}, func() string { return commas(*into) }}
}

// ruleOf is the rule that a library's configuration breaks, without the name of its field.
func ruleOf(err error) error {
	var invalid *notifyq.InvalidError
	if errors.As(err, &invalid) {
		return errors.New(invalid.Rule)
	}
	return errors.New("is not valid") // the error might hold the value
}

// count stands for a list of secrets.
func count(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func commas[T any](list []T) string {
	texts := make([]string, len(list))
	for i, element := range list {
		texts[i] = fmt.Sprint(element)
	}
	return strings.Join(texts, ",")
}
