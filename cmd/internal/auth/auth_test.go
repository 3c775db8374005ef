package auth

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeysAreParsed(t *testing.T) {
	t.Parallel()
	keys, err := ParseKeys(" first-key-012345:acme:schedule+read , second-key-01234::operate,third-key-012345:*:read")
	require.NoError(t, err)
	require.Len(t, keys, 3)
	require.True(t, keys[0].Allows(ScopeSchedule))
	require.True(t, keys[0].Allows(ScopeRead))
	require.False(t, keys[0].Allows(ScopeOperate))
	require.False(t, keys[1].WholeSystem(), "the empty tenant is one")
	require.True(t, keys[2].WholeSystem())
	for _, none := range []string{"", "  "} {
		keys, err = ParseKeys(none)
		require.NoError(t, err)
		require.Empty(t, keys)
	}
}

func TestKeysThatAreNoneAreRefusedWithoutBeingShown(t *testing.T) {
	t.Parallel()
	const good = "good-key-0123456:acme:read"
	for _, bad := range []string{
		"", "SECRET", "SECRET-0123456789", "SECRET-0123456789:acme", "SECRET-0123456789:acme:", "SECRET-0123456789:acme:write",
		"SECRET-0123456789:acme:read+", "SECRET-0123456789:acme:read+read", "SECRET-0123456789:acme:Read", "SECRET-0123456789:acme:read:x",
		":acme:read", "SECRET-01234567:acme:read", strings.Repeat("SECRET", 43) + ":acme:read", "SECRET 0123456789:acme:read",
		"SECRET\u00e9-0123456789:acme:read", "SECRET-0123456789:" + strings.Repeat("t", 65) + ":read", "SECRET-0123456789:a\u202eb:read",
		"SECRET-0123456789:a\xff:read", "SECRET-0123456789:acme:read read", "good-key-0123456:other:operate",
	} {
		_, err := ParseKeys(good + "," + bad)
		require.ErrorContains(t, err, "API_KEYS: key 2 ", bad)
		require.NotContains(t, err.Error(), "SECRET")
		require.NotContains(t, err.Error(), "good-key")
	}
}

func TestKeysAreFound(t *testing.T) {
	t.Parallel()
	keys, err := ParseKeys("first-key-012345:acme:read,second-key-01234:other:read")
	require.NoError(t, err)
	found, ok := Find(keys, "second-key-01234")
	require.True(t, ok)
	require.Equal(t, keys[1].Name(), found.Name())
	for _, other := range []string{"", "first-key-01234", "first-key-0123456", "FIRST-KEY-012345", "first-key-012345,second-key-01234"} {
		_, ok := Find(keys, other)
		require.False(t, ok, other)
	}
	_, ok = Find(nil, "")
	require.False(t, ok)
}

func TestKeyPrintsAsItsName(t *testing.T) {
	t.Parallel()
	keys, err := ParseKeys("SECRET-0123456789:TENANT:read")
	require.NoError(t, err)
	text, err := json.Marshal(keys)
	require.NoError(t, err)
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "keys", keys, "key", keys[0])
	all := fmt.Sprintf("%v %+v %#v %s %q %x", keys, keys[0], keys, keys, keys, keys) + string(text) + logged.String()
	require.NotContains(t, all, "SECRET")
	require.NotContains(t, all, "TENANT")
	require.Contains(t, all, keys[0].Name())
	require.NotContains(t, fmt.Sprintf("%x", keys[0]), fmt.Sprintf("%x", keys[0].hash))
}

func TestPresentedKey(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Bearer k": "k", "bearer k": "k", "BEARER   k": "k", "Bearer k x": "k x", "Basic k": "", "k": "", "Bearer": "", "": "", "Bearerk": "",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		require.Equal(t, want, Presented(r), header)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	require.Empty(t, Presented(r))
	r.Header["Authorization"] = []string{"Bearer a", "Bearer b"}
	require.Empty(t, Presented(r))
}

func TestWithoutKeysOnlyTheLoopbackIsServed(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LocalHost", "::ffff:127.0.0.1"} {
		require.NoError(t, RequireKeys(host, nil), host)
	}
	keys, err := ParseKeys("first-key-012345:acme:read")
	require.NoError(t, err)
	for _, host := range []string{"", "0.0.0.0", "::", "10.0.0.1", "example.test", "localhost.example.test", "127.0.0.1.example.test", "2130706433"} {
		err := RequireKeys(host, nil)
		require.ErrorContains(t, err, "HOST", host)
		require.ErrorContains(t, err, "API_KEYS", host)
		require.NoError(t, RequireKeys(host, keys), host)
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add("first-key-012345:acme:read+operate,second-key-01234:*:schedule")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseKeys(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "API_KEYS: key ") {
				t.Fatal(err)
			}
			return
		}
		for _, part := range strings.Split(text, ",") {
			secret, _, _ := strings.Cut(strings.TrimSpace(part), ":")
			if len(keys) > 0 {
				if _, ok := Find(keys, secret); !ok {
					t.Fatal("a key that is not found")
				}
			}
		}
	})
}
