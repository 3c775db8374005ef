package e2e_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFailuresAreRetriedUnderOneKey(t *testing.T) {
	begin(t)
	gateway, receiver := newGateway(t), newReceiver(t)
	s := assemble(t, 3, append(gateway.settings(), receiver.settings()...)...)
	c := s.as(shop)
	gateway.plan("flaky", http.StatusInternalServerError, http.StatusTooManyRequests, http.StatusServiceUnavailable)
	sent := c.ends(c.schedule("flaky").ID, "SENT")
	require.Equal(t, 4, sent.AttemptCount, "the default is three retries")
	calls := gateway.seen("flaky")
	require.Len(t, calls, 4)
	for i, d := range calls {
		require.Equal(t, sent.ID, d.DeliveryKey)
		require.Equal(t, i+1, d.Attempt)
	}
	attempts := c.attempts(sent.ID)
	require.Len(t, attempts, 4)
	for i, status := range []string{"500", "429", "503"} {
		require.Equal(t, "transient", attempts[i].Class)
		require.Equal(t, i+1, attempts[i].Number)
		require.Contains(t, *attempts[i].Error, status)
		require.NotEmpty(t, attempts[i].Worker)
	}
	require.Equal(t, "sent", attempts[3].Class)
	require.Equal(t, 3, s.logged("job.retry", sent.ID))
	require.Len(t, receiver.awaits(sent.ID, 1), 1, "retries are not told")
	c.post("/notifications/"+sent.ID+"/retry", "").refused(http.StatusConflict, "not_redrivable")
}

func TestDeadLettersAreRedriven(t *testing.T) {
	begin(t)
	gateway, receiver := newGateway(t), newReceiver(t)
	s := assemble(t, 3, append(append(gateway.settings(), receiver.settings()...), "MAX_RETRIES=1")...)
	c := s.as(shop)
	gateway.fail(http.StatusBadGateway)
	var dead []job
	for i := range 7 {
		dead = append(dead, c.schedule(fmt.Sprintf("dead-%d", i)))
	}
	for _, j := range dead {
		ended := c.ends(j.ID, "DEAD_LETTERED")
		require.Equal(t, 2, ended.AttemptCount)
		require.NotNil(t, ended.DeadLetteredAt)
		require.Contains(t, *ended.LastError, "502")
	}

	// Once more into the same trouble: another event, of the same job.
	again := c.post("/notifications/"+dead[0].ID+"/retry", `{"reason":"let us see"}`).want(http.StatusOK).job()
	require.Equal(t, 1, again.RedriveCount)
	require.NotNil(t, again.LastRedrivenAt)
	events := receiver.awaits(dead[0].ID, 2)
	require.NotEqual(t, events[0].EventID, events[1].EventID)
	require.Equal(t, "DEAD_LETTERED", events[1].Status)

	gateway.fail(0)
	c.post("/notifications/"+dead[0].ID+"/retry", "").want(http.StatusOK)
	ended := c.ends(dead[0].ID, "SENT")
	require.Equal(t, 1, ended.AttemptCount, "a fresh budget")
	require.Equal(t, 2, ended.RedriveCount)
	require.Len(t, c.attempts(dead[0].ID), 5)
	require.Len(t, receiver.awaits(dead[0].ID, 3), 3)

	var done struct{ Retried, Remaining int }
	c.post("/notifications/retry", `{"limit":4,"reason":"the gateway is back"}`).want(http.StatusOK).into(&done)
	require.Equal(t, []int{4, 2}, []int{done.Retried, done.Remaining})
	for _, j := range dead[1:5] { // the oldest first
		c.ends(j.ID, "SENT")
	}
	require.Equal(t, "DEAD_LETTERED", c.job(dead[5].ID).Status)
	s.as(rival).post("/notifications/retry", "").want(http.StatusOK).into(&done)
	require.Equal(t, []int{0, 0}, []int{done.Retried, done.Remaining}, "another tenant's are not there")
	c.post("/notifications/retry", `{"recipient":"dead-6"}`).want(http.StatusOK).into(&done)
	require.Equal(t, []int{1, 0}, []int{done.Retried, done.Remaining})
	c.post("/notifications/retry", "").want(http.StatusOK).into(&done)
	require.Equal(t, []int{1, 0}, []int{done.Retried, done.Remaining})
	for _, j := range dead {
		c.ends(j.ID, "SENT")
		for _, d := range gateway.seen(j.Recipient) {
			require.Equal(t, j.ID, d.DeliveryKey)
		}
	}
	var actors, reasons int
	require.NoError(t, s.db.Pool.QueryRow(t.Context(), `select count(distinct actor), count(distinct reason) from `+
		s.table("operations")+` where actor like 'key:%' and reason <> ''`).Scan(&actors, &reasons))
	require.Equal(t, 1, actors)
	require.Equal(t, 2, reasons)
}

// The mock provider and the demo receiver, whose state is in the database: all workers together deliver each once.
func TestMockProviderAndDemoReceiver(t *testing.T) {
	begin(t)
	receiver := newReceiver(t) // for its secrets
	s := assemble(t, 0, "MOCK_FAILURE_RATE=0.4", "MAX_RETRIES=50", "DEMO=true", "WEBHOOK_SECRET="+receiver.secrets[1],
		"WEBHOOK_ALLOW_CIDRS=127.0.0.0/8")
	for range 3 {
		s.worker("WEBHOOK_URL=" + s.api.base() + "/webhooks/mock")
	}
	c := s.as(shop)
	var sent []string
	for i := range 30 {
		sent = append(sent, c.schedule(fmt.Sprintf("user-%d", i)).ID)
	}
	refused := c.schedule("invalid-user")
	for _, id := range sent {
		require.Contains(t, *c.ends(id, "SENT").ProviderID, "mock-")
	}
	require.Equal(t, 1, c.ends(refused.ID, "FAILED").AttemptCount)
	require.Positive(t, s.logged("job.retry", ""))
	count := func(table string) (rows, more int) {
		column := map[string]string{"demo_deliveries": "repeats", "demo_webhook_events": "redeliveries"}[table]
		require.NoError(t, s.db.Pool.QueryRow(t.Context(), "select count(*), coalesce(sum("+column+"), 0) from "+s.table(table)).
			Scan(&rows, &more))
		return rows, more
	}
	deliveries, repeats := count("demo_deliveries")
	require.Equal(t, []int{30, 0}, []int{deliveries, repeats})
	until(t, "all events are received", func() bool {
		events, _ := count("demo_webhook_events")
		return events == 31
	})
	s.probe(s.api).post("/webhooks/mock", `{"status":"SENT"}`).want(http.StatusUnauthorized)
}
