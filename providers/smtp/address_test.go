package smtp

import (
	"net/mail"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	for given, wire := range map[string]string{
		"u@example.test":                       "u@example.test",
		"U.V+tag@Example.TEST":                 "U.V+tag@Example.TEST",
		"o'neil@example.test":                  "o'neil@example.test",
		"!#$%&'*+-/=?^_`{|}~@example.test":     "!#$%&'*+-/=?^_`{|}~@example.test",
		"u@localhost":                          "u@localhost",
		"u@bücher.example":                     "u@xn--bcher-kva.example",
		"u@BÜCHER.example":                     "u@xn--bcher-kva.example",
		"u@例え.テスト":                             "u@xn--r8jz45g.xn--zckzah",
		"u@xn--bcher-kva.example":              "u@xn--bcher-kva.example",
		"用户@例え.テスト":                            "用户@xn--r8jz45g.xn--zckzah",
		strings.Repeat("u", 64) + "@a.example": strings.Repeat("u", 64) + "@a.example",
	} {
		got, err := parseAddress(given)
		require.NoError(t, err, given)
		require.Equal(t, wire, got.wire)
	}
}

// FuzzAddress holds whatever is accepted to what the wire and the header need.
func FuzzAddress(f *testing.F) {
	for _, seed := range []string{"u@example.test", `"a b"@example.test`, "用户@例え.テスト", "u@example.test\r\nDATA", "a@b@c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, given string) {
		got, err := parseAddress(given)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.False(t, strings.ContainsAny(got.wire, " <>\"\\,;:()[]\r\n\t\x00"), "%q", got.wire)
		require.Equal(t, 1, strings.Count(got.wire, "@"))
		require.LessOrEqual(t, len(got.wire), 254)
		require.Equal(t, !isASCII(got.wire), got.utf8)
		for _, r := range got.wire {
			require.False(t, unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.IsSpace(r), "%q", got.wire)
		}
		parsed, err := mail.ParseAddress(got.wire)
		require.NoError(t, err, "%q", got.wire)
		require.Equal(t, got.wire, parsed.Address)
		require.Equal(t, "<"+got.wire+">", parsed.String(), "goes into a header without quotes")
	})
}
