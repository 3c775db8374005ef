package notifyq_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// Sends that hang take their own slots; the others turn over without waiting for polls.
func TestHangingSendsLeaveTheOtherSlotsTheirPace(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	hanging := b.publish(7, withTopic("hang"))
	quick := b.publish(200)
	release := make(chan struct{})
	p := newPost(func(ctx context.Context, e notifyq.Event) error {
		if e.Topic == "hang" {
			<-release
		}
		return nil
	})
	b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.PollInterval, cfg.PollOnly = time.Hour, true })
	b.awaitPublished(quick...)
	close(release)
	b.awaitPublished(hanging...)
}

// A receiver with fewer places than the relay has slots is kept busy, and events that were sent away come back in time.
func TestReceiverWithFewPlacesIsKeptBusy(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(100, withTopic("narrow"))
	p := newPost(func(context.Context, notifyq.Event) error {
		time.Sleep(5 * time.Millisecond) // so long a send takes
		return nil
	})
	b.relay(hub{p, func(e notifyq.Event) notifyq.Endpoint {
		if e.Topic == "" {
			return notifyq.Endpoint{}
		}
		return notifyq.Endpoint{Name: e.Topic, Concurrency: 2}
	}}, func(cfg *notifyq.RelayConfig) { cfg.PollInterval, cfg.PollOnly, cfg.Concurrency = time.Hour, true, 50 })
	b.awaitPublished(ids...)
}

// M1 of a review: somebody's lock on one row is nobody else's.
func TestLockedEventHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(40)
	p, answers := heldBack()
	b.relay(p)
	first := b.next(p).ID
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), b.sql(`select from @outbox_events where id = $1 for update`), first)
	require.NoError(t, err)
	answerAll(t, answers, len(ids), nil)
	require.Eventually(t, func() bool {
		return one[int](b, `select count(*)::int from @outbox_events where published_at is null`) == 1
	}, patience, poll)
	require.NoError(t, tx.Rollback(t.Context()))
	b.awaitPublished(first)
	require.Equal(t, len(ids), p.count())
}

// The same for a job.
func TestLockedJobHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	cfg := b.config(c)
	cfg.Concurrency = 10
	ids := b.scheduleMany(10)
	b.start(cfg)
	for range ids {
		c.next(t)
	}
	release := b.blockRecords(ids[0])
	answerAll(t, answers, len(ids), nil)
	b.awaitCount(notifyq.StatusSent, len(ids)-1)
	release()
	b.awaitCount(notifyq.StatusSent, len(ids))
}

// An event that kills its relay never has a result, and its attempts end all the same.
func TestEventWhoseClaimsRunOutIsParkedUnsentInTheEnd(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.publish(1)[0]
	b.exec(`update @outbox_events set failure_count = 1, last_error = 'before', claim_token = gen_random_uuid(), locked_by = 'dead' where id = $1`, id)
	p := acknowledging()
	b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.MaxAttempts = 2 })
	e := b.awaitEvent(id, func(e eventRow) bool { return e.Parked })
	require.Equal(t, "exhausted", e.Reason)
	require.Equal(t, 2, e.Failures)
	require.NotEmpty(t, e.LastError)
	require.Zero(t, p.count())
}

// What was sent before an outage tells nothing of its end.
func TestOldAnswersDoNotEndThePause(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	old := b.publish(3, withTopic("old"))
	fail := make(chan struct{})
	p := newPost(func(_ context.Context, e notifyq.Event) error {
		if e.Topic == "old" && e.Attempt == 1 {
			<-fail
			return notifyq.Rejected(errSend)
		}
		return nil
	})
	var away atomic.Bool
	p.begin = func(_ context.Context, e notifyq.Event) error {
		if away.Load() {
			return notifyq.Unavailable(errSend)
		}
		return nil
	}
	b.relay(p)
	for range old {
		b.next(p)
	}
	away.Store(true)
	b.publish(1)
	b.logs.await(t, "relay.publisher_unavailable")
	close(fail)
	for _, id := range old {
		b.awaitEvent(id, func(e eventRow) bool { return e.Failures == 1 })
	}
	require.Empty(t, b.logs.matching("relay.publisher_available", nil))
	away.Store(false)
	b.awaitPublished(old...)
	b.logs.await(t, "relay.publisher_available")
}

// A publisher that never comes back costs a bounded number of goroutines, and then the relay stops claiming.
func TestDeafPublisherCostsABoundedNumberOfSends(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	b.publish(100)
	free := make(chan struct{})
	p := newPost(func(context.Context, notifyq.Event) error {
		<-free
		return nil
	})
	b.relay(p, func(cfg *notifyq.RelayConfig) {
		cfg.Concurrency, cfg.Timeout, cfg.ShutdownTimeout = 5, 10*time.Millisecond, 10*time.Millisecond
		cfg.Retry = notifyq.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}
	}).asked = true
	require.Eventually(t, func() bool { return p.count() >= 10 }, patience, poll)
	more := b.publish(1)
	b.client.Wake()
	require.Never(t, func() bool { return p.count() > 14 }, 500*time.Millisecond, 50*time.Millisecond)
	close(free)
	b.awaitPublished(more...)
}

// Relays of an old and a new configuration side by side: each has its own address, and what is known of it.
func TestTwoAddressesOfOneReceiverDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	old := newPost(func(context.Context, notifyq.Event) error { return notifyq.Gone(errSend) })
	first := b.relay(at(old, notifyq.Endpoint{Name: "shop", Target: "old"}))
	ids := b.publish(5)
	b.logs.await(t, "endpoint.disabled")
	for _, id := range ids {
		b.awaitEvent(id, func(e eventRow) bool { return e.Parked })
	}
	p := acknowledging()
	b.relay(at(p, notifyq.Endpoint{Name: "shop", Target: "new"}))
	require.Eventually(t, func() bool {
		list, err := b.client.Endpoints(t.Context())
		return err == nil && len(list) == 1 && list[0].DisabledAt.IsZero()
	}, patience, poll, "the newer one is shown")
	require.NoError(t, first.stop())
	n, err := b.client.EnableEndpoint(t.Context(), notifyq.EnableParams{Name: "shop"})
	require.NoError(t, err)
	require.LessOrEqual(t, n, len(ids))
	b.awaitPublished(append(ids, b.publish(1)...)...)
}

func TestManyReceiversAreEnabledEach(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	const n = 1100
	var back atomic.Bool
	p := newPost(func(context.Context, notifyq.Event) error {
		if back.Load() {
			return nil
		}
		return notifyq.Gone(errSend)
	})
	b.exec(`insert into @outbox_events (id, topic, key, body)
		select gen_random_uuid(), 'r' || lpad(i::text, 4, '0'), '', 'x' from generate_series(1, $1::int) i`, n)
	b.relay(hub{p, func(e notifyq.Event) notifyq.Endpoint { return notifyq.Endpoint{Name: e.Topic} }},
		func(cfg *notifyq.RelayConfig) { cfg.Concurrency = 100 })
	require.Eventually(t, func() bool {
		return one[int](b, `select count(*)::int from @outbox_events where parked_at is not null`) == n
	}, patience, poll)
	back.Store(true)
	for _, i := range []int{1, n} {
		name := fmt.Sprintf("r%04d", i)
		brought, err := b.client.EnableEndpoint(t.Context(), notifyq.EnableParams{Name: name})
		require.NoError(t, err)
		require.Equal(t, 1, brought)
		require.Eventually(t, func() bool {
			return one[int](b, `select count(*)::int from @outbox_events where topic = $1 and published_at is not null`, name) == 1
		}, patience, poll)
	}
}
