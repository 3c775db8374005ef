package signature

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The standard's own vector, and what must not pass for it.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	vectorBad       = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
)

func keysOf(t testing.TB, secrets ...string) []Key {
	keys, err := ParseSecrets(secrets)
	require.NoError(t, err)
	return keys
}

func vector() Message {
	return Message{ID: vectorID, Timestamp: fmt.Sprint(vectorTime), Signatures: vectorSignature, Body: []byte(vectorBody)}
}

func TestVector(t *testing.T) {
	t.Parallel()
	at := time.Unix(vectorTime, 0)
	for _, secret := range []string{vectorSecret, strings.TrimPrefix(vectorSecret, SecretPrefix), " " + vectorSecret + "\n"} {
		require.Equal(t, vectorSignature, Sign(keysOf(t, secret), vectorID, at.Add(999*time.Millisecond), []byte(vectorBody)))
		require.NoError(t, Verify(keysOf(t, secret), vector(), at, time.Minute))
	}
}

func TestSignatureLists(t *testing.T) {
	t.Parallel()
	for _, list := range []string{
		vectorSignature,
		vectorSignature + " " + vectorBad,
		vectorBad + " v2,xxx " + vectorSignature,
		"v1a,xxx  " + vectorSignature,
		"v1, v1 , v1,!!! " + vectorSignature,
	} {
		m := vector()
		m.Signatures = list
		require.NoError(t, Verify(keysOf(t, vectorSecret), m, time.Unix(vectorTime, 0), time.Minute), list)
	}
	for _, list := range []string{
		vectorBad, "v1,", "v1", "v1,=", ",", "v2" + vectorSignature[2:], "V1" + vectorSignature[2:], vectorSignature[3:],
		strings.ReplaceAll(vectorSignature, ",", ", "), vectorSignature[:len(vectorSignature)-1], vectorSignature + "=",
		"x" + vectorSignature, vectorSignature[:20], strings.ReplaceAll(vectorSignature, "/", "_"),
		strings.TrimSuffix(vectorSignature, "OE=") + "OF=", // other bits behind the last byte
	} {
		m := vector()
		m.Signatures = list
		require.EqualError(t, Verify(keysOf(t, vectorSecret), m, time.Unix(vectorTime, 0), time.Minute), "no signature matches", list)
	}
}

func TestEveryPartIsSigned(t *testing.T) {
	t.Parallel()
	for what, alter := range map[string]func(*Message){
		"id":                    func(m *Message) { m.ID += "x" },
		"timestamp":             func(m *Message) { m.Timestamp = "1614265331" },
		"body":                  func(m *Message) { m.Body = []byte(`{"test":2432232314}`) },
		"body, a newline":       func(m *Message) { m.Body = append(m.Body, '\n') },
		"body, nothing":         func(m *Message) { m.Body = nil },
		"no id":                 func(m *Message) { m.ID = "" },
		"no timestamp":          func(m *Message) { m.Timestamp = "" },
		"no signature":          func(m *Message) { m.Signatures = "" },
		"a dot in the id":       func(m *Message) { m.ID = "msg.p5jXN8AQM9LWM0D4loKWxJek" },
		"timestamp +":           func(m *Message) { m.Timestamp = "+1614265330" },
		"timestamp 0":           func(m *Message) { m.Timestamp = "01614265330" },
		"timestamp, a fraction": func(m *Message) { m.Timestamp = "1614265330.0" },
		"timestamp, negative":   func(m *Message) { m.Timestamp = "-1" },
		"timestamp, a date":     func(m *Message) { m.Timestamp = "2021-02-25T15:02:10Z" },
		"timestamp, huge":       func(m *Message) { m.Timestamp = "9223372036854775807" },
		"timestamp, in ms":      func(m *Message) { m.Timestamp = "1614265330000" },
	} {
		m := vector()
		alter(&m)
		err := Verify(keysOf(t, vectorSecret), m, time.Unix(vectorTime, 0), time.Minute)
		require.Error(t, err, what)
		require.NotContains(t, err.Error(), "2432232314")
		if strings.HasPrefix(what, "timestamp, ") || strings.HasPrefix(what, "timestamp ") {
			require.EqualError(t, err, "webhook-timestamp must be whole seconds since 1970", what)
		}
	}
	err := Verify(keysOf(t, otherSecrets(1)...), vector(), time.Unix(vectorTime, 0), time.Minute)
	require.EqualError(t, err, "no signature matches")
	require.Error(t, Verify(nil, vector(), time.Unix(vectorTime, 0), time.Minute))
}

// One text must not be two messages.
func TestPartsCannotBeShifted(t *testing.T) {
	t.Parallel()
	keys, at := keysOf(t, vectorSecret), time.Unix(1000, 0)
	m := Message{ID: "a", Timestamp: "1000", Signatures: Sign(keys, "a", at, []byte("2000.x")), Body: []byte("2000.x")}
	require.NoError(t, Verify(keys, m, at, time.Minute))
	m.ID, m.Timestamp, m.Body = "a.1000", "2000", []byte("x")
	require.EqualError(t, Verify(keys, m, time.Unix(2000, 0), time.Minute), "webhook-id must not contain a dot")
}

func TestTolerance(t *testing.T) {
	t.Parallel()
	const tolerance = 5 * time.Minute
	at := time.Unix(vectorTime, 0)
	for _, c := range []struct {
		now  time.Time
		want string
	}{
		{at, ""},
		{at.Add(tolerance), ""},
		{at.Add(tolerance + 1), "webhook-timestamp is too old"},
		{at.Add(time.Hour), "webhook-timestamp is too old"},
		{at.Add(-tolerance), ""},
		{at.Add(-tolerance - 1), "webhook-timestamp is too far in the future"},
	} {
		err := Verify(keysOf(t, vectorSecret), vector(), c.now, tolerance)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, c.want)
	}
	// Who can't sign learns nothing of the clock.
	m := vector()
	m.Signatures = vectorBad
	require.EqualError(t, Verify(keysOf(t, vectorSecret), m, at.Add(time.Hour), tolerance), "no signature matches")
}

// otherSecrets are n that have nothing to do with the vector.
func otherSecrets(n int) []string {
	secrets := make([]string, n)
	for i := range secrets {
		secrets[i] = SecretPrefix + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune('a'+i)), 32)))
	}
	return secrets
}

func TestRotationInEveryPosition(t *testing.T) {
	t.Parallel()
	three := otherSecrets(3)
	at := time.Unix(vectorTime, 0)
	signed := Message{ID: "x", Timestamp: fmt.Sprint(vectorTime), Signatures: Sign(keysOf(t, three...), "x", at, []byte("b")), Body: []byte("b")}
	require.Len(t, strings.Fields(signed.Signatures), 3)
	for _, secret := range three {
		require.NoError(t, Verify(keysOf(t, secret), signed, at, 0), "the receiver has one of the three")
		one := signed
		one.Signatures = Sign(keysOf(t, secret), "x", at, []byte("b"))
		require.NoError(t, Verify(keysOf(t, three...), one, at, 0), "the receiver has all three")
	}
	require.Error(t, Verify(keysOf(t, vectorSecret), signed, at, 0))
}

func TestParseSecrets(t *testing.T) {
	t.Parallel()
	encoded := func(n int) string { return base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\xfb", n))) }
	for _, n := range []int{24, 25, 26, 32, 64} {
		keys, err := ParseSecrets([]string{encoded(n), "whsec_" + encoded(n) + "\r\n"})
		require.NoError(t, err)
		require.Equal(t, keys[0], keys[1])
		require.Len(t, keys[0].raw, n)
	}
	for want, list := range map[string][][]string{
		"must hold at least one secret":                  {nil, {}},
		"must not hold an empty secret":                  {{""}, {" \n"}, {"whsec_"}, {"whsec_\n"}, {vectorSecret, ""}},
		"must hold at most 10 secrets":                   {otherSecrets(11)},
		"must hold secrets of 24 to 64 bytes, in base64": {{encoded(23)}, {encoded(65)}, {"whsec_" + encoded(1)}},
		"must hold whsec_ and standard base64":           {{"hunter2!"}, {"whsec_" + encoded(25)[:35]}, {"WHSEC_" + encoded(24)}, {"whsec_whsec_" + encoded(24)}, {strings.ReplaceAll(encoded(24), "+", "-")}, {encoded(24) + "," + encoded(24)}, {encoded(24) + "\n" + encoded(24)}, {encoded(24)[:8] + "\n" + encoded(24)[8:]}, {encoded(25)[:33] + "x=="}},
	} {
		for _, secrets := range list {
			_, err := ParseSecrets(secrets)
			require.EqualError(t, err, want, "%q", secrets)
		}
	}
}

func TestKeysDoNotPrint(t *testing.T) {
	t.Parallel()
	keys := keysOf(t, otherSecrets(1)...)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		text := fmt.Sprintf(format, keys) + fmt.Sprintf(format, keys[0])
		require.NotContains(t, text, "97", format)
		require.NotContains(t, text, "61", format)
		require.NotContains(t, text, "aaaa", format)
	}
}

func FuzzParseSecrets(f *testing.F) {
	for _, secret := range []string{vectorSecret, "whsec_", "", "\n", "whsec_!!!!", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		f.Add(secret)
	}
	f.Fuzz(func(t *testing.T, secret string) {
		keys, err := ParseSecrets([]string{secret})
		if err != nil {
			if trimmed := strings.TrimSpace(secret); len(trimmed) > 8 {
				require.NotContains(t, err.Error(), trimmed)
			}
			return
		}
		// What is taken is the canonical text of its bytes, and nothing else is.
		require.Equal(t, strings.TrimPrefix(strings.TrimSpace(secret), SecretPrefix), base64.StdEncoding.EncodeToString(keys[0].raw))
		require.GreaterOrEqual(t, len(keys[0].raw), MinSecretBytes)
		require.LessOrEqual(t, len(keys[0].raw), MaxSecretBytes)
	})
}

func FuzzVerify(f *testing.F) {
	f.Add(vectorID, fmt.Sprint(vectorTime), vectorSignature, []byte(vectorBody))
	f.Add("a.b", "+1", "v1, v1,x", []byte(nil))
	f.Fuzz(func(t *testing.T, id, timestamp, signatures string, body []byte) {
		m := Message{ID: id, Timestamp: timestamp, Signatures: signatures, Body: body}
		at := time.Unix(vectorTime, 0)
		if Verify(keysOf(t, vectorSecret), m, at, 0) == nil {
			require.Contains(t, strings.Fields(signatures), Sign(keysOf(t, vectorSecret), id, at, body))
		}
		require.Error(t, Verify(keysOf(t, otherSecrets(1)...), m, at, 0))
	})
}
