package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Cancel against claim: a job is cancelled and never delivered, or delivered and the cancel refused.
func TestCancelAndClaimNeverBothWin(t *testing.T) {
	begin(t)
	gateway, receiver := newGateway(t), newReceiver(t)
	settings := append(gateway.settings(), receiver.settings()...)
	// Claims of two at a time, so that both sides meet in the middle and not at the first claim.
	s := assemble(t, 3, append(settings, "WORKER_CONCURRENCY=2", "WORKER_BATCH_SIZE=2")...)
	c := s.as(shop)
	items := make([]string, 120)
	for i := range items {
		items[i] = notification(fmt.Sprintf("race-%d", i))
	}
	jobs := c.batch(`{"notifications":[` + strings.Join(items, ",") + `]}`)
	answers := make([]answer, len(jobs))
	var callers sync.WaitGroup
	for part := range 6 { // from the end, while the workers come from the beginning
		callers.Go(func() {
			for i := len(jobs) - 1 - part; i >= 0; i -= 6 {
				var err error
				if answers[i], err = c.try(http.MethodDelete, "/notifications/"+jobs[i].ID, ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	won := map[int]int{}
	for i, a := range answers {
		won[a.status]++
		recipient := fmt.Sprintf("race-%d", i)
		if a.status == http.StatusOK {
			require.Equal(t, "CANCELLED", a.job().Status)
			continue
		}
		a.refused(http.StatusConflict, "not_cancellable")
		c.ends(jobs[i].ID, "SENT")
		require.Len(t, gateway.seen(recipient), 1)
		receiver.awaits(jobs[i].ID, 1)
	}
	t.Logf("cancelled and refused: %v", won)
	for i, a := range answers { // all others have been delivered by now
		if a.status == http.StatusOK {
			require.Equal(t, "CANCELLED", c.job(jobs[i].ID).Status)
			require.Empty(t, gateway.seen(fmt.Sprintf("race-%d", i)))
			require.Empty(t, receiver.of(jobs[i].ID))
		}
	}
}

// Both ends of the race, one at a time.
func TestOnlyWhatWaitsIsCancelled(t *testing.T) {
	begin(t)
	gateway := newGateway(t)
	s := assemble(t, 2, gateway.settings()...)
	c := s.as(shop)
	later := c.schedule("later", `"delaySeconds":3600`)
	cancelled := c.delete("/notifications/" + later.ID + "?reason=changed+my+mind").want(http.StatusOK).job()
	require.Equal(t, "CANCELLED", cancelled.Status)
	require.Equal(t, "changed my mind", *cancelled.Reason)
	require.Equal(t, cancelled, c.delete("/notifications/"+later.ID).want(http.StatusOK).job(), "again changes nothing")
	c.post("/notifications/"+later.ID+"/retry", "").refused(http.StatusConflict, "not_redrivable")

	gateway.hold("now")
	running := c.schedule("now")
	gateway.awaits("now", 1)
	refusal := c.delete("/notifications/"+running.ID).refused(http.StatusConflict, "not_cancellable")
	require.Contains(t, refusal.body, `"currentStatus":"PROCESSING"`)
	gateway.release("now")
	c.ends(running.ID, "SENT")
	refusal = c.delete("/notifications/"+running.ID).refused(http.StatusConflict, "not_cancellable")
	require.Contains(t, refusal.body, `"currentStatus":"SENT"`)
}
