package e2e_test

import (
	"bytes"
	"net/http"
	"os/exec"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func TestKeysOpenWhatTheirScopesAndTenantSay(t *testing.T) {
	begin(t)
	s := assemble(t, 0)
	c, other, all := s.as(shop), s.as(rival), s.as(owner)
	mine, theirs := c.schedule("ann", `"delaySeconds":3600`), other.schedule("ann", `"delaySeconds":3600`)
	require.NotEqual(t, mine.ID, theirs.ID, "a key of each tenant's own")
	require.Equal(t, []string{"shop", "rival"}, []string{mine.Tenant, theirs.Tenant})

	for _, stranger := range []*caller{s.as(""), s.as("unknown-0123456789abcdef"), s.as(shop + "x")} {
		for _, a := range []answer{
			stranger.get("/notifications/" + mine.ID), stranger.get("/notifications"), stranger.delete("/notifications/" + mine.ID),
			stranger.post("/notifications", notification("eve")), stranger.post("/channels/EMAIL/pause", ""),
		} {
			require.Contains(t, a.refused(http.StatusUnauthorized, "unauthorized").header.Get("WWW-Authenticate"), "Bearer")
		}
	}
	writer, reader := s.as(shopWriter), s.as(shopReader)
	for _, a := range []answer{
		writer.get("/notifications/" + mine.ID), writer.delete("/notifications/" + mine.ID), writer.get("/notifications"),
		reader.post("/notifications", notification("eve")), reader.post("/notifications/batch", `{"notifications":[]}`),
		reader.delete("/notifications/" + mine.ID), reader.post("/notifications/retry", ""),
		reader.post("/notifications/"+mine.ID+"/retry", ""), reader.get("/webhook-endpoints"),
	} {
		a.refused(http.StatusForbidden, "missing_scope")
	}
	for _, a := range []answer{c.post("/channels/EMAIL/pause", ""), c.get("/webhook-endpoints")} {
		a.refused(http.StatusForbidden, "tenant_key")
	}
	for _, a := range []answer{
		other.get("/notifications/" + mine.ID), other.get("/notifications/" + mine.ID + "/attempts"),
		other.delete("/notifications/" + mine.ID), other.post("/notifications/"+mine.ID+"/retry", ""),
		c.get("/notifications/" + uuid.NewString()),
	} {
		a.refused(http.StatusNotFound, "not_found")
	}
	c.get("/notifications/ann").refused(http.StatusBadRequest, "invalid_request")

	require.Equal(t, mine, reader.job(mine.ID))
	require.Equal(t, mine, s.as(shopNext).job(mine.ID))
	writer.post("/notifications", notification("ann", `"delaySeconds":3600`)).want(http.StatusOK)
	for _, seen := range []struct {
		by   *caller
		jobs []string
	}{{c, []string{mine.ID}}, {other, []string{theirs.ID}}, {all, []string{theirs.ID, mine.ID}}} {
		var p page
		seen.by.get("/notifications?recipient=ann").want(http.StatusOK).into(&p)
		require.Len(t, p.Items, len(seen.jobs))
		for i, id := range seen.jobs {
			require.Equal(t, id, p.Items[i].ID)
		}
	}
	all.delete("/notifications/" + theirs.ID).want(http.StatusOK)
	require.Equal(t, "CANCELLED", other.job(theirs.ID).Status)
	for _, key := range []string{shop, rival, owner} {
		require.NotContains(t, s.api.log(), key)
	}
}

// The command lines that do not serve.
func TestCommandLines(t *testing.T) {
	begin(t)
	s := assemble(t, 1)
	run := func(name string, environ []string, args ...string) (string, int) {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), built.path(name), args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = environ, &out, &out
		if err := cmd.Run(); err != nil {
			require.NotNil(t, cmd.ProcessState, err)
		}
		return out.String(), cmd.ProcessState.ExitCode()
	}
	for _, name := range []string{"notifyq-api", "notifyq-worker"} {
		out, code := run(name, nil, "-help")
		require.Zero(t, code)
		require.Contains(t, out, "JOB_VISIBILITY_TIMEOUT_SECONDS")
		out, code = run(name, s.environ, "migrate", "status")
		require.Zero(t, code, out)
		require.NotContains(t, out, "pending")
		out, code = run(name, []string{"DATABASE_URL=postgres://u:canary@127.0.0.1:1/x", "PORT=canary", "MAX_RETRIES=canary"})
		require.Equal(t, 2, code)
		require.Contains(t, out, "PORT: ")
		require.Contains(t, out, "MAX_RETRIES: ")
		require.NotContains(t, out, "canary")
	}
	out, code := run("notifyq-api", []string{"DATABASE_URL=postgres://127.0.0.1:1/x", "HOST=0.0.0.0"})
	require.Equal(t, 2, code)
	require.Contains(t, out, "HOST: must be a loopback address unless API_KEYS is set")
	for _, p := range s.processes {
		port := "PORT=" + p.base()[len("http://127.0.0.1:"):]
		until(t, p.name+" is ready", func() bool { return s.probe(p).get("/readyz").status == http.StatusOK })
		out, code = run(p.name, []string{port}, "healthcheck", "/readyz")
		require.Zero(t, code, out)
	}
}
