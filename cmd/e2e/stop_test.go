package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// SIGTERM in mid-delivery: the delivery is finished, what waits behind it goes to others at once, and nothing twice.
func TestWorkerThatIsStoppedFinishesWhatItDelivers(t *testing.T) {
	begin(t)
	gateway := newGateway(t)
	s := assemble(t, 0, append(gateway.settings(), "PROVIDER_TIMEOUT_MS=60000")...)
	c := s.as(shop)
	first := s.worker("WORKER_CONCURRENCY=1")
	gateway.hold("held")
	held := c.schedule("held")
	gateway.awaits("held", 1)
	var waiting []job
	for i := range 5 {
		waiting = append(waiting, c.schedule(fmt.Sprintf("waiting-%d", i)))
	}
	for _, j := range waiting {
		c.ends(j.ID, "PROCESSING") // claimed, and not started
	}
	s.worker()
	s.worker()

	first.stopping()
	s.probe(first).get("/livez").want(http.StatusOK)
	require.Contains(t, s.probe(first).get("/readyz").want(http.StatusServiceUnavailable).body, "draining")
	for _, j := range waiting {
		require.Equal(t, 1, c.ends(j.ID, "SENT").AttemptCount, "the first claim is not counted")
		require.Len(t, gateway.seen(j.Recipient), 1)
	}
	require.Equal(t, "PROCESSING", c.job(held.ID).Status)
	require.False(t, first.hasExited())
	gateway.release("held")
	require.Zero(t, first.code())
	sent := c.job(held.ID) // recorded before the end
	require.Equal(t, "SENT", sent.Status)
	require.Equal(t, 1, sent.AttemptCount)
	require.Len(t, gateway.seen("held"), 1)
	require.Equal(t, 1, first.logged("process.stopped", ""))
	require.Equal(t, 5, first.logged("job.released", ""))
}

// SIGTERM while an event is on its way: its answer is awaited and recorded.
func TestWorkerThatIsStoppedFinishesWhatItReports(t *testing.T) {
	begin(t)
	receiver := newReceiver(t)
	s := assemble(t, 0, append(receiver.settings(), "WEBHOOK_TIMEOUT_MS=60000")...)
	c := s.as(shop)
	first := s.worker()
	release := receiver.hold()
	told := c.schedule("told")
	receiver.awaits(told.ID, 1)
	second := s.worker()
	first.stopping()
	until(t, "the second worker reports alone", func() bool { return second.logged("relay.started", "") == 1 })
	require.False(t, first.hasExited())
	release()
	require.Zero(t, first.code())
	var recorded int
	require.NoError(t, s.db.Pool.QueryRow(t.Context(),
		"select count(*) from "+s.table("outbox_events")+" where published_at is not null").Scan(&recorded))
	require.Equal(t, 1, recorded, "before the end")
	receiver.awaits(c.ends(c.schedule("next").ID, "SENT").ID, 1) // by the second, which had its chance at both
	require.Equal(t, 1, receiver.of(told.ID)[0].times)
}

// Killed in mid-delivery: nobody knows whether the gateway has accepted. Others deliver again, under the same key.
func TestWorkerThatIsKilledIsTakenOverUnderTheSameKey(t *testing.T) {
	begin(t)
	gateway, receiver := newGateway(t), newReceiver(t)
	settings := append(gateway.settings(), receiver.settings()...)
	s := assemble(t, 0, append(settings, "JOB_VISIBILITY_TIMEOUT_SECONDS=4", "PROVIDER_TIMEOUT_MS=3500")...)
	c := s.as(shop)
	first := s.worker()
	recipients := []string{"ann", "last", "once"}
	for _, recipient := range recipients {
		gateway.hold(recipient)
	}
	ann, last, once := c.schedule("ann"), c.schedule("last", `"maxAttempts":1`), c.schedule("once", `"onAmbiguous":"park"`)
	for _, recipient := range recipients {
		gateway.awaits(recipient, 1)
	}
	first.kill()
	for _, recipient := range recipients {
		gateway.release(recipient)
	}
	s.worker()
	s.worker()

	for _, j := range []job{ann, last} {
		sent := c.ends(j.ID, "SENT")
		require.Equal(t, 2, sent.AttemptCount)
		calls := gateway.seen(j.Recipient)
		require.Len(t, calls, 2)
		for i, d := range calls {
			require.Equal(t, j.ID, d.DeliveryKey)
			require.Equal(t, i+1, d.Attempt)
		}
		attempts := c.attempts(j.ID)
		require.Equal(t, "lease_expired", attempts[0].Class)
		require.Equal(t, "sent", attempts[1].Class)
		require.Equal(t, 2, receiver.awaits(j.ID, 1)[0].AttemptCount)
	}
	require.Equal(t, 2, c.job(last.ID).MaxAttempts, "one attempt was granted, to find out")
	parked := c.ends(once.ID, "DEAD_LETTERED")
	require.Equal(t, "ambiguous", *parked.Reason)
	require.Len(t, gateway.seen("once"), 1, "not again unless somebody says so")
	c.post("/notifications/"+once.ID+"/retry", `{"reason":"it has not arrived"}`).want(http.StatusOK)
	c.ends(once.ID, "SENT")
	require.Equal(t, once.ID, gateway.seen("once")[1].DeliveryKey)
	require.Positive(t, s.logged("jobs.recovered", ""))
}

// SIGTERM for the API: a request that has come is answered, and every 201 that was given is kept.
func TestAPIThatIsStoppedAnswersWhatItHasTaken(t *testing.T) {
	begin(t)
	s := assemble(t, 0)
	c := s.as(shop)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.api.base(), "http://"))
	require.NoError(t, err)
	defer conn.Close()
	body := notification("running")
	_, err = fmt.Fprintf(conn, "POST /notifications HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", shop, len(body))
	require.NoError(t, err)
	answers := bufio.NewReader(conn)
	text, err := answers.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, text, "100 Continue", "it has the request, and waits for the body")
	_, err = answers.ReadString('\n')
	require.NoError(t, err)

	var callers sync.WaitGroup
	accepted := make([][]string, 4)
	for i := range accepted {
		callers.Go(func() {
			for n := 0; ; n++ {
				a, err := c.try(http.MethodPost, "/notifications", notification(fmt.Sprintf("caller-%d-%d", i, n)))
				if err != nil {
					return // it is gone
				}
				var j job
				if err := json.Unmarshal([]byte(a.body), &j); err != nil || a.status != http.StatusCreated {
					t.Errorf("a request at the stop is answered %d: %s", a.status, a.body)
					return
				}
				accepted[i] = append(accepted[i], j.ID)
			}
		})
	}
	until(t, "requests run", func() bool { return s.api.logged("http.request", "") > 20 })
	s.api.stopping()
	callers.Wait()
	require.False(t, s.api.hasExited())
	_, err = conn.Write([]byte(body))
	require.NoError(t, err)
	response, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusCreated, response.StatusCode)
	require.Zero(t, s.api.code())

	want := 1
	for _, ids := range accepted {
		want += len(ids)
	}
	var stored int
	require.NoError(t, s.db.Pool.QueryRow(t.Context(), "select count(*) from "+s.table("notifications")).Scan(&stored))
	require.GreaterOrEqual(t, stored, want)
	next := s.start("notifyq-api")
	fresh := newCaller(t, next.base())
	fresh.key = shop
	for _, ids := range accepted {
		for _, id := range ids[max(0, len(ids)-10):] {
			fresh.job(id)
		}
	}
}
