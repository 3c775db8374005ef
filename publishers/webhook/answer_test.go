package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestStatusDecidesOutcome(t *testing.T) {
	t.Parallel()
	class := func(err error) string {
		switch {
		case err == nil:
			return "acknowledged"
		case notifyq.IsGone(err):
			return "gone"
		case notifyq.IsRejected(err):
			return "rejected"
		case notifyq.IsNotSent(err), notifyq.IsPermanent(err):
			return "wrong"
		}
		return "unknown"
	}
	for want, codes := range map[string][]int{
		"acknowledged": {200, 201, 202, 204, 206, 250, 299},
		"gone":         {410},
		"unknown":      {502, 504},
		"rejected": {
			101, 300, 301, 302, 303, 304, 305, 307, 308, 399, 400, 401, 403, 404, 408, 409, 411, 413, 418, 422, 425, 429, 451, 499,
			500, 501, 503, 505, 511, 520, 599, 600, 999,
		},
	} {
		for _, code := range codes {
			url, conns := rawServer(t, answering(func(c net.Conn) {
				_, _ = fmt.Fprintf(c, "HTTP/1.1 %d Whatever\r\nContent-Length: 0\r\n\r\n", code)
			}))
			err := send(t, newPublisher(t, url), newEvent("x"))
			require.Equal(t, want, class(err), code)
			require.EqualValues(t, 1, conns.Load())
			if err == nil {
				continue
			}
			var answer *AnswerError
			require.ErrorAs(t, err, &answer)
			require.Equal(t, AnswerError{Status: code}, *answer)
			require.Contains(t, err.Error(), fmt.Sprintf("webhook: %d", code))
			require.NotContains(t, err.Error(), "Whatever")
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	second, conns := rawServer(t, func(net.Conn) {})
	locations := []string{
		second, second + "/a/b?c", strings.Replace(second, "http:", "https:", 1), strings.TrimPrefix(second, "http:"),
		"http://127.0.0.1:5432/", "http://169.254.169.254/latest/meta-data/", "file:///etc/passwd", "gopher://127.0.0.1/",
		"/hook", "", "://", "http://user:pw@127.0.0.1/",
	}
	var code, at atomic.Int64
	s := newSink(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", locations[at.Load()])
		w.WriteHeader(int(code.Load()))
	})
	p := newPublisher(t, s.url)
	sent := 0
	for _, c := range []int64{301, 302, 303, 307, 308} {
		for i := range locations {
			code.Store(c)
			at.Store(int64(i))
			err := send(t, p, newEvent("x"))
			requireRejected(t, err)
			require.ErrorContains(t, err, "a redirect, not followed")
			if locations[i] != "" {
				require.NotContains(t, err.Error(), locations[i])
			}
			sent++
		}
	}
	require.Len(t, s.got(), sent, "not to itself either")
	require.Zero(t, conns.Load())
}

func TestRetryAfterOfAnswers(t *testing.T) {
	t.Parallel()
	var code atomic.Int64
	s := newSink(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(int(code.Load()))
	})
	p := newPublisher(t, s.url)
	for _, c := range []int64{302, 400, 404, 429, 500, 502, 503, 504} {
		code.Store(c)
		err := send(t, p, newEvent("x"))
		wait, asked := notifyq.RetryDelay(err)
		require.True(t, asked)
		require.Equal(t, 2*time.Minute, wait)
		require.Equal(t, c != 502 && c != 504, notifyq.IsRejected(err))
		require.False(t, notifyq.IsPermanent(err))
	}
	code.Store(410)
	err := send(t, p, newEvent("x"))
	require.True(t, notifyq.IsGone(err))
	_, asked := notifyq.RetryDelay(err)
	require.False(t, asked)
	code.Store(200)
	require.NoError(t, send(t, p, newEvent("x")))
}

func TestTextOfAnswers(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                                  "",
		"unknown job":                       "unknown job",
		" a\r\n\tb\n":                       "a b",
		"a\x00b\x1b[31m\x7f\u0085c":         "a\uFFFDb\uFFFD[31m\uFFFD c",
		"a\xff\xfe\xfdb":                    "a\uFFFDb",
		"a\u2028b\u202ec\u200e":             "a b\uFFFDc\uFFFD",
		"\xed\xa0\x80 \xc0\x80 \xf4\x90":    "\uFFFD \uFFFD \uFFFD",
		strings.Repeat("é", 2500):           strings.Repeat("é", 2048),
		"a" + strings.Repeat("é", 2500):     "a" + strings.Repeat("é", 2047), // not half of one
		strings.Repeat("\x00", 5000):        strings.Repeat("\uFFFD", 1365),
		strings.Repeat("\xffa", 5000):       strings.Repeat("\uFFFDa", 1024),
		"Cannot POST /hook?token=hush-hush": "Cannot POST […]",
	} {
		s := newSink(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, raw)
		})
		err := send(t, newPublisher(t, s.url), newEvent("{}"))
		var answer *AnswerError
		require.ErrorAs(t, err, &answer)
		require.Equal(t, want, answer.Text, "%.50q", raw)
		require.LessOrEqual(t, len(answer.Text), maxTextBytes)
		require.True(t, utf8.ValidString(answer.Text))
		require.Equal(t, -1, strings.IndexFunc(answer.Text, unicode.IsControl))
		require.NotContains(t, err.Error(), "hush")
	}
}

func TestAnswersAreNotDecompressed(t *testing.T) {
	t.Parallel()
	// A gzip stream of zeros is itself mostly zeros.
	bomb := append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3}, make([]byte, 1<<20)...)
	for _, code := range []int{http.StatusOK, http.StatusBadRequest} {
		s := newSink(t, nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(code)
			_, _ = w.Write(bomb)
		})
		err := send(t, newPublisher(t, s.url), newEvent("x"))
		require.Equal(t, code == http.StatusOK, err == nil)
		if err != nil {
			requireRejected(t, err)
			require.LessOrEqual(t, len(err.Error()), maxTextBytes+100)
		}
		require.NotContains(t, s.got()[0].Header, "Accept-Encoding")
	}
}

// The server here quotes the request.
func TestErrorsRepeatNothingOfTheEvent(t *testing.T) {
	t.Parallel()
	const canary = "+49-151-2345678"
	s := newSink(t, nil, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, "POST %s: key %s is bad; to=%s; signed %s with %s", r.URL, r.Header.Get(headerKey), canary,
			r.Header.Get("webhook-signature"), secret("a"))
	})
	e := newEvent(`{"to":"` + canary + `"}`)
	e.Key = "key-of-user-42"
	err := send(t, newPublisher(t, s.url), e)
	requireRejected(t, err)
	for _, private := range []string{canary, "2345", e.Key, "user-42", "hush", "token", secret("a")[6:], secret("a")[10:20]} {
		require.NotContains(t, err.Error(), private)
		require.NotContains(t, fmt.Sprintf("%+v %#v", err, errors.Unwrap(err)), private)
	}
	require.ErrorContains(t, err, "webhook: 400 Bad Request: POST […]: key […] is bad; to=[…]")
}

func TestEchoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, source, want string }{
		{"", "", ""},
		{"abc", "abc", "abc"}, // too short to mean anything
		{"id 7", "7", "id 7"},
		{"is abcd ok", "abcd", "is […] ok"},
		{"abcdabcd", "abcd", "[…]"},
		{"aaaaa", "aaaa", "[…]"},
		{"abcdefg", "abcdefgh", "abcdefg"}, // seven of eight
		{"abcdefgh", "abcdefgh", "[…]"},
		{"x abcdefgh y", "--abcdefgh--", "x […] y"},
		{"x abcdefghijklm y", "abcdefghi", "x […]jklm y"},
		{"x abcdefgh y abcdefgh z", "abcdefgh", "x […] y […] z"},
		{"short", "a much longer source", "short"},
		{"nothing in common", "0123456789", "nothing in common"},
	} {
		require.Equal(t, c.want, withoutEchoes([]byte(c.text), []byte(c.source)), "%+v", c)
	}
	large := strings.Repeat("0123456789abcdef", 1<<16) // a megabyte, in a moment
	start := time.Now()
	require.Equal(t, "x[…]y", withoutEchoes([]byte("x"+large[:4000]+"y"), []byte(large)))
	require.Less(t, time.Since(start), 2*time.Second)
}

func FuzzEchoes(f *testing.F) {
	f.Add([]byte("x abcdefgh y"), []byte("abcdefgh"))
	f.Add([]byte("aaaaaaaaaaaa"), []byte("aaaa"))
	f.Fuzz(func(t *testing.T, text, source []byte) {
		kept := withoutEchoes(text, source)
		for i := range len(source) - echoBytes + 1 {
			window := source[i : i+echoBytes]
			if !bytes.ContainsFunc(window, func(r rune) bool { return r == utf8.RuneError || strings.ContainsRune(echoMark, r) }) {
				require.NotContains(t, kept, string(window))
			}
		}
		if len(source) >= shortEchoBytes && len(source) < echoBytes && !strings.ContainsAny(string(source), echoMark) && utf8.Valid(source) {
			require.NotContains(t, kept, string(source))
		}
	})
}

// The next request finds a new connection after a bad answer, and the old one after a good one.
func TestConnectionIsNotUsedAgainAfterABadAnswer(t *testing.T) {
	t.Parallel()
	server, client := certificate(t)
	for what, body := range map[string]string{"nothing": "", "little": "no", "much": strings.Repeat("no", 5000)} {
		for _, secured := range []bool{false, true} {
			var requests atomic.Int64
			answer := func(w http.ResponseWriter, _ *http.Request) {
				if requests.Add(1)%2 == 0 {
					w.WriteHeader(http.StatusInternalServerError)
				}
				_, _ = io.WriteString(w, body)
			}
			var s *sink
			var p *Publisher
			if secured {
				tlsConfig := server.Clone()
				tlsConfig.NextProtos = []string{"http/1.1"}
				s = newSink(t, tlsConfig, answer)
				p = newPublisher(t, s.url, func(cfg *Config) { cfg.TLS = client })
			} else {
				s = newSink(t, nil, answer)
				p = newPublisher(t, s.url)
			}
			for i := range 20 {
				err := send(t, p, newEvent("x"))
				require.Equal(t, i%2 == 0, err == nil, "%v", err)
			}
			require.EqualValues(t, 10, s.conns.Load(), "%s, TLS: %t", what, secured)
		}
	}
}

// What others have under way at that moment is not disturbed, and nothing is sent twice.
func TestBadAnswersDisturbNobodyElse(t *testing.T) {
	t.Parallel()
	s := newSink(t, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerTopic) == "bad" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	p := newPublisher(t, s.url)
	failures := make(chan error, 1000)
	done := make(chan struct{})
	for worker := range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range 50 {
				e := newEvent("x")
				if (worker+i)%3 == 0 {
					e.Topic = "bad"
				}
				err := send(t, p, e)
				if (e.Topic == "bad") != notifyq.IsRejected(err) {
					failures <- err
				}
			}
		}()
	}
	for range 8 {
		<-done
	}
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	seen := map[string]bool{}
	for _, r := range s.got() {
		require.False(t, seen[r.Header.Get("webhook-id")])
		seen[r.Header.Get("webhook-id")] = true
	}
	require.Len(t, seen, 400)
}
