package api

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// What a client submits stands in no log line, and in no error: not in its body, nor in its headers.
func TestNothingSubmittedGetsIntoLogsAndErrors(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	const canary = "CANARY"
	s := serveOn(t, server.New(t), keys(t, "key-CANARY-0123456789:acme"+allScopes+",key-CANARY-0123456789-r:acme:read,sys-CANARY-0123456789:*"+allScopes))
	quoted := func(text string) string { return `"` + text + `-CANARY"` }
	whole := body("idempotencyKey", quoted("k"), "recipient", quoted("r"), "payload", `{"CANARY":`+quoted("p")+"}")
	probe := func() {
		for _, key := range []string{"key-CANARY-0123456789", "key-CANARY-0123456789-r", "sys-CANARY-0123456789", "unknown-CANARY"} {
			for _, c := range [][2]string{
				{"POST /notifications", whole},
				{"POST /notifications", strings.Replace(whole, "r-CANARY", "other-CANARY", 1)},
				{"POST /notifications", body("recipient", quoted(`\n`))},
				{"POST /notifications", body("CANARY", "1")},
				{"POST /notifications", `{"CANARY":1,"CANARY":2}`},
				{"POST /notifications", `{"CANARY`},
				{"POST /notifications", body("channel", quoted("c"))},
				{"POST /notifications", body("sendAt", quoted("s"), "priority", quoted("p"), "onAmbiguous", quoted("o"), "delaySeconds", quoted("d"))},
				{"POST /notifications/batch", `{"notifications":[` + body("channel", quoted("c")) + `],"CANARY":1}`},
				{"GET /notifications?recipient=CANARY%01", ""},
				{"GET /notifications?CANARY=CANARY", ""},
				{"GET /notifications?cursor=CANARY&status=CANARY", ""},
				{"GET /notifications?idempotencyKey=k-CANARY&status=x", ""},
				{"GET /notifications/CANARY@example.test", ""},
				{"GET /notifications/CANARY-order-key-jane.doe", ""},
				{"GET /notifications/CANARY/attempts", ""},
				{"GET /CANARY", ""},
				{"PATCH /channels/CANARY/pause", ""},
				{"GET /CANARY1%2Fuser@example.test/CANARY123", ""},
				{"DELETE /notifications/k-CANARY1?reason=CANARY", ""},
				{"DELETE /notifications/01890000-0000-7000-8000-000000000001?reason=CANARY%01", ""},
				{"POST /notifications/01890000-0000-7000-8000-000000000001/retry", `{"reason":"CANARY"}`},
				{"POST /notifications/retry", `{"recipient":"r-CANARY","status":"CANARY"}`},
				{"POST /channels/CANARY-1@x/pause", ""},
				{"POST /channels/CANARY/pause", ""},
				{"POST /webhook-endpoints/CANARY1/enable", ""},
				{"POST /webhook-endpoints/CANARY/enable", ""},
				{"CANARY1 /notifications", ""},
			} {
				method, target := split(c[0])
				a := s.do(t, method, target, c[1], "Authorization", "Bearer "+key, "X-Request-ID", "not safe CANARY", "User-Agent", canary, "Cookie", "c=CANARY")
				if a.status < 300 {
					continue // a job names its recipient to who may read it
				}
				require.NotContains(t, a.body, canary, c[0])
				for name, values := range a.header {
					require.NotContains(t, name+strings.Join(values, ","), canary, c[0])
				}
			}
		}
	}
	probe()
	require.Equal(t, http.StatusOK, s.get(t, "/notifications?recipient="+url.QueryEscape("r-CANARY"), bearer("key-CANARY-0123456789")...).status)
	require.Equal(t, 2, s.stored(t), "acme's and the empty tenant's")
	// A constraint of the database whose error quotes the row.
	_, err := s.db.Pool.Exec(t.Context(), "alter table "+s.db.Schema+".notifications add constraint c check (recipient <> 'x-CANARY')")
	require.NoError(t, err)
	s.post(t, "/notifications", body("recipient", `"x-CANARY"`), bearer("key-CANARY-0123456789")...).
		requireProblem(t, http.StatusInternalServerError, "internal_error")
	require.Equal(t, 1, strings.Count(s.logs.String(), `"error":"database error 23514 (constraint c)"`))
	server.Stop(t)
	probe()
	require.Contains(t, s.logs.String(), `"status":503`)
	for line := range strings.Lines(s.logs.String()) {
		require.NotContains(t, line, canary)
	}
	require.Equal(t, 1, strings.Count(s.logs.String(), `"status":500`), "the constraint's")
}
