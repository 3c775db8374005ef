package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	acmeAll   = "acme-key-0123456789"
	acmeNew   = "acme-key-9876543210"
	acmeRead  = "acme-read-0123456789"
	otherAll  = "other-key-0123456789"
	noTenant  = "empty-key-0123456789"
	allSystem = "system-key-0123456789"
	scheduler = "sched-key-0123456789"
	allScopes = ":schedule+read+operate"
)

func manyKeys(t *testing.T) func(*Config) {
	t.Helper()
	return keys(t, acmeAll+":acme"+allScopes+","+acmeNew+":acme"+allScopes+", "+acmeRead+":acme:read,"+otherAll+":other"+allScopes+","+
		noTenant+":"+allScopes+","+allSystem+":*"+allScopes+","+scheduler+":acme:schedule")
}

func bearer(key string) []string { return []string{"Authorization", "Bearer " + key} }

func TestOnlyKnownKeysAreLetIn(t *testing.T) {
	t.Parallel()
	s := serve(t, manyKeys(t))
	for _, header := range []string{
		"", "Bearer", "Bearer ", "Bearer x", "Basic " + acmeAll, acmeAll, "Bearer " + acmeAll + "x", "Bearer " + acmeAll[:18],
		"Bearer " + acmeAll + " " + acmeAll, "Bearer,Bearer " + acmeAll, "Bearer  ",
	} {
		for _, target := range []string{"/notifications", "/notifications/not-a-uuid", "/webhook-endpoints", "/notifications?x=1"} {
			a := s.get(t, target, "Authorization", header)
			a.requireProblem(t, http.StatusUnauthorized, "unauthorized")
			require.Equal(t, `Bearer realm="notifyq"`, a.header.Get("WWW-Authenticate"))
		}
		s.post(t, "/notifications", "{", "Authorization", header).requireProblem(t, http.StatusUnauthorized, "unauthorized")
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/notifications", nil)
	require.NoError(t, err)
	r.Header["Authorization"] = []string{"Bearer " + acmeAll, "Bearer " + otherAll}
	s.send(t, r).requireProblem(t, http.StatusUnauthorized, "unauthorized")
	s.get(t, "/notifications?key="+acmeAll).requireProblem(t, http.StatusUnauthorized, "unauthorized")
	require.Zero(t, s.stored(t))

	for _, key := range []string{acmeAll, acmeNew} {
		require.Equal(t, http.StatusOK, s.get(t, "/notifications", bearer(key)...).status)
	}
	require.Equal(t, http.StatusOK, s.get(t, "/notifications", "Authorization", "bearer   "+acmeAll).status)
	require.Equal(t, http.StatusOK, s.get(t, "/openapi.json").status, "the document is open")
}

// The scope that each endpoint asks for, read from the endpoints and tried with a key that has all others.
func TestEveryEndpointAsksForItsScope(t *testing.T) {
	t.Parallel()
	const read, operate, schedule = "only-read-0123456789", "only-oper-0123456789", "only-sche-0123456789"
	s := serve(t, keys(t, read+":*:schedule+operate,"+operate+":*:schedule+read,"+schedule+":*:read+operate"))
	id := "/01890000-0000-7000-8000-000000000001"
	for lacking, calls := range map[string][]string{
		schedule: {"POST /notifications", "POST /notifications/batch"},
		read:     {"GET /notifications", "HEAD /notifications", "GET /notifications" + id, "GET /notifications" + id + "/attempts"},
		operate: {
			"DELETE /notifications" + id, "POST /notifications" + id + "/retry", "POST /notifications/retry",
			"POST /channels/EMAIL/pause", "POST /channels/EMAIL/resume", "GET /webhook-endpoints", "POST /webhook-endpoints/x/enable",
		},
	} {
		for _, c := range calls {
			method, target := split(c)
			a := s.do(t, method, target, "", bearer(lacking)...)
			require.Equal(t, http.StatusForbidden, a.status, c)
			if method != http.MethodHead {
				a.requireProblem(t, http.StatusForbidden, "missing_scope")
			}
			for _, having := range []string{read, operate, schedule} {
				if having != lacking {
					require.NotEqual(t, http.StatusForbidden, s.do(t, method, target, "", bearer(having)...).status, c)
				}
			}
		}
	}
}

func TestAnotherTenantsJobsDoNotExist(t *testing.T) {
	t.Parallel()
	s := serve(t, manyKeys(t))
	job := s.schedule(t, body(), bearer(acmeAll)...)
	require.Equal(t, "acme", job["tenant"])
	id := job["id"].(string)
	s.schedule(t, body(), bearer(otherAll)...) // the same key, another tenant: another job
	for _, key := range []string{otherAll, noTenant} {
		for _, c := range []string{"GET /notifications/" + id, "GET /notifications/" + id + "/attempts", "DELETE /notifications/" + id, "POST /notifications/" + id + "/retry"} {
			method, target := split(c)
			theirs := s.do(t, method, target, "", bearer(key)...)
			theirs.requireProblem(t, http.StatusNotFound, "not_found")
			nobodys := s.do(t, method, "/notifications/01890000-0000-7000-8000-000000000001"+target[len("/notifications/")+36:], "", bearer(key)...)
			nobodys.requireProblem(t, http.StatusNotFound, "not_found")
			require.Equal(t, len(nobodys.body), len(theirs.body))
		}
		require.NotContains(t, s.get(t, "/notifications", bearer(key)...).body, id)
		require.NotContains(t, s.get(t, "/notifications?idempotencyKey=k", bearer(key)...).body, id)
	}
	cursor := *s.pageAs(t, "/notifications?limit=1", func() string {
		s.schedule(t, body("idempotencyKey", `"2"`), bearer(acmeAll)...)
		return acmeAll
	}()).NextCursor
	s.get(t, "/notifications?limit=1&cursor="+cursor, bearer(otherAll)...).requireFault(t, "cursor")
	require.Equal(t, "PENDING", s.do(t, http.MethodGet, "/notifications/"+id, "", bearer(allSystem)...).object(t)["status"])
	require.Len(t, s.pageAs(t, "/notifications", allSystem).Items, 3)
}

func TestEmptyTenantIsATenant(t *testing.T) {
	t.Parallel()
	s := serve(t, manyKeys(t))
	s.schedule(t, body(), bearer(acmeAll)...)
	job := s.schedule(t, body(), bearer(noTenant)...)
	require.Empty(t, job["tenant"])
	require.Len(t, s.pageAs(t, "/notifications", noTenant).Items, 1)
	require.Equal(t, job["id"], s.pageAs(t, "/notifications?idempotencyKey=k", allSystem).Items[0].ID)
}

func TestKeysOfATenantCannotOperateOnAll(t *testing.T) {
	t.Parallel()
	s := serve(t, manyKeys(t))
	for _, c := range []string{"POST /channels/EMAIL/pause", "POST /channels/EMAIL/resume", "GET /webhook-endpoints", "POST /webhook-endpoints/x/enable"} {
		method, target := split(c)
		for _, key := range []string{acmeAll, noTenant} {
			s.do(t, method, target, "", bearer(key)...).requireProblem(t, http.StatusForbidden, "tenant_key")
		}
		require.NotEqual(t, http.StatusForbidden, s.do(t, method, target, "", bearer(allSystem)...).status)
	}
}

func TestWhoAskedAndWhyIsKept(t *testing.T) {
	t.Parallel()
	s := serve(t, manyKeys(t))
	id := s.schedule(t, body(), bearer(acmeAll)...)["id"].(string)
	a := s.do(t, http.MethodDelete, "/notifications/"+id+"?reason=by+mistake", "", bearer(acmeAll)...)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, "by mistake", a.object(t)["reason"])
	s.post(t, "/channels/SMS/pause", `{"reason":"broken"}`, bearer(allSystem)...)
	var acme, system string
	require.NoError(t, s.db.Pool.QueryRow(t.Context(),
		"select actor from "+s.db.Schema+".operations where reason = 'by mistake'").Scan(&acme))
	require.NoError(t, s.db.Pool.QueryRow(t.Context(),
		"select actor from "+s.db.Schema+".operations where reason = 'broken'").Scan(&system))
	require.Regexp(t, "^key:[0-9a-f]{8}$", acme)
	require.Regexp(t, "^key:[0-9a-f]{8}$", system)
	require.NotEqual(t, acme, system)
}
