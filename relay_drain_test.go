package notifyq_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// Finding 5 of the relay's review, and C111: a stop in each phase of an event. Every one of them ends without a claim.

func (b *workerBundle) noEventIsClaimed() {
	b.t.Helper()
	require.Zero(b.t, one[int](b, `select count(*)::int from @outbox_events where claim_token is not null`))
}

func TestStopDuringTheClaimReleasesWhatItBrings(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(5)
	blocked, release := b.block("outbox_events", "update", "new.claim_token is not null")
	p := acknowledging()
	r := b.relay(p)
	blocked()
	r.cancel()
	b.logs.await(t, "relay.draining")
	release()
	require.NoError(t, r.stop())
	require.Zero(t, p.count(), "nothing may start any more")
	b.noEventIsClaimed()
	for _, id := range ids {
		e := b.event(id)
		require.Zero(t, e.Failures)
		require.LessOrEqual(t, e.Wait, time.Duration(0), "due at once")
	}
	require.EqualValues(t, 5, r.relay.Stats().Released)
	b.relay(p)
	b.awaitPublished(ids...)
}

func TestStopBeforeTheStartReleasesAtOnce(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(3)
	asked, goOn := make(chan struct{}, 10), make(chan struct{})
	p := acknowledging()
	r := b.relay(hub{p, func(e notifyq.Event) notifyq.Endpoint {
		if e.Topic != "" { // claimed, and not started
			asked <- struct{}{}
			<-goOn
		}
		return notifyq.Endpoint{}
	}})
	<-asked
	r.cancel()
	b.logs.await(t, "relay.draining")
	close(goOn)
	require.NoError(t, r.stop())
	require.Zero(t, p.count())
	b.noEventIsClaimed()
	require.Equal(t, 3, one[int](b, `select count(*)::int from @outbox_events where failure_count = 0 and next_attempt_at <= statement_timestamp()`))
	b.relay(p)
	b.awaitPublished(ids...)
}

func TestStopWaitsForAcknowledgementsAndRecordsThem(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(3)
	p, answers := heldBack()
	r := b.relay(p)
	for range ids {
		b.next(p)
	}
	r.cancel()
	b.logs.await(t, "relay.draining")
	late := b.publish(1)[0]
	b.client.Wake()
	answerAll(t, answers, 2, nil)
	answerAll(t, answers, 1, errSend)
	require.NoError(t, r.stop())
	require.Equal(t, 2, one[int](b, `select count(*)::int from @outbox_events where published_at is not null`))
	require.Equal(t, 1, one[int](b, `select max(failure_count) from @outbox_events`), "a failure in time is a failure")
	require.Empty(t, p.sent(late), "nothing is claimed any more")
	b.noEventIsClaimed()
}

func TestSendIsNotCancelledByTheStop(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.publish(1)[0]
	stopped := make(chan struct{})
	p := newPost(func(ctx context.Context, _ notifyq.Event) error {
		<-stopped
		return ctx.Err()
	})
	r := b.relay(p)
	b.next(p)
	r.cancel()
	b.logs.await(t, "relay.draining")
	close(stopped)
	require.NoError(t, r.stop())
	require.True(t, b.event(id).Published)
}

func TestStopHandsBackWhatIsUnacknowledgedAtTheDeadline(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(2)
	over := make(chan error, 2)
	p := newPost(func(ctx context.Context, _ notifyq.Event) error {
		<-ctx.Done()
		over <- context.Cause(ctx)
		return nil // too late
	})
	r := b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.ShutdownTimeout = 50 * time.Millisecond })
	b.next(p)
	b.next(p)
	err := r.drain()
	require.ErrorIs(t, err, notifyq.ErrDrainTimeout)
	require.ErrorContains(t, err, "2 events handed back")
	require.ErrorIs(t, <-over, notifyq.ErrLeaseLost)
	b.noEventIsClaimed()
	for _, id := range ids {
		e := b.event(id)
		require.False(t, e.Published)
		require.Zero(t, e.Failures)
		require.LessOrEqual(t, e.Wait, time.Duration(0))
	}
	next := acknowledging()
	b.relay(next)
	b.awaitPublished(ids...)
	require.Equal(t, 1, next.sent(ids[0])[0].Attempt)
}

// After the acknowledgement and before the mark: of one that is being written, and of one behind it.
func TestStopWaitsForTheMark(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.publish(2)
	blocked, release := b.block("outbox_events", "update", "new.published_at is not null")
	p, answers := heldBack()
	r := b.relay(p)
	b.next(p)
	b.next(p)
	answerAll(t, answers, 1, nil)
	blocked()
	answerAll(t, answers, 1, nil)
	r.cancel()
	b.logs.await(t, "relay.draining")
	release()
	require.NoError(t, r.stop())
	require.True(t, b.event(ids[0]).Published)
	require.True(t, b.event(ids[1]).Published)
	require.Equal(t, 2, p.count())
}

// A publisher that ignores its context does not keep the process.
func TestStopLeavesADeafPublisherBehind(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.publish(1)[0]
	p := newPost(func(context.Context, notifyq.Event) error {
		<-t.Context().Done()
		return nil
	})
	r := b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.ShutdownTimeout = 50 * time.Millisecond })
	b.next(p)
	require.ErrorIs(t, r.drain(), notifyq.ErrDrainTimeout)
	require.Zero(t, b.event(id).Failures)
	b.noEventIsClaimed()
}

// A relay that is stopped before its database is there has nothing to say.
func TestRelayStopsWhileItWaitsForItsSchema(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	cfg := b.relayConfig(acknowledging())
	cfg.Schema, cfg.Client = b.Schema+"_missing", nil
	r, err := notifyq.NewRelay(b.Pool, cfg)
	require.NoError(t, err)
	require.ErrorIs(t, r.Run(t.Context()), notifyq.ErrSchema)
	requireInvalid(t, r.Run(t.Context()), "Relay")
}
