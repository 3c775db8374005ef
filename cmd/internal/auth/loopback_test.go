package auth

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A page's owner can make any name with a dot lead to the loopback, and no label alone.
func TestWithoutKeysTheServerIsCalledByNamesThatNobodyOwns(t *testing.T) {
	t.Parallel()
	called := func(host string) error {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = host
		return RequireLoopback(r)
	}
	for _, host := range []string{
		"localhost", "LocalHost:3000", "127.0.0.1", "127.8.9.1:3000", "[::1]:3000", "[::ffff:127.0.0.1]",
		"x", "x:3000", "notifyq-api", "my_service:3000",
	} {
		require.NoError(t, called(host), host)
	}
	for _, host := range []string{
		"", ":3000", "evil.example", "x.evil.example:3000", "x.", "localhost.", ".x", "127.0.0.1.evil.example", "192.0.2.1", "0.0.0.0",
		"2001:db8::1", "[2001:db8::1]:3000", "[fe80::1%25x]", "evil。example", "évil", "a b", "a/b", "x:y", "user@x",
	} {
		require.ErrorIs(t, called(host), ErrUnknownHost, host)
	}
}
