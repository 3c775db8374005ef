package api

import (
	"bytes"
	"encoding/json"
	"net/url"
	"reflect"
	"testing"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/strictjson"
)

func seeds(f *testing.F) {
	for _, text := range []string{
		body(), body("sendAt", `"2030-01-31T09:30:00.5+02:00"`, "maxAttempts", "7", "priority", `"LOW"`, "onAmbiguous", `"park"`),
		body("delaySeconds", "9223372036854775808"), body("payload", ` {"a":[1,"\"}",{"b" : null}] , "c\\":"\\"}`), "null", "[]", `{"a":1,"\u0061b":{}}`,
		`{"notifications":[` + body() + `,{},null]}`, `{"limit":1,"perSecond":1e9,"since":"2030-01-31T09:30:00Z","reason":"é"}`,
	} {
		f.Add([]byte(text))
	}
}

// FuzzMembers compares the walk over an object with encoding/json.
func FuzzMembers(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if strictjson.Check(text, strictjson.Limits{MaxDepth: maxBodyDepth}) != nil {
			t.Skip()
		}
		value := bytes.Trim(text, " \t\r\n")
		switch value[0] {
		case '{':
			got, want := map[string]json.RawMessage{}, map[string]json.RawMessage{}
			for name, member := range members(value) {
				got[string(name)] = member
			}
			if err := json.Unmarshal(value, &want); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q, and not %q (%v)", got, want, err)
			}
		case '[':
			got, want := []json.RawMessage{}, []json.RawMessage{}
			for element := range elements(value) {
				got = append(got, element)
			}
			if err := json.Unmarshal(value, &want); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q, and not %q (%v)", got, want, err)
			}
		}
	})
}

// FuzzDecode holds every decoder to what encoding/json reads, where both read something.
func FuzzDecode(f *testing.F) {
	seeds(f)
	a := &api{cfg: Config{Channels: []notifyq.Channel{"EMAIL"}}}
	f.Fuzz(func(t *testing.T, text []byte) {
		if strictjson.Check(text, strictjson.Limits{MaxDepth: maxBodyDepth}) != nil {
			t.Skip()
		}
		value := bytes.Trim(text, " \t\r\n")
		_, _ = decodeBatch(value)
		_, _ = decodeBulkRetry(value)
		_, _ = decodeEnable(value)
		_, _ = decodeReason(value)
		n, broken := a.decodeNotification("body", value)
		if broken != nil {
			for _, fault := range broken {
				if fault.Field == "" || fault.Rule == "" {
					t.Fatalf("%+v", broken)
				}
			}
			return
		}
		var want notificationBody
		if err := json.Unmarshal(value, &want); err != nil {
			if n.Delay > notifyq.Horizon || n.Delay < 0 || n.MaxAttempts < 0 || n.MaxAttempts > notifyq.MaxAttemptsLimit {
				return // beyond an int; the library refuses it
			}
			t.Fatal(err)
		}
		switch {
		case n.IdempotencyKey != want.IdempotencyKey, n.Recipient != want.Recipient, string(n.Channel) != want.Channel,
			!bytes.Equal(n.Payload, want.Payload), !n.SendAt.Equal(want.SendAt), !n.ExpiresAt.Equal(want.ExpiresAt),
			string(n.OnAmbiguous) != want.OnAmbiguous:
			t.Fatalf("%+v, and not %+v", n, want)
		}
	})
}

// FuzzQuery: what is accepted has only what is known, once, and not empty.
func FuzzQuery(f *testing.F) {
	for _, raw := range []string{"", "limit=5&cursor=x", "limit=+5", "a;b", "%zz", "recipient=%ff", "status=&status="} {
		f.Add(raw)
	}
	known := listParameters()
	f.Fuzz(func(t *testing.T, raw string) {
		query, err := readQuery(raw, known)
		if err != nil {
			return
		}
		want, parseErr := url.ParseQuery(raw)
		if parseErr != nil || !reflect.DeepEqual(query, want) || len(query) > len(known) {
			t.Fatal(query, parseErr)
		}
		for _, values := range query {
			if len(values) != 1 || values[0] == "" {
				t.Fatal(query)
			}
		}
		if limit, err := readLimit(query); err == nil && query.Has("limit") && limit == 0 {
			t.Fatal("a limit that is none")
		}
	})
}

// FuzzTime: what is accepted survives a round trip.
func FuzzTime(f *testing.F) {
	f.Add("2030-01-31T09:30:00.123456789+02:00")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, ok := parseTime(text)
		if !ok {
			return
		}
		again, ok := parseTime(parsed.Format("2006-01-02T15:04:05.000000000Z07:00"))
		if !ok || !again.Equal(parsed) {
			t.Fatal(text)
		}
	})
}
