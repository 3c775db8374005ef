package e2e_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// The database crashes and comes back. Nothing is restarted, nothing that was answered is lost, and what was delivered
// meanwhile is recorded and not delivered again.
func TestOutageOfTheDatabaseIsSurvived(t *testing.T) {
	begin(t)
	server := dbtest.NewServer(t)
	db := server.New(t)
	gateway, receiver := newGateway(t), newReceiver(t)
	s := assembleOn(t, db, 3, append(append(gateway.settings(), receiver.settings()...), "PROVIDER_TIMEOUT_MS=60000")...)
	c := s.as(shop)
	ready := func(p *process) bool { return s.probe(p).get("/readyz").status == http.StatusOK }
	for _, p := range s.processes {
		until(t, p.name+" is ready", func() bool { return ready(p) })
	}
	before := c.ends(c.schedule("before").ID, "SENT")
	later := c.schedule("later", `"delaySeconds":2`)
	gateway.hold("during")
	during := c.schedule("during")
	gateway.awaits("during", 1)

	server.Crash(t)
	for _, p := range s.processes {
		until(t, p.name+" is not ready", func() bool { return !ready(p) })
		s.probe(p).get("/livez").want(http.StatusOK)
		s.probe(p).get("/health").want(http.StatusServiceUnavailable)
	}
	for _, refusal := range []answer{
		c.post("/notifications", notification("outage")), c.get("/notifications/" + before.ID), c.get("/notifications"),
		c.delete("/notifications/" + later.ID), c.post("/notifications/retry", ""),
	} {
		require.NotEmpty(t, refusal.refused(http.StatusServiceUnavailable, "database_unavailable").header.Get("Retry-After"))
	}
	gateway.release("during")
	until(t, "what was delivered can't be recorded", func() bool { return s.logged("worker.record_failed", "") > 0 })

	server.Restart(t)
	db.Pool.Reset()
	for _, p := range s.processes {
		until(t, p.name+" is ready again", func() bool { return ready(p) })
	}
	sent := c.ends(during.ID, "SENT")
	require.Equal(t, 1, sent.AttemptCount)
	require.Len(t, gateway.seen("during"), 1)
	c.ends(later.ID, "SENT")
	c.ends(c.schedule("outage").ID, "SENT")
	require.Equal(t, "SENT", c.job(before.ID).Status)
	for _, j := range []job{before, during, later} {
		receiver.awaits(j.ID, 1)
	}
	for _, p := range s.processes {
		require.False(t, p.hasExited())
	}
}
