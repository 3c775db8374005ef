package smtp

import (
	"encoding/json"
	"mime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzPayload: what is accepted can be rendered, and its header ends where it should.
func FuzzPayload(f *testing.F) {
	f.Add([]byte(`{"subject":"s","text":"t","html":"<p>h</p>","replyTo":"a@b.example"}`))
	f.Add([]byte(`{"subject":"a\r\nX: y","body":".\r\nMAIL FROM:<x>"}`))
	f.Add([]byte(`{"subject":"\ud83d\ude00 \u202eabc","body":"x","body":"y"}`))
	p, err := New(Config{Host: "localhost", From: testFrom})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, raw []byte) {
		content, err := parsePayload(raw)
		if err != nil {
			return
		}
		require.True(t, json.Valid(raw))
		rendered, err := p.render("id@shop.example", address{wire: "u@example.test"}, content)
		require.NoError(t, err)
		got := received{data: string(rendered)}.parse(t)
		require.Equal(t, content.subject, got.subject)
		for name := range got.header {
			switch name {
			case "Auto-Submitted", "Date", "Message-Id", "Mime-Version", "Subject", "From", "To", "Reply-To", "Content-Type",
				"Content-Transfer-Encoding":
			default:
				t.Fatalf("unexpected header %q", name)
			}
		}
	})
}

// FuzzEncodeHeader: a reader gets back what was written.
func FuzzEncodeHeader(f *testing.F) {
	for _, seed := range []string{"plain", "Grüße", "=?UTF-8?Q?x?=", "  a  ", strings.Repeat("x", 100), strings.Repeat("😀", 30)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !isHeaderSafe(s) {
			return
		}
		encoded := encodeHeader(s)
		for word := range strings.SplitSeq(encoded, " ") {
			require.LessOrEqual(t, len(word), 75)
		}
		require.True(t, isASCII(encoded))
		decoded, err := new(mime.WordDecoder).DecodeHeader(encoded)
		require.NoError(t, err)
		require.Equal(t, s, decoded)
	})
}
