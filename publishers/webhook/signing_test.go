package webhook

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// ugly has what parsers and encoders change: escapes, order, spaces, forms of numbers, separators, directions, NUL.
const ugly = "{\"b\":1.0,\"a\":  \"x\",\"z\":{\"y\":2,\"x\":1e2},\"\\ud83d\\ude00\":\"\u202eabc \u2028\u2029<a&b> é e\u0301\",\"n\":\"\x00\xff\"}\r\n"

func TestEveryAttemptSendsTheSameBytesUnderAFreshSignature(t *testing.T) {
	t.Parallel()
	server, client := certificate(t)
	for _, secured := range []bool{false, true} {
		var answers atomic.Int64
		answer := func(w http.ResponseWriter, _ *http.Request) {
			if answers.Add(1) < 4 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
		var s *sink
		var p *Publisher
		if secured {
			s = newSink(t, server.Clone(), answer)
			p = newPublisher(t, s.url, func(cfg *Config) { cfg.TLS = client })
		} else {
			s = newSink(t, nil, answer)
			p = newPublisher(t, s.url)
		}
		e := newEvent(ugly)
		for attempt := 1; attempt <= 4; attempt++ {
			e.Attempt = attempt
			err := send(t, p, e)
			require.Equal(t, attempt < 4, err != nil)
		}
		verifier, err := standardwebhooks.NewWebhook(secret("a"))
		require.NoError(t, err)
		require.Len(t, s.got(), 4)
		for _, r := range s.got() {
			require.Equal(t, ugly, string(r.body))
			require.Equal(t, e.ID.String(), r.Header.Get("webhook-id"))
			require.Equal(t, e.ID.String(), r.Header.Get("X-Webhook-Event-Id"))
			require.NoError(t, verifier.Verify(r.body, r.Header), "the public library")
			id, err := notifyq.VerifyWebhook(r.Header, r.body, []string{secret("a")}, time.Minute)
			require.NoError(t, err)
			require.Equal(t, e.ID.String(), id)
			seconds, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
			require.NoError(t, err)
			require.InDelta(t, r.at.Unix(), seconds, 1)
			require.Equal(t, map[bool]int{false: 1, true: 2}[secured], r.ProtoMajor)
		}
	}
}

func TestRequestIsTheAttempts(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, "http://127.0.0.1:9999/")
	e := newEvent("{}")
	at := time.Unix(1614265330, 900)
	first, err := p.request(t.Context(), e, at)
	require.NoError(t, err)
	second, err := p.request(t.Context(), e, at.Add(time.Second))
	require.NoError(t, err)
	one, two := map[string][]string(first.Header), map[string][]string(second.Header)
	require.Equal(t, []string{"1614265330"}, one["webhook-timestamp"])
	require.Equal(t, []string{"1614265331"}, two["webhook-timestamp"])
	require.NotEqual(t, one["webhook-signature"], two["webhook-signature"])
	require.Equal(t, one["webhook-id"], two["webhook-id"])

	copy(e.Body, "!!") // after Wait it is the caller's again, and the transport may not be done
	body, err := io.ReadAll(first.Body)
	require.NoError(t, err)
	require.Equal(t, "{}", string(body))
}

func TestRotationSignsWithEverySecret(t *testing.T) {
	t.Parallel()
	s := newSink(t, nil, status(http.StatusOK))
	e := newEvent(ugly)
	for _, c := range []struct {
		sender   []string
		verifies string // letters
		refuses  string
	}{
		{[]string{secret("b"), secret("a")}, "ab", "c"},
		{[]string{secret("a"), secret("b")}, "ab", "c"},
		{[]string{secret("a"), secret("b"), secret("c")}, "abc", "d"},
		{[]string{secret("b")}, "b", "a"}, // the rotation is over
		{[]string{secret("a") + "\n", " " + strings.TrimPrefix(secret("b"), "whsec_") + "\r\n"}, "ab", "c"},
	} {
		require.NoError(t, send(t, newPublisher(t, s.url, func(cfg *Config) { cfg.Secrets = c.sender }), e))
		all := s.got()
		r := all[len(all)-1]
		require.Len(t, strings.Fields(r.Header.Get("webhook-signature")), len(c.sender))
		for _, letter := range c.verifies {
			verifier, err := standardwebhooks.NewWebhook(secret(string(letter)))
			require.NoError(t, err)
			require.NoError(t, verifier.Verify(r.body, r.Header))
		}
		for _, letter := range c.refuses {
			verifier, err := standardwebhooks.NewWebhook(secret(string(letter)))
			require.NoError(t, err)
			require.Error(t, verifier.Verify(r.body, r.Header))
		}
	}
}

func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	raw := make(chan []byte, 1)
	url, _ := rawServer(t, func(c net.Conn) {
		raw <- readRequest(c)
		_, _ = c.Write([]byte("HTTP/1.1 204 No Content\r\n\r\n"))
	})
	e := newEvent(ugly)
	e.Topic, e.Key = "Bestellung.größer", "Zürich 7"
	require.NoError(t, send(t, newPublisher(t, url), e))
	head, body, _ := bytes.Cut(<-raw, []byte("\r\n\r\n"))
	require.Equal(t, ugly, string(body))
	lines := strings.Split(string(head), "\r\n")
	require.Equal(t, "POST /hook HTTP/1.1", lines[0])
	headers := map[string]string{}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		require.NotContains(t, headers, name)
		headers[name] = value
	}
	require.NotEmpty(t, headers["Host"])
	require.Equal(t, strconv.Itoa(len(ugly)), headers["Content-Length"])
	delete(headers, "Host")
	delete(headers, "Content-Length")
	// The standard's names keep the standard's spelling.
	require.Regexp(t, `^\d{10}$`, headers["webhook-timestamp"])
	require.Regexp(t, `^v1,[A-Za-z0-9+/]{43}=$`, headers["webhook-signature"])
	delete(headers, "webhook-timestamp")
	delete(headers, "webhook-signature")
	require.Equal(t, map[string]string{
		"webhook-id": e.ID.String(), "X-Webhook-Event-Id": e.ID.String(),
		"X-Webhook-Topic": "Bestellung.größer", "X-Webhook-Key": "Zürich 7",
		"Content-Type": "application/json", "User-Agent": "notifyq",
	}, headers)
}

func TestConfiguredHeaders(t *testing.T) {
	t.Parallel()
	s := newSink(t, nil, status(http.StatusOK))
	p := newPublisher(t, s.url, func(cfg *Config) {
		cfg.ContentType, cfg.UserAgent = "text/plain; charset=utf-8", "Shop-Webhooks/1.0"
	})
	e := newEvent("x")
	e.Key = ""
	require.NoError(t, send(t, p, e))
	got := s.got()[0]
	require.Equal(t, "text/plain; charset=utf-8", got.Header.Get("Content-Type"))
	require.Equal(t, "Shop-Webhooks/1.0", got.Header.Get("User-Agent"))
	require.NotContains(t, got.Header, "X-Webhook-Key")
	require.NotContains(t, got.Header, "Accept-Encoding")
}

func TestTopicsThatAreNoHeaderArePermanent(t *testing.T) {
	t.Parallel()
	s := newSink(t, nil, status(http.StatusOK))
	p := newPublisher(t, s.url)
	for _, topic := range []string{"", " ", " a", "a ", "a\r\nX-Evil: 1", "a\nb", "a\x00", "a\x7f", "a\u0085b", "\xff", "a\t"} {
		e := newEvent("x")
		e.Topic = topic
		_, err := p.Start(t.Context(), e)
		require.True(t, notifyq.IsPermanent(err), "%q", topic)
	}
	require.Empty(t, s.got())
	for _, key := range []string{"", " ", "k\r\nX-Evil: 1", "k\x00", "\xff", "k "} {
		e := newEvent("x")
		e.Key = key
		require.NoError(t, send(t, p, e), "%q", key)
	}
	for _, r := range s.got() {
		require.NotContains(t, r.Header, "X-Webhook-Key")
		require.NotContains(t, r.Header, "X-Evil")
	}
}
