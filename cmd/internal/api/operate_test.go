package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/notifyqtest"
)

func split(call string) (method, target string) {
	method, target, _ = strings.Cut(call, " ")
	return method, target
}

func (s *server) pageAs(t *testing.T, target, key string) page {
	t.Helper()
	saved := s.http
	defer func() { s.http = saved }()
	s.http = &http.Client{Transport: withKey{key, saved.Transport}}
	return s.page(t, target)
}

type withKey struct {
	key  string
	next http.RoundTripper
}

func (w withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.key)
	return w.next.RoundTrip(r)
}

// byName is a provider that does what the recipient's name begins with.
type byName struct{}

func (byName) Deliver(_ context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	switch {
	case strings.HasPrefix(d.Recipient, "invalid"):
		return notifyq.Receipt{}, notifyq.Permanent(errors.New("no such address"))
	case strings.HasPrefix(d.Recipient, "down"):
		return notifyq.Receipt{}, errors.New("try later")
	default:
		return notifyq.Receipt{ProviderID: "p-1"}, nil
	}
}

// deliver runs what is due to its end.
func (s *server) deliver(t *testing.T) {
	t.Helper()
	require.NoError(t, notifyqtest.RunDue(t.Context(), s.db.Pool, notifyq.WorkerConfig{
		Schema: s.db.Schema, Providers: map[notifyq.Channel]notifyq.ProviderConfig{notifyq.ChannelEmail: {Provider: byName{}}},
	}))
}

func (s *server) made(t *testing.T, key, recipient string, more ...string) string {
	t.Helper()
	changes := append([]string{"idempotencyKey", strconv.Quote(key), "recipient", strconv.Quote(recipient)}, more...)
	return s.schedule(t, body(changes...))["id"].(string)
}

func TestJobsLifeOverHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	sent := s.made(t, "1", "ok@example.test")
	failed := s.made(t, "2", "invalid@example.test")
	dead := s.made(t, "3", "down@example.test", "maxAttempts", "1")
	waiting := s.made(t, "4", "ok@example.test", "delaySeconds", "3600")
	s.deliver(t)

	job := s.get(t, "/notifications/"+sent).object(t)
	require.Equal(t, "SENT", job["status"])
	require.Equal(t, "p-1", job["providerId"])
	require.NotNil(t, job["sentAt"])
	require.Nil(t, job["failedAt"])
	require.EqualValues(t, 1, job["attemptCount"])

	job = s.get(t, "/notifications/"+strings.ToUpper(failed)).object(t)
	require.Equal(t, "FAILED", job["status"])
	require.Equal(t, "refused", job["reason"])
	require.NotNil(t, job["failedAt"])
	require.Equal(t, failed, job["id"])
	attempts := s.get(t, "/notifications/"+failed+"/attempts").object(t)["items"].([]any)
	require.Len(t, attempts, 1)
	require.Equal(t, "permanent", attempts[0].(map[string]any)["class"])

	require.Len(t, s.list(t, "status", "DEAD_LETTERED").Items, 1)
	for id, status := range map[string]string{sent: "SENT", failed: "FAILED", dead: "DEAD_LETTERED"} {
		p := s.do(t, http.MethodDelete, "/notifications/"+id, "").requireProblem(t, http.StatusConflict, "not_cancellable")
		require.Equal(t, status, p.CurrentStatus)
	}
	for id, status := range map[string]string{sent: "SENT", waiting: "PENDING"} {
		p := s.post(t, "/notifications/"+id+"/retry", "").requireProblem(t, http.StatusConflict, "not_redrivable")
		require.Equal(t, status, p.CurrentStatus)
	}

	for range 2 { // the second changes nothing
		a := s.do(t, http.MethodDelete, "/notifications/"+waiting, "")
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, "CANCELLED", a.object(t)["status"])
	}
	a := s.post(t, "/notifications/"+dead+"/retry", `{"reason":"the provider is back"}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, "PENDING", a.object(t)["status"])
	require.EqualValues(t, 1, a.object(t)["redriveCount"])
	require.NotNil(t, a.object(t)["lastRedrivenAt"])
}

func TestManyAreRetriedOldestFirst(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i := range 5 {
		s.made(t, "d"+strconv.Itoa(i), "down"+strconv.Itoa(i%2), "maxAttempts", "1")
	}
	s.made(t, "f", "invalid@example.test")
	s.deliver(t)
	retry := func(text string) string {
		a := s.post(t, "/notifications/retry", text)
		require.Equal(t, http.StatusOK, a.status, a.body)
		return a.body
	}
	require.JSONEq(t, `{"retried":1,"remaining":2}`, retry(`{"recipient":"down0","limit":1,"perSecond":2.5}`))
	require.JSONEq(t, `{"retried":0,"remaining":0}`, retry(`{"since":"`+"2200-01-01T00:00:00Z"+`"}`))
	require.JSONEq(t, `{"retried":4,"remaining":0}`, retry(``))
	require.JSONEq(t, `{"retried":1,"remaining":0}`, retry(`{"status":"FAILED","since":"2020-01-01T00:00:00Z","reason":"r"}`))
	require.JSONEq(t, `{"retried":0,"remaining":0}`, retry(`{}`))
	for text, field := range map[string]string{
		"null": "body", "[]": "body", `{"x":1}`: "body", `{"limit":0}`: "limit", `{"limit":1001}`: "limit", `{"limit":1.0}`: "limit",
		`{"limit":-5}`: "limit", `{"status":"SENT"}`: "status", `{"status":""}`: "status", `{"status":null}`: "status",
		`{"recipient":""}`: "recipient", `{"recipient":" "}`: "recipient", `{"perSecond":-1}`: "perSecond", `{"perSecond":"1"}`: "perSecond",
		`{"perSecond":1e7}`: "perSecond", `{"reason":1}`: "reason", `{"reason":"a\nb"}`: "reason",
		`{"reason":"` + strings.Repeat("r", 256) + `"}`: "reason",
	} {
		s.post(t, "/notifications/retry", text).requireFault(t, field)
	}
}

func TestOperationsOnNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, id := range []string{
		"not-a-uuid", "01890000000070008000000000000001", "{01890000-0000-7000-8000-000000000001}", strings.Repeat("a", 10_240), "%00", "1",
		"urn:uuid:01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-00000000000g", "%2e%2e%2f", "a%2Fb",
	} {
		for _, c := range []string{"GET /notifications/%", "GET /notifications/%/attempts", "DELETE /notifications/%", "POST /notifications/%/retry"} {
			method, target := split(strings.ReplaceAll(c, "%", id))
			a := s.do(t, method, target, "")
			if strings.Contains(id, "%2e") {
				a.requireProblem(t, http.StatusNotFound, "not_found")
				continue
			}
			a.requireFault(t, "id")
		}
	}
	s.do(t, http.MethodDelete, "/notifications/01890000-0000-7000-8000-000000000001?reason=%0a", "").requireFault(t, "reason")
	s.do(t, http.MethodDelete, "/notifications/01890000-0000-7000-8000-000000000001", `{"reason":"no place for it"}`).
		requireFault(t, "body")
	s.post(t, "/channels/FAX/pause", "").requireProblem(t, http.StatusNotFound, "not_found")
	s.post(t, "/webhook-endpoints/none/enable", `{"perSecond":5}`).requireProblem(t, http.StatusNotFound, "not_found")
	s.post(t, "/webhook-endpoints/"+strings.Repeat("n", 256)+"/enable", "").requireFault(t, "name")
	s.post(t, "/webhook-endpoints/x/enable", `{"perSecond":-5}`).requireFault(t, "perSecond")
}

func TestPausedChannelsAndReceivers(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	require.JSONEq(t, `{"channel":"EMAIL","paused":true}`, s.post(t, "/channels/EMAIL/pause", "").body)
	s.made(t, "1", "ok")
	stats, err := s.client.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, stats.QueueLag)
	require.JSONEq(t, `{"channel":"EMAIL","paused":false}`, s.post(t, "/channels/EMAIL/resume", `{"reason":"ok"}`).body)

	_, err = s.db.Pool.Exec(t.Context(), `insert into `+s.db.Schema+`.webhook_endpoints (name, target, failures, failing_since, disabled_at, reason)
		values ('shop', '', 7, '2026-01-01', '2026-01-06', 'failing')`)
	require.NoError(t, err)
	require.JSONEq(t, `{"items":[{"name":"shop","failures":7,"failingSince":"2026-01-01T00:00:00.000000Z",
		"disabledAt":"2026-01-06T00:00:00.000000Z","reason":"failing"}]}`, s.get(t, "/webhook-endpoints").body)
	require.JSONEq(t, `{"name":"shop","retried":0,"more":false}`, s.post(t, "/webhook-endpoints/shop/enable", `{"reason":"ok"}`).body)
	require.Contains(t, s.get(t, "/webhook-endpoints").body, `"disabledAt":null`)
}

func TestCancelAndRetryRaceWithoutServerErrors(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	id := s.made(t, "1", "ok", "delaySeconds", "60")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			method, target := http.MethodDelete, "/notifications/"+id
			if i%2 == 0 {
				method, target = http.MethodPost, target+"/retry"
			}
			a := s.do(t, method, target, "")
			if a.status != http.StatusOK && a.status != http.StatusConflict {
				t.Errorf("%s: %d", method, a.status)
			}
		})
	}
	wg.Wait()
	require.Equal(t, "CANCELLED", s.get(t, "/notifications/"+id).object(t)["status"])
}
