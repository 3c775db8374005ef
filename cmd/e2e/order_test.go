package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One worker delivers one job at a time. It claims all that are due and has to begin with the right one, or claims one
// after the other.
func TestPausedChannelKeepsItsJobsAndTheHighestPriorityGoesFirst(t *testing.T) {
	begin(t)
	t.Run("of many claimed", func(t *testing.T) { requirePriorityOrder(t, "WORKER_BATCH_SIZE=100") })
	t.Run("of many due", func(t *testing.T) { requirePriorityOrder(t, "WORKER_BATCH_SIZE=1") })
}

// requirePriorityOrder pauses a channel while its jobs come in, so that they are all due when the worker gets to choose.
func requirePriorityOrder(t *testing.T, setting string) {
	gateway := newGateway(t)
	s := assemble(t, 1, append(gateway.settings(), "WORKER_CONCURRENCY=1", setting)...)
	c, all := s.as(shop), s.as(owner)
	require.JSONEq(t, `{"channel":"EMAIL","paused":true}`,
		all.post("/channels/EMAIL/pause", `{"reason":"maintenance"}`).want(http.StatusOK).body)
	var waiting []job
	for i, priority := range []string{"LOW", "NORMAL", "HIGH", "LOW", "NORMAL", "HIGH"} {
		waiting = append(waiting, c.schedule(fmt.Sprintf("%s-%d", priority, i), fmt.Sprintf(`"priority":%q`, priority)))
	}
	for i := range 3 { // in a round of claims later than the one before
		c.ends(c.schedule(fmt.Sprintf("other-%d", i), `"channel":"SMS"`).ID, "SENT")
	}
	for _, j := range waiting {
		require.Equal(t, "PENDING", c.job(j.ID).Status)
	}
	require.JSONEq(t, `{"channel":"EMAIL","paused":false}`, all.post("/channels/EMAIL/resume", "").want(http.StatusOK).body)
	for _, j := range waiting {
		c.ends(j.ID, "SENT")
	}
	var order []string
	for _, d := range gateway.seen("")[3:] {
		order = append(order, d.Recipient)
	}
	require.Equal(t, []string{"HIGH-2", "HIGH-5", "NORMAL-1", "NORMAL-4", "LOW-0", "LOW-3"}, order)
	all.post("/channels/FAX/pause", "").refused(http.StatusNotFound, "not_found")
}

// Three workers together keep to the limit. What is over it waits without using attempts, and holds up nobody else.
func TestRecipientOverTheLimitIsDeferred(t *testing.T) {
	begin(t)
	gateway := newGateway(t)
	s := assemble(t, 3, append(gateway.settings(), "RATE_LIMIT_MAX=3", "RATE_LIMIT_WINDOW_SECONDS=3600")...)
	c := s.as(shop)
	jobs := make([]job, 12)
	for i := range jobs {
		jobs[i] = c.schedule("busy", fmt.Sprintf(`"idempotencyKey":"busy-%d"`, i))
	}
	other := c.schedule("other")
	c.ends(other.ID, "SENT")
	now := time.Now()
	var sent, deferred int
	until(t, "each is sent or deferred", func() bool {
		sent, deferred = 0, 0
		for i, j := range jobs {
			jobs[i] = c.job(j.ID)
			switch {
			case jobs[i].Status == "SENT":
				sent++
			case jobs[i].Status == "PENDING" && jobs[i].NextAttemptAt.After(now.Add(30*time.Minute)):
				deferred++
				require.Zero(t, jobs[i].AttemptCount)
			}
		}
		return sent+deferred == len(jobs)
	})
	require.Equal(t, 3, sent)
	require.Len(t, gateway.seen("busy"), 3)
}

// Deferred jobs have their turn, whatever it takes, and never more of them in a window than the limit.
func TestDeferredJobsAreSentInTheirTurn(t *testing.T) {
	begin(t)
	gateway := newGateway(t)
	s := assemble(t, 2, append(gateway.settings(), "RATE_LIMIT_MAX=2", "RATE_LIMIT_WINDOW_SECONDS=1", "MAX_RETRIES=0")...)
	c := s.as(shop)
	items := make([]string, 6) // all due at once
	for i := range items {
		items[i] = notification("busy", fmt.Sprintf(`"idempotencyKey":"busy-%d"`, i))
	}
	for _, j := range c.batch(`{"notifications":[` + strings.Join(items, ",") + `]}`) {
		require.Equal(t, 1, c.ends(j.ID, "SENT").AttemptCount)
	}
	require.GreaterOrEqual(t, s.logged("job.rate_limited", ""), 4)
	var crowded int
	require.NoError(t, s.db.Pool.QueryRow(t.Context(), `select count(*) from `+s.table("rate_limit_reservations")+` a
		where (select count(*) from `+s.table("rate_limit_reservations")+` b
		        where b.reserved_at > a.reserved_at - interval '1 second' and b.reserved_at <= a.reserved_at) > 2`).Scan(&crowded))
	require.Zero(t, crowded)
	require.Len(t, gateway.seen("busy"), 6)
}
