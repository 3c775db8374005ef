package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ask sends a request without a body, under another name of the server.
func (s *server) ask(t *testing.T, method, target, host string, headers ...string) answered {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+target, nil)
	require.NoError(t, err)
	r.Host = host
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	return s.send(t, r)
}

func TestPageOfAnotherSiteCannotOperateWithoutKeys(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	host := strings.TrimPrefix(s.url, "http://")
	const pause = "/channels/EMAIL/pause"
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"},
		{"Sec-Fetch-Site", "same-site"}, // another port of this machine
		{"Origin", "https://evil.example"},
		{"Origin", "null"},
		{"Origin", "http://localhost:1"},
	} {
		s.ask(t, http.MethodPost, pause, host, headers...).requireProblem(t, http.StatusForbidden, "cross_origin")
		s.ask(t, http.MethodDelete, "/notifications/01890000-0000-7000-8000-000000000001", host, headers...).
			requireProblem(t, http.StatusForbidden, "cross_origin")
	}
	for _, headers := range [][]string{
		{}, {"Sec-Fetch-Site", "same-origin", "Origin", s.url}, {"Sec-Fetch-Site", "none"}, {"Origin", s.url},
	} {
		require.Equal(t, http.StatusOK, s.ask(t, http.MethodPost, pause, host, headers...).status, headers)
	}
}

// A name that somebody else made to lead here: the browser takes the page for one of this server.
func TestOtherNamesOfTheMachineAreRefusedWithoutKeys(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, host := range []string{
		"evil.example", "evil.example:3000", "localhost.evil.example", "192.0.2.1:3000", "[2001:db8::1]", "127.0.0.1.evil.example",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			s.ask(t, method, "/notifications", host, "Sec-Fetch-Site", "same-origin", "Origin", "http://"+host).
				requireProblem(t, http.StatusForbidden, "unknown_host")
		}
	}
	for _, host := range []string{
		"localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.2:3000", "[::1]", "[::1]:3000",
		"x", "notifyq-api:3000", "my_service", "2130706433",
	} {
		require.Equal(t, http.StatusOK, s.ask(t, http.MethodGet, "/notifications", host).status, host)
	}
}

// A key is what no other site has, and servers with keys have names.
func TestServersWithKeysHaveAnyNameAndAnyCaller(t *testing.T) {
	t.Parallel()
	s := serve(t, manyKeys(t))
	headers := append(bearer(allSystem), "Origin", "https://console.example", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusOK, s.ask(t, http.MethodPost, "/channels/EMAIL/pause", "notify.example", headers...).status)
}

// A form is what a page can send anywhere without being asked.
func TestTypeOfAnEmptyBodyIsCheckedIfItIsGiven(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	const pause = "/channels/EMAIL/pause"
	for _, kind := range []string{"application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", "nothing"} {
		s.post(t, pause, "", "Content-Type", kind).requireProblem(t, http.StatusUnsupportedMediaType, "unsupported_media_type")
	}
	s.post(t, pause, "", "Content-Encoding", "gzip").requireProblem(t, http.StatusUnsupportedMediaType, "unsupported_media_type")
	require.Equal(t, http.StatusOK, s.post(t, pause, "", "Content-Type", "application/json").status)
	require.Equal(t, http.StatusOK, s.post(t, pause, "").status)
}
