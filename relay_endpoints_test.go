package notifyq_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// C98: a receiver that says 410 gets nothing more until somebody enables it, and then what it missed.
func TestGoneReceiverIsDisabledAndMissesNothing(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var back atomic.Bool
	p := newPost(func(context.Context, notifyq.Event) error {
		if back.Load() {
			return nil
		}
		return notifyq.Gone(errSend)
	})
	ids := b.publish(1)
	b.relay(at(p, notifyq.Endpoint{Name: "shop", Target: "one"}))
	b.logs.await(t, "endpoint.disabled")
	ids = append(ids, b.publish(30)...)
	for _, id := range ids {
		e := b.awaitEvent(id, func(e eventRow) bool { return e.Parked })
		require.Equal(t, "disabled", e.Reason)
		require.Zero(t, e.Failures)
	}
	require.Equal(t, 1, p.count(), "it was asked once")
	list, err := b.client.Endpoints(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "gone", list[0].Reason)

	back.Store(true)
	n, err := b.client.EnableEndpoint(t.Context(), notifyq.EnableParams{Name: "shop", Operation: notifyq.Operation{Actor: "ann"}})
	require.NoError(t, err)
	require.Equal(t, len(ids), n)
	b.awaitPublished(ids...)
	b.awaitPublished(b.publish(1)...)
}

func TestReceiverThatOnlyFailsIsDisabledAfterAWhile(t *testing.T) { // C101
	t.Parallel()
	b := newWorkerBundle(t)
	p := newPost(func(context.Context, notifyq.Event) error { return notifyq.Rejected(errSend) })
	b.relay(at(p, notifyq.Endpoint{Name: "shop", DisableAfter: time.Hour, MaxAttempts: 2}))
	given := b.publish(3)
	for _, id := range given {
		require.Equal(t, "exhausted", b.awaitEvent(id, func(e eventRow) bool { return e.Parked }).Reason)
	}
	b.logs.await(t, "endpoint.failing")
	require.Equal(t, 1, int(b.exec(`update @webhook_endpoints set failing_since = failing_since - interval '2 hours' where disabled_at is null`)))
	last := b.publish(1)
	b.logs.await(t, "endpoint.disabled")
	held := b.publish(5)
	for _, id := range held {
		require.Equal(t, "disabled", b.awaitEvent(id, func(e eventRow) bool { return e.Parked }).Reason)
	}
	n, err := b.client.EnableEndpoint(t.Context(), notifyq.EnableParams{Name: "shop"})
	require.NoError(t, err)
	require.Equal(t, len(given)+len(last)+len(held), n, "what was held, and what was given up since it began to fail")
}

// C98: what was known of the old address does not hold for the new one.
func TestReceiverWithANewAddressStartsOver(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	old := newPost(func(context.Context, notifyq.Event) error { return notifyq.Gone(errSend) })
	ids := b.publish(1)
	r := b.relay(at(old, notifyq.Endpoint{Name: "shop", Target: "one"}))
	b.logs.await(t, "endpoint.disabled")
	ids = append(ids, b.publish(3)...)
	for _, id := range ids {
		b.awaitEvent(id, func(e eventRow) bool { return e.Parked })
	}
	require.NoError(t, r.stop())
	p := acknowledging()
	b.relay(at(p, notifyq.Endpoint{Name: "shop", Target: "two"}))
	b.awaitPublished(ids...)
	require.Equal(t, 1, old.count())
}

// One receiver that hangs takes its own places and nobody else's.
func TestHangingReceiverHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	p := newPost(func(ctx context.Context, e notifyq.Event) error {
		if e.Topic == "slow" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	slow := b.publish(200, withTopic("slow"))
	quick := b.publish(200)
	b.relay(hub{p, func(e notifyq.Event) notifyq.Endpoint {
		if e.Topic == "" {
			return notifyq.Endpoint{}
		}
		return notifyq.Endpoint{Name: e.Topic, Concurrency: 3}
	}},
		func(cfg *notifyq.RelayConfig) { cfg.ShutdownTimeout = 10 * time.Millisecond; cfg.Concurrency = 20 }).asked = true
	b.awaitPublished(quick...)
	tried := 0
	for _, id := range slow {
		tried += len(p.sent(id))
	}
	require.LessOrEqual(t, tried, 3)
}

func TestRecoveredReceiverIsKnownAsSuch(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var fail atomic.Bool
	fail.Store(true)
	p := newPost(func(context.Context, notifyq.Event) error {
		if fail.Load() {
			return errSend
		}
		return nil
	})
	b.relay(at(p, notifyq.Endpoint{Name: "shop"}))
	ids := b.publish(1)
	b.logs.await(t, "endpoint.failing")
	fail.Store(false)
	b.awaitPublished(ids...)
	b.logs.await(t, "endpoint.recovered")
	list, err := b.client.Endpoints(t.Context())
	require.NoError(t, err)
	require.Equal(t, []notifyq.EndpointStatus{{Name: "shop"}}, list)
}

// A publisher's Endpoint is as much the publisher's as its Start.
func TestEndpointThatMisbehavesCostsItsOwnEventsOnly(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	p := acknowledging()
	bad := map[string]uuid.UUID{}
	for _, topic := range []string{"panic", "exit", "block"} {
		bad[topic] = b.publish(1, withTopic(topic))[0]
	}
	b.relay(hub{p, func(e notifyq.Event) notifyq.Endpoint {
		switch e.Topic {
		case "", "panic":
			panic(errors.New("canary-panic"))
		case "exit":
			runtime.Goexit()
		case "block":
			<-t.Context().Done()
		case "nonsense":
			return notifyq.Endpoint{Name: "a\nb"}
		}
		return notifyq.Endpoint{Name: "shop", Concurrency: -1}
	}}, func(cfg *notifyq.RelayConfig) {
		cfg.Timeout = 100 * time.Millisecond
		cfg.Retry = notifyq.RetryPolicy{BaseDelay: time.Hour, MaxDelay: time.Hour}
	})
	b.awaitPublished(append(b.publish(1, withTopic("nonsense")), b.publish(5)...)...)
	for _, id := range bad {
		b.awaitEvent(id, func(e eventRow) bool { return e.Failures == 1 })
	}
	require.NotContains(t, b.logs.written(), "canary")
}
