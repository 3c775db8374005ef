package demo_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/demo"
	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/signature"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var (
	secretOld = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("o", 32)))
	secretNew = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("n", 32)))
)

func newReceiver(t *testing.T, db *dbtest.DB, secrets ...string) *demo.Receiver {
	r, err := demo.NewReceiver(db.Pool, demo.ReceiverConfig{Schema: db.Schema, Secrets: secrets})
	require.NoError(t, err)
	require.NoError(t, r.Setup(t.Context()))
	return r
}

// post is a request that is right but for what change does to it.
func post(id, body string, change ...func(*http.Request)) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "/webhooks/mock", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("webhook-id", id)
	req.Header.Set("X-Webhook-Event-Id", id)
	for _, f := range change {
		f(req)
	}
	return req
}

func signed(t *testing.T, at time.Time, body string, secrets ...string) func(*http.Request) {
	keys, err := signature.ParseSecrets(secrets)
	require.NoError(t, err)
	return func(req *http.Request) {
		req.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
		req.Header.Set("webhook-signature", signature.Sign(keys, req.Header.Get("webhook-id"), at, []byte(body)))
	}
}

func header(name, value string) func(*http.Request) {
	return func(req *http.Request) {
		req.Header.Del(name)
		if value != "" {
			req.Header.Set(name, value)
		}
	}
}

func answer(r http.Handler, req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

func TestRepeatedEventsAreCountedAndAcknowledged(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, dbtest.New(t))
	first, second := uuid.NewString(), uuid.NewString()
	for _, c := range []struct{ id, want string }{
		{first, `{"duplicate":false,"redeliveries":0}`},
		{first, `{"duplicate":true,"redeliveries":1}`},
		{second, `{"duplicate":false,"redeliveries":0}`},
		{first, `{"duplicate":true,"redeliveries":2}`},
		{strings.ToUpper(first), `{"duplicate":true,"redeliveries":3}`},
	} {
		w := answer(r, post(c.id, "{}"))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Equal(t, c.want+"\n", w.Body.String())
	}
	stats, err := r.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, demo.ReceiverStats{Events: 2, Redeliveries: 3}, stats)
}

func TestOneOfManyAtOnceIsTheFirst(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, dbtest.New(t))
	id := uuid.NewString()
	var mu sync.Mutex
	var group sync.WaitGroup
	seen := map[int64]int{}
	for range 50 {
		group.Go(func() {
			var got struct{ Redeliveries int64 }
			w := answer(r, post(id, "{}"))
			mu.Lock()
			defer mu.Unlock()
			if json.Unmarshal(w.Body.Bytes(), &got) == nil && w.Code == http.StatusOK {
				seen[got.Redeliveries]++
			}
		})
	}
	group.Wait()
	require.Len(t, seen, 50)
	require.Equal(t, 1, seen[0])
	stats, err := r.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, demo.ReceiverStats{Events: 1, Redeliveries: 49}, stats)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, dbtest.New(t))
	id := uuid.NewString()
	for what, c := range map[string]struct {
		req  *http.Request
		want int
	}{
		"GET":                  {post(id, "{}", func(r *http.Request) { r.Method = http.MethodGet }), 405},
		"PUT":                  {post(id, "{}", func(r *http.Request) { r.Method = http.MethodPut }), 405},
		"no content type":      {post(id, "{}", header("Content-Type", "")), 415},
		"text":                 {post(id, "{}", header("Content-Type", "text/plain")), 415},
		"a broken type":        {post(id, "{}", header("Content-Type", "application/json; x")), 415},
		"a large body":         {post(id, `"`+strings.Repeat("x", 1<<20+4<<10)+`"`), 413},
		"no body":              {post(id, ""), 400},
		"no JSON":              {post(id, "{}{}"), 400},
		"no id":                {post(id, "{}", header("webhook-id", ""), header("X-Webhook-Event-Id", "")), 400},
		"two ids":              {post(id, "{}", header("X-Webhook-Event-Id", uuid.NewString())), 400},
		"no UUID":              {post("canary-7", "{}"), 400},
		"a UUID in braces":     {post("{"+id+"}", "{}"), 400},
		"a UUID without marks": {post(strings.ReplaceAll(id, "-", ""), "{}"), 400},
		"a UUID as URN":        {post("urn:uuid:"+id, "{}"), 400},
		"a body that breaks":   {post(id, "", func(r *http.Request) { r.Body = io.NopCloser(&broken{}) }), 400},
	} {
		w := answer(r, c.req)
		require.Equal(t, c.want, w.Code, what)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), what)
		var problem struct{ Status int }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
		require.Equal(t, c.want, problem.Status)
		require.NotContains(t, w.Body.String(), "canary")
		require.Equal(t, c.want == 405, w.Header().Get("Allow") == "POST")
	}
	for what, req := range map[string]*http.Request{
		"only webhook-id":         post(id, "{}", header("X-Webhook-Event-Id", "")),
		"only X-Webhook-Event-Id": post(id, "{}", header("webhook-id", "")),
		"a charset":               post(id, "{}", header("Content-Type", "Application/JSON; charset=utf-8")),
		"the largest event":       post(id, `"`+strings.Repeat("x", 1<<20-2)+`"`),
	} {
		require.Equal(t, http.StatusOK, answer(r, req).Code, what)
	}
}

type broken struct{}

func (*broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestSignatureIsChecked(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	r := newReceiver(t, db, secretNew, secretOld)
	id, body, now := uuid.NewString(), `{"a":1.0}`, time.Now()
	for what, req := range map[string]*http.Request{
		"unsigned":          post(id, body),
		"another secret":    post(id, body, signed(t, now, body, "whsec_"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 32))))),
		"another body":      post(id, body, signed(t, now, `{"a":1}`, secretNew)),
		"an hour old":       post(id, body, signed(t, now.Add(-time.Hour), body, secretNew)),
		"another id":        post(id, body, signed(t, now, body, secretNew), header("webhook-id", uuid.NewString())),
		"only the plain id": post(id, body, signed(t, now, body, secretNew), header("webhook-id", "")),
	} {
		require.Equal(t, http.StatusUnauthorized, answer(r, req).Code, what)
	}
	require.Equal(t, http.StatusBadRequest,
		answer(r, post(id, body, signed(t, now, body, secretNew), header("X-Webhook-Event-Id", uuid.NewString()))).Code)
	stats, err := r.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, stats)
	for _, secrets := range [][]string{{secretOld}, {secretNew}, {secretNew, secretOld}} {
		require.Equal(t, http.StatusOK, answer(r, post(id, body, signed(t, now, body, secrets...))).Code)
	}
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var logs bytes.Buffer
	r, err := demo.NewReceiver(db.Pool, demo.ReceiverConfig{
		Schema: db.Schema, Logger: slog.New(slog.NewTextHandler(&logs, nil)),
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, answer(r, post(uuid.NewString(), `"canary"`)).Code, "no table yet")
	require.NoError(t, r.Setup(t.Context()))
	require.Equal(t, http.StatusOK, answer(r, post(uuid.NewString(), `"canary"`)).Code)
	db.Pool.Close()
	w := answer(r, post(uuid.NewString(), `"canary"`))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "5", w.Header().Get("Retry-After"))
	_, err = r.Stats(t.Context())
	require.Error(t, err)
	require.Error(t, r.Setup(t.Context()))
	require.Contains(t, logs.String(), "demo.received")
	require.Contains(t, logs.String(), "demo.unavailable")
	require.NotContains(t, logs.String(), "canary")
}

func TestSetupByManyAtOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	r, err := demo.NewReceiver(db.Pool, demo.ReceiverConfig{Schema: db.Schema})
	require.NoError(t, err)
	failures := make(chan error, 8)
	for range 8 {
		go func() { failures <- r.Setup(t.Context()) }()
	}
	for range 8 {
		require.NoError(t, <-failures)
	}
	require.Equal(t, http.StatusOK, answer(r, post(uuid.NewString(), "{}")).Code)
	require.NoError(t, r.Setup(t.Context()))
	stats, err := r.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, stats.Events)
}

func TestBadSettings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a b", `x"; drop table y; --`, "pg_x"} {
		_, err := demo.NewReceiver(nil, demo.ReceiverConfig{Schema: name})
		require.ErrorIs(t, err, schema.ErrUnfit)
	}
	_, err := demo.NewReceiver(nil, demo.ReceiverConfig{Schema: "notifyq", Secrets: []string{"hunter2"}})
	require.EqualError(t, err, "secrets must hold whsec_ and standard base64")
}
