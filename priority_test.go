package notifyq_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestHigherPriorityGoesFirst(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	low := b.scheduleMany(15, withPriority(notifyq.PriorityLow))
	normal := b.scheduleMany(15)
	high := b.scheduleMany(15, withPriority(notifyq.PriorityHigh))
	c := accepting()
	cfg := b.config(c)
	cfg.Concurrency, cfg.BatchSize = 1, 10
	b.start(cfg)
	b.awaitCount(notifyq.StatusSent, 45)
	var got []uuid.UUID
	for _, d := range c.all() {
		got = append(got, d.Key)
	}
	require.Equal(t, append(append(high, normal...), low...), got, "and among equals the one that was due first")
}

// C49: what comes back from a dead worker keeps its priority.
func TestRecoveredHighPriorityGoesBeforeFreshLow(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	high := b.scheduleMany(5, withPriority(notifyq.PriorityHigh))
	b.crash(5)
	b.scheduleMany(200, withPriority(notifyq.PriorityLow))
	b.expireLeases(high...)
	_, err := b.store.Recover(t.Context(), b.Pool, 100, false)
	require.NoError(t, err)
	c, answers := held()
	cfg := b.config(c)
	cfg.Concurrency, cfg.BatchSize = 5, 5
	b.start(cfg)
	var first []uuid.UUID
	for range 5 {
		first = append(first, c.next(t).Key)
	}
	require.ElementsMatch(t, high, first)
	close(answers)
}

// endless keeps 200 HIGH jobs due at any time and counts what is delivered of each priority.
type endless struct {
	b         *workerBundle
	delivered [4]atomic.Int64
	lowDone   chan struct{} // closed when every LOW and NORMAL job is delivered
	highDone  chan struct{} // closed when enough HIGH are
	stopped   atomic.Bool
}

const enoughHigh = 600

func newEndless(b *workerBundle) *endless {
	b.scheduleMany(3, withPriority(notifyq.PriorityLow), withPayload("1"))
	b.scheduleMany(3, withPriority(notifyq.PriorityNormal), withPayload("2"))
	b.scheduleMany(200, withPriority(notifyq.PriorityHigh), withPayload("3"))
	return &endless{b: b, lowDone: make(chan struct{}), highDone: make(chan struct{})}
}

func withPayload(json string) func(*notifyq.Notification) {
	return func(n *notifyq.Notification) { n.Payload = []byte(json) }
}

// Deliver implements Provider.
func (e *endless) Deliver(ctx context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	priority := d.Payload[0] - '0'
	n := e.delivered[priority].Add(1)
	if priority < 3 {
		if e.delivered[1].Load()+e.delivered[2].Load() == 6 && n == e.delivered[priority].Load() {
			close(e.lowDone)
		}
		return notifyq.Receipt{}, nil
	}
	if n == enoughHigh {
		close(e.highDone)
	}
	if !e.stopped.Load() {
		_, err := e.b.client.Schedule(ctx, notifyq.Notification{
			IdempotencyKey: fmt.Sprintf("endless-%d", n), Recipient: "u@example.test", Channel: "EMAIL",
			Payload: []byte("3"), Priority: notifyq.PriorityHigh,
		})
		return notifyq.Receipt{}, err
	}
	return notifyq.Receipt{}, nil
}

func (e *endless) config(share float64) notifyq.WorkerConfig {
	cfg := e.b.config(e)
	cfg.Concurrency, cfg.BatchSize, cfg.LowPriorityShare = 4, 20, share
	return cfg
}

func TestEndlessHighPriorityHoldsUpTheRest(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	e := newEndless(b)
	w := b.start(e.config(0))
	<-e.highDone
	require.Zero(t, e.delivered[1].Load())
	require.Zero(t, e.delivered[2].Load())
	e.stopped.Store(true)
	require.NoError(t, w.stop())
}

func TestLowPriorityShareMovesTheRestUnderEndlessHighPriority(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	e := newEndless(b)
	w := b.start(e.config(0.1))
	select {
	case <-e.lowDone:
	case <-e.highDone:
		t.Error("not moved, or far too slowly")
	}
	e.stopped.Store(true)
	require.NoError(t, w.stop())
}

func TestHangingProviderHoldsUpOnlyItsChannel(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	sms, answers := held()
	email := accepting()
	cfg := b.config(email)
	cfg.Concurrency, cfg.BatchSize = 4, 20
	cfg.Providers["SMS"] = notifyq.ProviderConfig{Provider: sms}
	b.scheduleMany(100, onChannel("SMS"), withPriority(notifyq.PriorityHigh))
	b.start(cfg)
	for range 3 {
		sms.next(t)
	}
	emails := b.scheduleMany(100, withPriority(notifyq.PriorityLow))
	b.awaitCount(notifyq.StatusSent, len(emails))
	requireOnce(t, email, emails)
	require.Len(t, sms.all(), 3)
	close(answers)
	b.awaitCount(notifyq.StatusSent, len(emails)+100)
}

func TestPausedChannelIsNotClaimedUntilItResumes(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	sms, answers := held()
	cfg := b.config(accepting())
	cfg.Providers["SMS"] = notifyq.ProviderConfig{Provider: sms}
	running := b.schedule(onChannel("SMS"))
	b.start(cfg)
	sms.next(t)
	require.NoError(t, b.client.PauseChannel(t.Context(), "SMS", notifyq.Operation{Actor: "a"}))
	paused := b.schedule(onChannel("SMS"))
	b.await(b.schedule(), notifyq.StatusSent)
	b.await(b.schedule(), notifyq.StatusSent)
	require.Equal(t, notifyq.StatusPending, b.job(paused).Status)
	answerAll(t, answers, 1, nil)
	b.await(running, notifyq.StatusSent) // what was claimed goes on
	require.Equal(t, notifyq.StatusPending, b.job(paused).Status)
	require.NoError(t, b.client.ResumeChannel(t.Context(), "SMS", notifyq.Operation{Actor: "a"}))
	sms.next(t)
	answerAll(t, answers, 1, nil)
	b.await(paused, notifyq.StatusSent)
}

// Each channel has a part of its own, which two others that hang can't take, whatever priorities wait in them.
func TestHangingChannelsCannotTakeWhatIsSetAsideForOthers(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	stuck, answers := held()
	email := accepting()
	cfg := b.config(email)
	cfg.Concurrency, cfg.BatchSize = 4, 20
	for _, channel := range []notifyq.Channel{"SMS", "PUSH"} {
		cfg.Providers[channel] = notifyq.ProviderConfig{Provider: stuck}
		for _, p := range []notifyq.Priority{notifyq.PriorityLow, notifyq.PriorityNormal, notifyq.PriorityHigh} {
			b.scheduleMany(50, onChannel(channel), withPriority(p))
		}
	}
	b.start(cfg)
	for range 3 {
		stuck.next(t)
	}
	emails := b.scheduleMany(50, withPriority(notifyq.PriorityLow))
	b.awaitCount(notifyq.StatusSent, len(emails))
	requireOnce(t, email, emails)
	require.Len(t, stuck.all(), 3)
	close(answers)
	b.awaitCount(notifyq.StatusSent, len(emails)+300)
}

func TestLowPriorityShareDoesNotGrowWithTheChannels(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	const channels, each, looked = 5, 100, 200
	c := accepting()
	cfg := b.config(c)
	cfg.Concurrency, cfg.BatchSize, cfg.LowPriorityShare = 5, 20, 0.1
	for i := range channels {
		channel := notifyq.Channel(fmt.Sprintf("C%d", i))
		cfg.Providers[channel] = cfg.Providers["EMAIL"]
		b.scheduleMany(each, onChannel(channel), withPriority(notifyq.PriorityHigh))
		b.scheduleMany(each, onChannel(channel), withPriority(notifyq.PriorityLow))
	}
	b.start(cfg)
	b.awaitCount(notifyq.StatusSent, 2*channels*each)
	early := make([]uuid.UUID, 0, looked)
	for _, d := range c.all()[:looked] {
		early = append(early, d.Key)
	}
	low := one[int](b, `select count(*)::int from @notifications where priority = 1 and id = any($1)`, early)
	require.LessOrEqual(t, low, looked/5, "a tenth was set aside")
	require.Positive(t, low)
}

// A batch that is being worked off slowly does not keep an urgent job out until half of it is done.
func TestUrgentJobNeedNotWaitForHalfABatch(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c := newCourier(func(context.Context, notifyq.Delivery) error {
		<-time.After(10 * time.Millisecond)
		return nil
	})
	cfg := b.config(c)
	cfg.Concurrency, cfg.BatchSize, cfg.PollInterval = 1, 200, 10*time.Millisecond
	b.scheduleMany(300)
	b.start(cfg)
	c.next(t)
	urgent := b.schedule(withPriority(notifyq.PriorityHigh))
	b.await(urgent, notifyq.StatusSent)
	require.Less(t, len(c.all()), 80)
}
