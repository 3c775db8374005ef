package api

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is refused as JSON, before anybody looks at members. None of it stores anything.
func TestBodiesThatAreNotStrictJSONAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for name, text := range map[string]string{
		"NUL in the payload":               body("payload", `{"a":[{"b":"x\u0000y"}]}`),
		"NUL after an escaped backslash":   body("payload", `{"a":"\\\u0000"}`),
		"NUL in a name of the payload":     body("payload", `{"k\u0000":1}`),
		"NUL in a name":                    `{"idempotencyKey\u0000":"evil",` + body()[1:],
		"NUL in the recipient":             body("recipient", `"u\u0000@example.test"`),
		"NUL in the key":                   body("idempotencyKey", `"k\u0000"`),
		"lone high surrogate":              body("payload", `{"s":"\ud800"}`),
		"surrogates in the wrong order":    body("payload", `{"s":"\udc00\ud800"}`),
		"half an emoji":                    body("payload", `{"s":"\ud83d"}`),
		"lone surrogate in a name":         body("payload", `{"\ud800":1}`),
		"lone surrogate in the recipient":  body("recipient", `"\ud800@example.test"`),
		"lone surrogate in the key":        body("idempotencyKey", `"\ud801"`),
		"broken UTF-8 in the payload":      body("payload", "{\"t\":\"\xc3\x28 \xed\xa0\x80 \xf5\x80\x80\x80\"}"),
		"broken UTF-8 in the key":          body("idempotencyKey", "\"k\xff\""),
		"duplicate member":                 `{"recipient":"a@example.test",` + body()[1:],
		"duplicate member, escaped":        `{"\u0072ecipient":"a@example.test",` + body()[1:],
		"duplicate in the payload":         body("payload", `{"amount":1,"amount":2}`),
		"duplicate deeper in the payload":  body("payload", `{"o":{"x":1,"x":2}}`),
		"number beyond a double":           body("payload", `{"n":1e400}`),
		"two values":                       body() + body("idempotencyKey", `"other"`),
		"bracket after the value":          body() + "]",
		"text after the value":             body() + " garbage",
		"NUL after the value":              body() + "\x00",
		"byte order mark":                  "\xef\xbb\xbf" + body(),
		"UTF-16":                           "\xff\xfe{\x00}\x00",
		"empty body":                       "",
		"blank body":                       " \n",
		"NaN":                              body("delaySeconds", "NaN"),
		"comment":                          body() + "// no",
		"single quotes":                    `{'idempotencyKey':'k'}`,
		"trailing comma":                   `{"idempotencyKey":"k",}`,
		"leading zero":                     body("delaySeconds", "05"),
		"brackets as deep as they can be":  body("payload", strings.Repeat("[", 32_000)+strings.Repeat("]", 32_000)),
		"objects as deep as they can be":   body("payload", strings.Repeat(`{"a":`, 9_999)+"1"+strings.Repeat("}", 9_999)),
		"a raw control character in a key": body("idempotencyKey", "\"k\n\""),
	} {
		t.Run(name, func(t *testing.T) {
			for target, sent := range map[string]string{
				"/notifications": text, "/notifications/batch": `{"notifications":[` + body("idempotencyKey", `"first"`) + "," + text + "]}",
			} {
				a := s.post(t, target, sent, "Content-Type", "application/json")
				if text == "" && target == "/notifications/batch" || text == " \n" {
					require.Equal(t, http.StatusBadRequest, a.status)
					continue
				}
				p := a.requireProblem(t, http.StatusBadRequest, "invalid_json")
				require.Len(t, p.Errors, 1)
				require.Equal(t, "body", p.Errors[0].Field)
			}
		})
	}
	require.Zero(t, s.stored(t))
}

// What is JSON and no notification.
func TestNotificationsThatBreakARuleAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	deep := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for name, c := range map[string]struct{ body, field string }{
		"null":                            {"null", "body"},
		"an array":                        {"[]", "body"},
		"a string":                        {`"x"`, "body"},
		"a number":                        {"1", "body"},
		"no key":                          {body("idempotencyKey", ""), "idempotencyKey"},
		"null key":                        {body("idempotencyKey", "null"), "idempotencyKey"},
		"empty key":                       {body("idempotencyKey", `""`), "idempotencyKey"},
		"blank key":                       {body("idempotencyKey", `" "`), "idempotencyKey"},
		"tab for a key":                   {body("idempotencyKey", `"\t"`), "idempotencyKey"},
		"invisible key":                   {body("idempotencyKey", `"\u200b"`), "idempotencyKey"},
		"number for a key":                {body("idempotencyKey", "123"), "idempotencyKey"},
		"array for a key":                 {body("idempotencyKey", `["k"]`), "idempotencyKey"},
		"key of 256 bytes":                {body("idempotencyKey", `"`+strings.Repeat("k", 256)+`"`), "idempotencyKey"},
		"key of 256 bytes, 128 letters":   {body("idempotencyKey", `"`+strings.Repeat("é", 128)+`"`), "idempotencyKey"},
		"line end in the key":             {body("idempotencyKey", `"k\r\nX-Evil: 1"`), "idempotencyKey"},
		"forged log line in the key":      {body("idempotencyKey", `"k\nlevel=error msg=forged"`), "idempotencyKey"},
		"no recipient":                    {body("recipient", ""), "recipient"},
		"empty recipient":                 {body("recipient", `""`), "recipient"},
		"recipient of 321 bytes":          {body("recipient", `"`+strings.Repeat("r", 321)+`"`), "recipient"},
		"header in the recipient":         {body("recipient", `"u@example.test\r\nBcc: v@example.test"`), "recipient"},
		"command in the recipient":        {body("recipient", `"u@example.test>\r\nDATA\r\n"`), "recipient"},
		"next line in the recipient":      {body("recipient", `"u@example.test\u0085x"`), "recipient"},
		"line separator in the recipient": {body("recipient", `"u@example.test\u2028x"`), "recipient"},
		"two phone numbers":               {body("recipient", `"+15550100\n+15550199"`), "recipient"},
		"direction turned":                {body("recipient", `"u\u202e@example.test"`), "recipient"},
		"no channel":                      {body("channel", ""), "channel"},
		"empty channel":                   {body("channel", `""`), "channel"},
		"channel that is not served":      {body("channel", `"FAX"`), "channel"},
		"channel in lower case":           {body("channel", `"email"`), "channel"},
		"no payload":                      {body("payload", ""), "payload"},
		"payload of 65,537 bytes":         {body("payload", `"`+strings.Repeat("x", 65_535)+`"`), "payload"},
		"payload of blanks":               {body("payload", "{"+strings.Repeat(" ", 65_535)+"}"), "payload"},
		"payload of 65 levels":            {body("payload", deep(65)), "payload"},
		"payload of 900 levels":           {body("payload", deep(900)), "payload"},
		"unknown member":                  {body("subject", `"s"`), "body"},
		"two unknown members":             {body("subject", `"s"`, "text", "1"), "body"},
		"member in upper case":            {body("RECIPIENT", `"b@example.test"`), "body"},
		"member with a long s":            {body("ſendAt", `"2000-01-01T00:00:00Z"`), "body"},
		"tenant":                          {body("tenant", `"acme"`), "body"},
		"priority in lower case":          {body("priority", `"high"`), "priority"},
		"number for a priority":           {body("priority", "3"), "priority"},
		"empty priority":                  {body("priority", `""`), "priority"},
		"null priority":                   {body("priority", "null"), "priority"},
		"no attempts":                     {body("maxAttempts", "0"), "maxAttempts"},
		"negative attempts":               {body("maxAttempts", "-1"), "maxAttempts"},
		"1,001 attempts":                  {body("maxAttempts", "1001"), "maxAttempts"},
		"attempts beyond an int":          {body("maxAttempts", "4294967297"), "maxAttempts"},
		"half an attempt":                 {body("maxAttempts", "1.5"), "maxAttempts"},
		"attempts with a fraction":        {body("maxAttempts", "2.0"), "maxAttempts"},
		"unknown policy":                  {body("onAmbiguous", `"drop"`), "onAmbiguous"},
		"empty policy":                    {body("onAmbiguous", `""`), "onAmbiguous"},
		"null policy":                     {body("onAmbiguous", "null"), "onAmbiguous"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.post(t, "/notifications", c.body)
			a.requireFault(t, c.field)
			a.requireProblem(t, http.StatusBadRequest, "invalid_request")

			batch := s.post(t, "/notifications/batch", `{"notifications":[`+c.body+"]}")
			require.Equal(t, http.StatusOK, batch.status, batch.body)
			result := batch.object(t)["results"].([]any)[0].(map[string]any)
			require.NotContains(t, result, "id")
			broken := result["error"].(map[string]any)
			require.Equal(t, "invalid_request", broken["code"])
			field := broken["errors"].([]any)[0].(map[string]any)["field"]
			if c.field == "body" {
				require.Equal(t, "notification", field)
			} else {
				require.Equal(t, c.field, field)
			}
		})
	}
	require.Zero(t, s.stored(t))
}

// Who is told to leave out what is required is refused a second time.
func TestNullIsToBeLeftOutOnlyWhereThatIsAllowed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, c := range []struct{ path, body, rule string }{
		{"/notifications", body("idempotencyKey", "null"), "must not be null"},
		{"/notifications", body("recipient", "null"), "must not be null"},
		{"/notifications", body("channel", "null"), "must not be null"},
		{"/notifications", body("priority", "null"), "must not be null; leave it out"},
		{"/notifications", body("delaySeconds", "null"), "must not be null; leave it out"},
		{"/notifications", body("expiresAt", "null"), "must not be null; leave it out"},
		{"/notifications", "null", "must be an object"},
		{"/notifications/batch", "null", "must be an object"},
		{"/notifications/batch", `{"notifications":null}`, "must not be null"},
		{"/notifications/retry", "null", "must be an object"},
		{"/notifications/retry", `{"recipient":null}`, "must not be null; leave it out"},
		{"/channels/EMAIL/pause", `{"reason":null}`, "must not be null; leave it out"},
	} {
		p := s.post(t, c.path, c.body).requireProblem(t, http.StatusBadRequest, "invalid_request")
		require.Len(t, p.Errors, 1, c.body)
		require.Equal(t, c.rule, p.Errors[0].Rule, c.body)
	}
	batch := s.post(t, "/notifications/batch", `{"notifications":[null,`+body("recipient", "null")+`]}`)
	require.Contains(t, batch.body, `{"field":"notification","rule":"must be an object"}`)
	require.Contains(t, batch.body, `{"field":"recipient","rule":"must not be null"}`)
}

func TestKelvinSignIsNoK(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	a := s.post(t, "/notifications", `{"idempotency`+"\u212a"+`ey":"c07",`+body("idempotencyKey", "")[1:])
	p := a.requireProblem(t, http.StatusBadRequest, "invalid_request")
	require.Len(t, p.Errors, 2, "unknown, and the real one missing")
	require.Zero(t, s.stored(t))
}

func TestEveryBrokenRuleOfTheDoorIsNamed(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	p := s.post(t, "/notifications", `{"recipient":1,"priority":"x","delaySeconds":1.5,"zzz":0}`).
		requireProblem(t, http.StatusBadRequest, "invalid_request")
	var fields []string
	for _, e := range p.Errors {
		fields = append(fields, e.Field)
	}
	require.ElementsMatch(t, []string{"recipient", "priority", "delaySeconds", "body", "idempotencyKey", "channel", "payload"}, fields)
}

// What must not be refused, and is kept byte by byte.
func TestPayloadsAreKeptAsSent(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i, payload := range []string{
		`{"a":"x\\u0000y"}`,
		`{"a":9007199254740993,"b":-9223372036854775809,"c":18446744073709551616,"d":0.1000000000000000055511151231257827,"e":123456789012345678901234567890}`,
		`{"t":"\ud83d\ude00 \u202eabc \u2028\u2029 <a&b> é é","\ud83d\ude00":1}`,
		"{\"t\":\"\U0001F600 \u202eabc \u2028\u2029 <a&b> é e\u0301\",\"\U0001F600\":1}",
		`{"b":1.0,"a":  "x","z":{"y":2,"x":1e2}}`,
		`{"subject":"a\r\nX: y","body":".\r\nMAIL FROM:<x>"}`,
		`[1e-400,-0,1E+2]`, `null`, `true`, `""`, `0`, `{}`, `[]`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64),
		`"` + strings.Repeat("x", 65_534) + `"`,
		"{" + strings.Repeat(" ", 65_534) + "}",
	} {
		for kind, send := range map[string]func(key string) string{
			"single": func(key string) string {
				return s.schedule(t, body("idempotencyKey", key, "payload", payload))["id"].(string)
			},
			"batch": func(key string) string {
				a := s.post(t, "/notifications/batch", " {\n\"notifications\" : [ "+body("idempotencyKey", key, "payload", payload)+" ]\r\n}\n\n\n")
				require.Equal(t, http.StatusOK, a.status, a.body)
				return a.object(t)["results"].([]any)[0].(map[string]any)["id"].(string)
			},
		} {
			id := send(`"` + kind + strconv.Itoa(i) + `"`)
			var kept string
			require.NoError(t, s.db.Pool.QueryRow(t.Context(),
				"select payload::text from "+s.db.Schema+".notifications where id = $1", id).Scan(&kept))
			require.Equal(t, payload, kept, kind)
			require.NotContains(t, s.get(t, "/notifications/"+id).body, "payload")
		}
	}
}

func TestEscapedNamesAreTheNamesTheyStandFor(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	job := s.schedule(t, `{"\u0069dempotencyKey":"k","recip\u0069ent":"u@\u0065xample.test","channel":"EMAIL","payload":1}`+"\n\n\n")
	require.Equal(t, "u@example.test", job["recipient"])
}

func TestContentTypesThatAreNotJSONAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, contentType := range []string{
		"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "application/problem+json",
		"application/json; charset=utf-8; x=y", "application", "application/json;;", "text/json",
	} {
		for _, target := range []string{"/notifications", "/notifications/batch", "/notifications/retry"} {
			a := s.post(t, target, body(), "Content-Type", contentType)
			a.requireProblem(t, http.StatusUnsupportedMediaType, "unsupported_media_type")
		}
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write([]byte(body()))
	require.NoError(t, w.Close())
	for _, sent := range []string{packed.String(), body()} {
		s.post(t, "/notifications", sent, "Content-Encoding", "gzip").
			requireProblem(t, http.StatusUnsupportedMediaType, "unsupported_media_type")
	}
	require.Zero(t, s.stored(t))
	for i, contentType := range []string{"application/json", "application/json; charset=utf-8", `Application/JSON;charset="UTF-8"`} {
		s.schedule(t, body("idempotencyKey", `"`+strconv.Itoa(i)+`"`), "Content-Type", contentType)
	}
}

func TestBatchesThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for text, field := range map[string]string{
		"null": "body", "[]": "body", "{}": "notifications", `{"notifications":null}`: "notifications",
		`{"notifications":{}}`: "notifications", `{"notifications":[],"x":1}`: "body",
		`{"Notifications":[],"notifications":[]}`:                               "body",
		`{"notifications":[` + strings.Repeat("1,", 1000) + body() + `]}`:       "notifications",
		`{"notifications":[` + strings.Repeat(body()+",", 1000) + body() + `]}`: "notifications",
	} {
		s.post(t, "/notifications/batch", text).requireFault(t, field)
	}
	require.Zero(t, s.stored(t))
	require.JSONEq(t, `{"results":[]}`, s.post(t, "/notifications/batch", `{"notifications":[]}`).body)
}

func TestBatchAnswersEachAtItsPlace(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	first := s.schedule(t, body("idempotencyKey", `"there"`))
	items := make([]string, 1000)
	for i := range items {
		items[i] = body("idempotencyKey", `"i`+strconv.Itoa(i)+`"`)
	}
	items[3] = body("idempotencyKey", `"there"`)
	items[5] = body("idempotencyKey", `"there"`, "recipient", `"other"`)
	items[7] = body("sendAt", `"2999-01-01T00:00:00Z"`)
	items[999] = body("idempotencyKey", `"i0"`)
	a := s.post(t, "/notifications/batch", `{"notifications":[`+strings.Join(items, ",")+`]}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	results := a.object(t)["results"].([]any)
	require.Len(t, results, 1000)
	at := func(i int) map[string]any { return results[i].(map[string]any) }
	require.Equal(t, map[string]any{"id": first["id"], "replayed": true}, at(3))
	require.Equal(t, map[string]any{"error": map[string]any{"code": "idempotency_key_reused", "errors": []any{}}}, at(5))
	require.Equal(t, "sendAt", at(7)["error"].(map[string]any)["errors"].([]any)[0].(map[string]any)["field"])
	require.Equal(t, at(0)["id"], at(999)["id"])
	require.Equal(t, true, at(999)["replayed"])
	require.Equal(t, 1+1000-4, s.stored(t))
}
