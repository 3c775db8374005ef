package api

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestSameRequestIsReplayedAndAnotherIsAConflict(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	sendAt := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	utc, offset := sendAt.Format(time.RFC3339), sendAt.In(time.FixedZone("", 5400)).Format(time.RFC3339)
	first := `{"idempotencyKey":"c19","recipient":"a@example.test","channel":"EMAIL","payload":{"n":1,"m":[1,2]},"sendAt":"` + utc + `"}`
	created := s.post(t, "/notifications", first)
	require.Equal(t, http.StatusCreated, created.status, created.body)
	require.Empty(t, created.header.Get("Idempotent-Replayed"))
	id := created.object(t)["id"].(string)
	require.Equal(t, "/notifications/"+id, created.header.Get("Location"))
	for name, text := range map[string]string{
		"as it was":      first,
		"another order":  `{"payload":{"m":[1,2],"n":1},"sendAt":"` + utc + `","channel":"EMAIL","recipient":"a@example.test","idempotencyKey":"c19"}`,
		"white space":    strings.NewReplacer(`":`, "\"\n :  ", `,"`, " ,\t\"").Replace(first),
		"default given":  strings.Replace(first, `"channel"`, `"priority":"NORMAL","maxAttempts":4,"onAmbiguous":"retry","channel"`, 1),
		"another offset": strings.Replace(first, utc, offset, 1),
		"escapes":        strings.Replace(first, `a@example`, `\u0061@example`, 1),
	} {
		a := s.post(t, "/notifications", text)
		require.Equal(t, http.StatusOK, a.status, name+a.body)
		require.Equal(t, "true", a.header.Get("Idempotent-Replayed"))
		require.Equal(t, created.header.Get("Location"), a.header.Get("Location"))
		require.Equal(t, created.object(t), a.object(t))
	}
	for name, text := range map[string]string{
		"recipient":    strings.Replace(first, "a@", "b@", 1),
		"number form":  strings.Replace(first, `"n":1,`, `"n":1.0,`, 1),
		"array order":  strings.Replace(first, "[1,2]", "[2,1]", 1),
		"empty":        strings.Replace(first, `{"n":1,"m":[1,2]}`, `{}`, 1),
		"null for not": strings.Replace(first, `{"n":1,`, `{"n":1,"o":null,`, 1),
		"no time":      strings.Replace(first, `,"sendAt":"`+utc+`"`, "", 1),
		"priority":     strings.Replace(first, `"channel"`, `"priority":"LOW","channel"`, 1),
	} {
		s.post(t, "/notifications", text).requireProblem(t, http.StatusConflict, "idempotency_key_reused")
		require.Equal(t, created.object(t), s.get(t, "/notifications/"+id).object(t), name)
	}
	require.Equal(t, 1, s.stored(t))
}

// Processes with old and new settings of MAX_RETRIES and AMBIGUOUS_POLICY run side by side while a deployment rolls. A
// client that repeats its request may meet either.
func TestSameRequestIsReplayedUnderOtherSettings(t *testing.T) {
	t.Parallel()
	before := serve(t, nil)
	after := serveOn(t, before.db, func(c *Config) {
		var err error
		c.Client, err = notifyq.NewClient(before.db.Pool, notifyq.ClientConfig{
			Schema: before.db.Schema, MaxAttempts: 9, OnAmbiguous: notifyq.AmbiguousPark,
		})
		require.NoError(t, err)
	})
	for key, servers := range map[string][2]*server{`"old first"`: {before, after}, `"new first"`: {after, before}} {
		request := body("idempotencyKey", key)
		job := servers[0].schedule(t, request)
		a := servers[1].post(t, "/notifications", request)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, "true", a.header.Get("Idempotent-Replayed"))
		require.Equal(t, job, a.object(t))
		a = servers[1].post(t, "/notifications/batch", `{"notifications":[`+request+","+request+"]}")
		require.Equal(t, http.StatusOK, a.status, a.body)
		result := map[string]any{"id": job["id"], "replayed": true}
		require.Equal(t, []any{result, result}, a.object(t)["results"])

		for _, member := range []string{"maxAttempts", "onAmbiguous"} {
			named := body("idempotencyKey", key, member, map[string]string{"maxAttempts": "5", "onAmbiguous": `"park"`}[member])
			if servers[0] == after && member == "onAmbiguous" {
				named = strings.Replace(named, "park", "retry", 1)
			}
			servers[1].post(t, "/notifications", named).requireProblem(t, http.StatusConflict, "idempotency_key_reused")
		}
	}
	require.Equal(t, 2, before.stored(t))
}

func TestDelayedRequestIsReplayedLater(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	job := s.schedule(t, body("delaySeconds", "60"))
	a := s.post(t, "/notifications", body("delaySeconds", "60"))
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, job, a.object(t))
	s.post(t, "/notifications", body("delaySeconds", "61")).requireProblem(t, http.StatusConflict, "idempotency_key_reused")
}

// Keys and recipients are compared byte by byte, here as in lists.
func TestSpellingsAreNotFolded(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i, pair := range [][2]string{
		{"\u00e9", "e\u0301"}, {"c12", " c12"}, {"V@Example.Test", "v@example.test"}, {"a＠b", "a@b"}, {"x", "x "},
	} {
		for j, text := range pair {
			s.schedule(t, body("idempotencyKey", strconv.Quote(text)))
			s.schedule(t, body("idempotencyKey", strconv.Quote(strconv.Itoa(2*i+j)), "recipient", strconv.Quote(text)))
			require.Len(t, s.list(t, "idempotencyKey", text).Items, 1)
			page := s.list(t, "recipient", text)
			require.Len(t, page.Items, 1)
			require.Equal(t, text, page.Items[0].Recipient)
		}
	}
}

func TestParallelRequestsUnderOneKeyMakeOneJob(t *testing.T) {
	t.Parallel()
	db := serve(t, nil)
	servers := []*server{db, serveOn(t, db.db, nil)}
	const requests = 50
	answers := make([]answered, requests)
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			recipient := strconv.Quote("r" + strconv.Itoa(i%2))
			answers[i] = servers[i/2%2].post(t, "/notifications", body("recipient", recipient))
		})
	}
	wg.Wait()
	counts := map[int]int{}
	ids := map[any]bool{}
	for _, a := range answers {
		counts[a.status]++
		if a.status < 300 {
			ids[a.object(t)["id"]] = true
		}
	}
	require.Equal(t, map[int]int{http.StatusCreated: 1, http.StatusOK: requests/2 - 1, http.StatusConflict: requests / 2}, counts)
	require.Len(t, ids, 1)
	require.Equal(t, 1, db.stored(t))
}

func TestParallelRequestsUnderAnotherDefaultIsolation(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	cfg := s.db.Pool.Config().Copy()
	cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	strict := poolOf(t, cfg)
	other := serveOn(t, withPool(s.db, strict), nil)
	var wg sync.WaitGroup
	answers := make([]answered, 30)
	for i := range answers {
		wg.Go(func() { answers[i] = other.post(t, "/notifications", body()) })
	}
	wg.Wait()
	counts := map[int]int{}
	for _, a := range answers {
		counts[a.status]++
	}
	require.Equal(t, map[int]int{http.StatusCreated: 1, http.StatusOK: 29}, counts)
}
