package e2e_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One API, three workers: what is asked once is delivered once, and told once.
func TestNotificationsAreDeliveredOnceAndReported(t *testing.T) {
	begin(t)
	gateway, receiver := newGateway(t), newReceiver(t)
	s := assemble(t, 3, append(gateway.settings(), receiver.settings()...)...)
	c := s.as(shop)

	first := c.post("/notifications", notification("ann", `"priority":"HIGH"`)).want(http.StatusCreated)
	asked := first.job()
	require.Equal(t, "/notifications/"+asked.ID, first.header.Get("Location"))
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	again := c.post("/notifications", `{"channel":"EMAIL","payload":{"text":"hello"},"recipient":"ann","priority":"HIGH",`+
		`"idempotencyKey":"ann"}`).want(http.StatusOK)
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, asked.ID, again.job().ID, "the order of members is no difference")
	c.post("/notifications", notification("ann", `"priority":"LOW"`)).refused(http.StatusConflict, "idempotency_key_reused")

	sent := c.ends(asked.ID, "SENT")
	require.Equal(t, 1, sent.AttemptCount)
	require.Equal(t, "gw-"+asked.ID, *sent.ProviderID)
	require.NotNil(t, sent.SentAt)
	require.Equal(t, [4]string{"shop", "ann", "EMAIL", "HIGH"}, [4]string{sent.Tenant, sent.Recipient, sent.Channel, sent.Priority})
	calls := gateway.seen("ann")
	require.Len(t, calls, 1)
	require.Equal(t, asked.ID, calls[0].DeliveryKey)
	require.JSONEq(t, `{"text":"hello"}`, string(calls[0].Payload))
	told := receiver.awaits(asked.ID, 1)[0]
	require.Equal(t, "SENT", told.Status)
	require.Equal(t, 1, told.AttemptCount)
	require.WithinDuration(t, *sent.SentAt, told.Timestamp, time.Second)

	gateway.plan("refused", http.StatusUnprocessableEntity)
	failed := c.ends(c.schedule("refused").ID, "FAILED")
	require.Equal(t, 1, failed.AttemptCount)
	require.Contains(t, *failed.LastError, "422")
	require.Equal(t, "FAILED", receiver.awaits(failed.ID, 1)[0].Status)

	var stored page
	c.get("/notifications?idempotencyKey=ann").want(http.StatusOK).into(&stored)
	require.Equal(t, asked.ID, stored.Items[0].ID)
	until(t, "the metrics count them", func() bool {
		text := c.get("/metrics", "Accept", "application/json").want(http.StatusOK).body
		return strings.Contains(text, `"sent":1,"failed":1,`) && strings.Contains(text, `"delivered":2`)
	})
}

// What is due later waits, and what was due before does not.
func TestFutureNotificationsWait(t *testing.T) {
	begin(t)
	gateway := newGateway(t)
	s := assemble(t, 3, gateway.settings()...)
	c := s.as(shop)
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Microsecond)
	delayed := c.schedule("delayed", `"delaySeconds":3600`, `"priority":"HIGH"`)
	dated := c.schedule("dated", `"sendAt":"`+tomorrow.Format(time.RFC3339Nano)+`"`)
	soon := c.schedule("soon", `"delaySeconds":1`)
	past := c.schedule("past", `"sendAt":"2020-01-01T00:00:00+02:00"`)
	require.Equal(t, tomorrow, dated.ScheduledAt)
	require.Equal(t, time.UTC, dated.ScheduledAt.Location())

	c.ends(past.ID, "SENT")
	require.False(t, c.ends(soon.ID, "SENT").SentAt.Before(soon.ScheduledAt), "by the database's clock")
	for _, later := range []job{delayed, dated} {
		now := c.job(later.ID)
		require.Equal(t, "PENDING", now.Status)
		require.Equal(t, later.ScheduledAt, *now.NextAttemptAt)
		require.Zero(t, now.AttemptCount)
	}
	require.Len(t, gateway.seen(""), 2)
}

// A batch is stored as far as it is valid, and a list has every job once.
func TestBatchesAndLists(t *testing.T) {
	begin(t)
	gateway := newGateway(t)
	s := assemble(t, 3, gateway.settings()...)
	c := s.as(shop)
	first := c.schedule("r+0@example.com")
	items := make([]string, 40)
	for i := range items {
		items[i] = notification(fmt.Sprintf("r+%d@example.com", i))
	}
	items[7] = notification("r+7@example.com", `"priority":"URGENT"`)
	body := `{"notifications":[` + strings.Join(items, ",") + `]}`
	results := c.batch(body)
	require.Equal(t, result{ID: first.ID, Replayed: true}, results[0])
	require.Equal(t, "invalid_request", results[7].Error.Code)
	require.Equal(t, "priority", results[7].Error.Errors[0].Field)
	for i, r := range results {
		if i != 7 {
			c.ends(r.ID, "SENT")
		}
	}
	for i, r := range c.batch(body) {
		require.Equal(t, i != 7, r.Replayed)
		require.Equal(t, results[i].ID, r.ID)
	}
	require.Len(t, gateway.seen(""), 39, "each once")

	listed := map[string]bool{}
	for target := "/notifications?status=SENT&limit=9"; target != ""; {
		var p page
		a := c.get(target).want(http.StatusOK)
		a.into(&p)
		for _, j := range p.Items {
			require.False(t, listed[j.ID], "a job is listed twice")
			listed[j.ID] = true
		}
		target = ""
		if p.NextCursor != nil {
			target = "/notifications?status=SENT&limit=9&cursor=" + url.QueryEscape(*p.NextCursor)
			require.Contains(t, a.header.Get("Link"), `rel="next"`)
		}
	}
	require.Len(t, listed, 39)
	var p page
	c.get("/notifications?recipient=r%2B3%40example.com").want(http.StatusOK).into(&p)
	require.Len(t, p.Items, 1)
	require.Equal(t, results[3].ID, p.Items[0].ID)
}

type result struct {
	ID       string
	Replayed bool
	Error    *struct {
		Code   string
		Errors []struct{ Field, Rule string }
	}
}

func (c *caller) batch(body string) []result {
	c.t.Helper()
	var list struct{ Results []result }
	c.post("/notifications/batch", body).want(http.StatusOK).into(&list)
	return list.Results
}

// All alike at once make one job; of two that differ one is stored, and the other refused.
func TestConcurrentRequestsUnderOneKey(t *testing.T) {
	begin(t)
	gateway := newGateway(t)
	s := assemble(t, 2, gateway.settings()...)
	c := s.as(shop)
	bodies := []string{notification("same", `"maxAttempts":3`), notification("same", `"maxAttempts":2`)}
	answers := make(chan answer, 50)
	for i := range cap(answers) {
		go func() {
			a, err := c.try(http.MethodPost, "/notifications", bodies[i%2])
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	ids, byStatus := map[string]bool{}, map[int]int{}
	for range cap(answers) {
		a := <-answers
		byStatus[a.status]++
		if a.status != http.StatusConflict {
			ids[a.job().ID] = true
		}
	}
	require.Equal(t, map[int]int{201: 1, 200: 24, 409: 25}, byStatus)
	require.Len(t, ids, 1)
	for id := range ids {
		c.ends(id, "SENT")
	}
	require.Len(t, gateway.seen(""), 1)
}
