package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The receiver stores an event and then fails to say so: it comes again, the same to the byte, and is known by its id. The
// job has nothing to do with it.
func TestEventsAreRepeatedUnderOneID(t *testing.T) {
	begin(t)
	receiver := newReceiver(t)
	s := assemble(t, 3, append(receiver.settings(), "WEBHOOK_MAX_ATTEMPTS=1000")...)
	c := s.as(shop)
	receiver.fail(http.StatusInternalServerError)
	sent := c.ends(c.schedule("ann").ID, "SENT")
	until(t, "the event is repeated", func() bool {
		events := receiver.of(sent.ID)
		return len(events) == 1 && events[0].times >= 3
	})
	require.Equal(t, "SENT", c.job(sent.ID).Status)
	receiver.fail(0)
	until(t, "it is delivered", func() bool { return s.metrics().Webhooks.Delivered == 1 })
	events := receiver.of(sent.ID)
	require.Len(t, events, 1)
	require.JSONEq(t, `{"eventId":"`+events[0].EventID+`","jobId":"`+sent.ID+`","status":"SENT","attemptCount":1,"timestamp":"`+
		events[0].Timestamp.Format("2006-01-02T15:04:05.000Z")+`"}`, events[0].body)
}

// metrics is the JSON form.
func (s *system) metrics() (m struct {
	Jobs            struct{ Pending, Processing, Sent, Failed, DeadLettered, Cancelled int }
	QueueLagSeconds float64
	Webhooks        struct{ Pending, Delivered, GivenUp int }
	Estimated       bool
},
) {
	s.t.Helper()
	s.probe(s.api).get("/metrics", "Accept", "application/json").want(http.StatusOK).into(&m)
	return m
}

// A receiver that is gone is left alone until somebody enables it, and then gets what it missed.
func TestReceiverThatIsGoneIsDisabledUntilEnabled(t *testing.T) {
	begin(t)
	receiver := newReceiver(t)
	s := assemble(t, 1, receiver.settings()...) // of several each would learn it from the table in its own time
	c, all := s.as(shop), s.as(owner)
	receiver.fail(http.StatusGone)
	first := c.ends(c.schedule("first").ID, "SENT")
	type endpoint struct {
		Name, Reason string
		Failures     int
		DisabledAt   *time.Time
	}
	var list struct{ Items []endpoint }
	until(t, "the receiver is disabled", func() bool {
		all.get("/webhook-endpoints").want(http.StatusOK).into(&list)
		return len(list.Items) == 1 && list.Items[0].DisabledAt != nil
	})
	require.Equal(t, "gone", list.Items[0].Reason)
	second := c.ends(c.schedule("second").ID, "SENT")
	until(t, "both events are held back", func() bool { return s.metrics().Webhooks.GivenUp == 2 })
	require.Empty(t, receiver.of(second.ID))

	receiver.fail(0)
	target := "/webhook-endpoints/" + list.Items[0].Name + "/enable"
	c.post(target, "").refused(http.StatusForbidden, "tenant_key")
	all.post("/webhook-endpoints/nobody/enable", "").refused(http.StatusNotFound, "not_found")
	var done struct {
		Name    string
		Retried int
	}
	all.post(target, `{"reason":"it is back"}`).want(http.StatusOK).into(&done)
	require.Equal(t, 2, done.Retried)
	receiver.awaits(second.ID, 1)
	until(t, "both events are delivered", func() bool { return s.metrics().Webhooks.Delivered == 2 })
	require.Len(t, receiver.of(first.ID), 1)
	require.Equal(t, 2, receiver.of(first.ID)[0].times)
	all.get("/webhook-endpoints").want(http.StatusOK).into(&list)
	require.Nil(t, list.Items[0].DisabledAt)
}
