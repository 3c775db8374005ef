package notifyq_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

var errSend = errors.New("it did not work")

// Finding 1 of the relay's review, C107: published means acknowledged.
func TestEventIsPublishedOnlyAfterItsAcknowledgement(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.publish(1)[0]
	p, answers := heldBack()
	b.relay(p)
	require.Equal(t, id, b.next(p).ID)
	e := b.event(id)
	require.True(t, e.Claimed)
	require.False(t, e.Published)

	answerAll(t, answers, 1, errSend)
	b.next(p) // again
	e = b.event(id)
	require.False(t, e.Published, "a rejected acknowledgement publishes nothing")
	require.Equal(t, 1, e.Failures)
	require.Equal(t, "unknown: it did not work", e.LastError)

	answerAll(t, answers, 1, nil)
	b.awaitPublished(id)
	require.Len(t, p.sent(id), 2)
}

// Finding 2, C96: the receiver recognizes a repetition by the id.
func TestEveryAttemptCarriesTheSameIDAndBytes(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	body := []byte("\x00\xff\r\n\u2028<&> {\"b\":1.0,\"a\":  \"x\"}")
	id := b.publish(1, func(e *notifyq.Event) { e.ID, e.Key, e.Body = uuid.New(), "customer-7", body })[0]
	p := newPost(func(_ context.Context, e notifyq.Event) error {
		if e.Attempt < 4 {
			return errSend
		}
		return nil
	})
	b.relay(p)
	b.awaitPublished(id)
	calls := p.sent(id)
	require.Len(t, calls, 4)
	for i, e := range calls {
		require.Equal(t, i+1, e.Attempt)
		require.Equal(t, "order.paid", e.Topic)
		require.Equal(t, "customer-7", e.Key)
		require.Equal(t, body, e.Body)
		require.WithinDuration(t, time.Now(), e.CreatedAt, time.Hour)
	}
	require.Equal(t, 4, p.count())
}

// Finding 3, C110: an event has one owner until its end is written.
func TestTwoRelaysNeverSendOneEventAtOnce(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(10)
	first, answers := heldBack()
	b.relay(first)
	for range ids {
		b.next(first)
	}
	second := acknowledging()
	b.relay(second)
	others := b.publish(20)
	b.awaitPublished(others...)
	require.Equal(t, len(others), second.count(), "the other relay has sent what was free, and nothing of the first one's")
	answerAll(t, answers, len(ids), nil)
	b.awaitPublished(ids...)
	require.Equal(t, len(ids), first.count())
}

// A claim is renewed for as long as its end can't be written.
func TestLeaseIsRenewedWhileTheAcknowledgementCannotBeRecorded(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.publish(1)[0]
	mend := b.sabotage("outbox_events", "update", "new.published_at is not null", "53100")
	p := acknowledging()
	short := func(cfg *notifyq.RelayConfig) { cfg.Timeout, cfg.Lease = 100*time.Millisecond, time.Second }
	b.relay(p, short)
	b.next(p)
	b.relay(p, short) // would take it over
	first := one[time.Time](b, `select next_attempt_at from @outbox_events where id = $1`, id)
	require.Eventually(t, func() bool {
		return one[time.Time](b, `select next_attempt_at from @outbox_events where id = $1`, id).Sub(first) > 2*time.Second
	}, patience, poll, "for longer than a lease or two")
	mend()
	b.awaitPublished(id)
	require.Equal(t, 1, p.count())
	require.Zero(t, b.event(id).Failures, "what was delivered has not failed (C95)")
}

// Finding 4, C104: what fails waits for itself.
func TestPoisonEventsStopNoOther(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	poison := map[string]uuid.UUID{}
	for _, how := range []string{"start", "ack", "panic", "panic in ack", "exit", "nothing", "forever", "deaf"} {
		poison[how] = b.publish(1, withTopic(how))[0]
	}
	good := b.publish(50)
	p := newPost(func(ctx context.Context, e notifyq.Event) error {
		switch e.Topic {
		case "ack":
			return notifyq.Rejected(errSend)
		case "panic in ack":
			panic("canary-panic")
		case "exit":
			runtime.Goexit()
		case "forever":
			<-ctx.Done()
			return ctx.Err()
		case "deaf":
			<-t.Context().Done() // it ignores its own context
		}
		return nil
	})
	p.begin = func(_ context.Context, e notifyq.Event) error {
		switch e.Topic {
		case "start":
			return notifyq.NotSent(errSend)
		case "panic":
			panic("canary-panic")
		}
		return nil
	}
	b.relay(nothing{p}, func(cfg *notifyq.RelayConfig) {
		cfg.Timeout = 200 * time.Millisecond
		cfg.Retry = notifyq.RetryPolicy{BaseDelay: time.Hour, MaxDelay: time.Hour}
	})
	b.awaitPublished(good...)
	for how, class := range map[string]string{
		"start": "not_sent", "ack": "rejected", "panic": "the publisher panicked: ", "panic in ack": "the publisher panicked: ",
		"exit": "the publisher ended its goroutine", "nothing": "unknown", "forever": "unknown", "deaf": "the publisher did not return in time",
	} {
		e := b.awaitEvent(poison[how], func(e eventRow) bool { return e.Failures == 1 })
		require.False(t, e.Published, how)
		require.False(t, e.Claimed, how)
		require.Contains(t, e.LastError, class, how)
		require.Greater(t, e.Wait, 20*time.Minute, how)
	}
	require.Equal(t, len(good)+len(poison), p.count())
	require.NotContains(t, b.logs.written(), "canary")
}

// nothing returns neither a Pending nor an error for a topic of that name.
type nothing struct{ *post }

func (n nothing) Start(ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
	pending, err := n.post.Start(ctx, e)
	if e.Topic == "nothing" {
		return nil, nil //nolint:nilnil // which is the fault
	}
	return pending, err
}

func TestBackoffIsTheOneOfJobsAndNeverLessThanAskedFor(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	own, asked := b.publish(1, withTopic("own"))[0], b.publish(1, withTopic("asked"))[0]
	far := b.publish(1, withTopic("far"))[0]
	p := newPost(func(_ context.Context, e notifyq.Event) error {
		switch e.Topic {
		case "asked":
			return notifyq.RetryAfter(notifyq.Rejected(errSend), 2*time.Hour)
		case "far":
			return notifyq.RetryAfter(errSend, 1000*time.Hour)
		}
		return notifyq.RetryAfter(errSend, time.Second)
	})
	b.relay(p, func(cfg *notifyq.RelayConfig) {
		cfg.Retry = notifyq.RetryPolicy{BaseDelay: time.Hour, MaxDelay: time.Hour}
	})
	failed := func(e eventRow) bool { return e.Failures == 1 }
	wait := b.awaitEvent(own, failed).Wait
	require.Greater(t, wait, 25*time.Minute)
	require.LessOrEqual(t, wait, time.Hour)
	wait = b.awaitEvent(asked, failed).Wait
	require.Greater(t, wait, 119*time.Minute)
	require.LessOrEqual(t, wait, 2*time.Hour)
	wait = b.awaitEvent(far, failed).Wait
	require.Greater(t, wait, 23*time.Hour)
	require.LessOrEqual(t, wait, 24*time.Hour)
}

func TestEventIsParkedAfterItsAttemptsAndRedrivenUnderItsID(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.publish(1)[0]
	broken := true
	p := newPost(func(context.Context, notifyq.Event) error {
		if broken {
			return errSend
		}
		return nil
	})
	r := b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.MaxAttempts = 3 })
	e := b.awaitEvent(id, func(e eventRow) bool { return e.Parked })
	require.Equal(t, "exhausted", e.Reason)
	require.Equal(t, 3, e.Failures)
	require.Len(t, p.sent(id), 3)
	require.NoError(t, r.stop())
	require.EqualValues(t, 1, r.relay.Stats().Parked)
	require.EqualValues(t, 3, r.relay.Stats().Failed)

	broken = false
	require.NoError(t, b.client.RedriveEvent(t.Context(), id, notifyq.Operation{Actor: "ann"}))
	b.relay(p)
	b.awaitPublished(id)
	calls := p.sent(id)
	require.Len(t, calls, 4)
	require.Equal(t, 1, calls[3].Attempt, "a fresh budget")
}

func TestBrokerRelayNeverGivesUpByDefaultButForWhatIsHopeless(t *testing.T) { // C104, C105
	t.Parallel()
	b := newWorkerBundle(t)
	hopeless, stubborn := b.publish(1, withTopic("hopeless"))[0], b.publish(1)[0]
	p := newPost(func(_ context.Context, e notifyq.Event) error {
		if e.Topic == "hopeless" {
			return notifyq.Permanent(notifyq.Rejected(errSend))
		}
		return errSend
	})
	b.relay(p)
	e := b.awaitEvent(hopeless, func(e eventRow) bool { return e.Parked })
	require.Equal(t, "refused", e.Reason)
	require.Len(t, p.sent(hopeless), 1)
	require.False(t, b.awaitEvent(stubborn, func(e eventRow) bool { return e.Failures > 30 }).Parked)
}

// What was sent by a relay that lost its claim is not recorded by it, whatever it heard.
func TestLateRelayCannotEndTheClaimOfAnother(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.publish(1)[0]
	slow, slowAnswers := heldBack()
	first := b.relay(slow, func(cfg *notifyq.RelayConfig) { cfg.PollInterval, cfg.PollOnly = time.Hour, true }) // or it would take it again
	b.next(slow)
	b.expireEventLeases(id)
	other, otherAnswers := heldBack()
	second := b.relay(other)
	require.Equal(t, 2, b.next(other).Attempt, "a claim that ran out counts")

	answerAll(t, slowAnswers, 1, nil)
	b.logs.awaitMatch(t, "event.claim_lost", func(e logEntry) bool { return e.attrs["eventId"] == id })
	e := b.event(id)
	require.False(t, e.Published)
	require.True(t, e.Claimed)
	require.EqualValues(t, 1, first.relay.Stats().LeaseLost)
	answerAll(t, otherAnswers, 1, nil)
	b.awaitPublished(id)
	require.Zero(t, second.relay.Stats().LeaseLost)
}

// C102: state decides, not the order of ids or times.
func TestEventThatCommitsLateIsPublished(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	late, err := b.client.PublishTx(t.Context(), tx, notifyq.Event{Topic: "late", Body: []byte("x")})
	require.NoError(t, err)
	p := acknowledging()
	b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.Concurrency = 3 })
	b.awaitPublished(b.publish(50)...)
	require.Empty(t, p.sent(late))
	require.NoError(t, tx.Commit(t.Context()))
	b.awaitPublished(late)
}

func TestRelayNeverHoldsMoreThanItCanSend(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(40)
	p, answers := heldBack()
	b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.Concurrency = 4 })
	for range 4 {
		b.next(p)
	}
	require.Equal(t, 4, one[int](b, `select count(*)::int from @outbox_events where claim_token is not null`))
	for range 36 {
		answerAll(t, answers, 1, nil)
		b.next(p)
		require.LessOrEqual(t, one[int](b, `select count(*)::int from @outbox_events where claim_token is not null`), 4)
	}
	answerAll(t, answers, 4, nil)
	b.awaitPublished(ids...)
}

// Bodies are up to 1 MiB, and slots may be many.
func TestRelayHoldsABoundedAmountOfBodies(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(80, func(e *notifyq.Event) { e.Body = make([]byte, notifyq.MaxEventBodyBytes) })
	p, answers := heldBack()
	b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.Concurrency = 1000 })
	for range 64 {
		b.next(p)
	}
	b.awaitPublished(b.publishSmall(answers, len(ids))...)
	require.Equal(t, 81, p.count())
}

// publishSmall adds an event, answers for all, and tells that at most 64 MiB were out at once.
func (b *workerBundle) publishSmall(answers chan error, big int) []uuid.UUID {
	b.t.Helper()
	require.Equal(b.t, 64, one[int](b, `select count(*)::int from @outbox_events where claim_token is not null`))
	ids := b.publish(1)
	answerAll(b.t, answers, big+1, nil)
	return ids
}

// An outage is no event's fault.
func TestUnavailablePublisherPausesTheRelayAndCountsNothing(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(100)
	p := acknowledging()
	up := make(chan struct{})
	p.begin = func(context.Context, notifyq.Event) error {
		select {
		case <-up:
			return nil
		default:
			return notifyq.Unavailable(errSend)
		}
	}
	r := b.relay(p)
	for range 3 {
		b.logs.await(t, "relay.publisher_unavailable")
		b.next(p)
	}
	require.Equal(t, 0, one[int](b, `select max(failure_count) from @outbox_events`))
	tried := p.count()
	require.Less(t, tried, len(ids), "one at a time tries whether it is back")
	close(up)
	b.awaitPublished(ids...)
	b.logs.await(t, "relay.publisher_available")
	require.Zero(t, r.relay.Stats().Failed)
	require.NotZero(t, r.relay.Stats().Released)
}

func TestCommitAndWakePublishWithoutWaitingForAPoll(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	p := acknowledging()
	b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.PollInterval, cfg.PollOnly = time.Hour, true })
	b.logs.await(t, "relay.started")
	for range 3 {
		ids := b.publish(1)
		b.client.Wake()
		b.awaitPublished(ids...)
	}
}

func TestWorkerWithAPublisherPublishesWhatBecameOfItsJobs(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	p := acknowledging()
	cfg := b.config(newCourier(func(_ context.Context, d notifyq.Delivery) error {
		if string(d.Payload) == `"refuse"` {
			return notifyq.Permanent(errNo)
		}
		return nil
	}))
	cfg.Publisher, cfg.PollOnly, cfg.Relay.PollInterval = p, true, time.Hour // woken by the worker
	b.start(cfg)
	sent := b.schedule()
	refused := b.schedule(func(n *notifyq.Notification) { n.Payload = []byte(`"refuse"`) })
	b.await(sent, notifyq.StatusSent)
	b.await(refused, notifyq.StatusFailed)
	seen := map[string]string{}
	for range 2 {
		e := b.next(p)
		seen[e.Key] = e.Topic
		require.Contains(t, string(e.Body), fmt.Sprintf(`{"eventId":"%s","jobId":"%s"`, e.ID, e.Key))
		b.awaitPublished(e.ID)
	}
	require.Equal(t, map[string]string{sent.String(): notifyq.TopicSent, refused.String(): notifyq.TopicFailed}, seen)
}

func TestRelayConfigIsChecked(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	for field, change := range map[string]func(*notifyq.RelayConfig){
		"Publisher":       func(cfg *notifyq.RelayConfig) { cfg.Publisher = nil },
		"Schema":          func(cfg *notifyq.RelayConfig) { cfg.Schema, cfg.Client = "No", nil },
		"ID":              func(cfg *notifyq.RelayConfig) { cfg.ID = strings.Repeat("x", 256) },
		"Client":          func(cfg *notifyq.RelayConfig) { cfg.Schema = "other" },
		"Concurrency":     func(cfg *notifyq.RelayConfig) { cfg.Concurrency = 10_001 },
		"PollInterval":    func(cfg *notifyq.RelayConfig) { cfg.PollInterval = time.Millisecond },
		"Timeout":         func(cfg *notifyq.RelayConfig) { cfg.Timeout = -1 },
		"Lease":           func(cfg *notifyq.RelayConfig) { cfg.Lease = cfg.Timeout },
		"MaxAttempts":     func(cfg *notifyq.RelayConfig) { cfg.MaxAttempts = -1 },
		"Retry.MaxDelay":  func(cfg *notifyq.RelayConfig) { cfg.Retry.MaxDelay = 25 * time.Hour },
		"ShutdownTimeout": func(cfg *notifyq.RelayConfig) { cfg.ShutdownTimeout = -1 },
		"SampleInterval":  func(cfg *notifyq.RelayConfig) { cfg.SampleInterval = time.Millisecond },
		"EventRetention":  func(cfg *notifyq.RelayConfig) { cfg.EventRetention = time.Second },
	} {
		cfg := b.relayConfig(acknowledging())
		change(&cfg)
		_, err := notifyq.NewRelay(b.Pool, cfg)
		requireInvalid(t, err, field)
	}
	_, err := notifyq.NewRelay(nil, b.relayConfig(acknowledging()))
	requireInvalid(t, err, "pool")
	_, err = notifyq.NewRelay(b.Pool, notifyq.RelayConfig{Publisher: acknowledging()})
	require.NoError(t, err, "everything else has a default")

	cfg := b.config(accepting())
	cfg.Relay.Concurrency = 5
	_, err = notifyq.NewWorker(b.Pool, cfg)
	requireInvalid(t, err, "Relay")
	cfg.Publisher, cfg.Relay.Schema = acknowledging(), "x"
	_, err = notifyq.NewWorker(b.Pool, cfg)
	requireInvalid(t, err, "Relay")
}
