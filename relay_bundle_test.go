package notifyq_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// post is a publisher that remembers its calls and answers as it was told.
type post struct {
	begin  func(ctx context.Context, e notifyq.Event) error // nil: begins
	answer func(ctx context.Context, e notifyq.Event) error // what Wait returns

	started chan notifyq.Event
	mu      sync.Mutex
	calls   []notifyq.Event
}

func newPost(answer func(ctx context.Context, e notifyq.Event) error) *post {
	return &post{answer: answer, started: make(chan notifyq.Event, 100_000)}
}

// acknowledging acknowledges everything.
func acknowledging() *post {
	return newPost(func(context.Context, notifyq.Event) error { return nil })
}

// heldBack acknowledges when it is told to, with what it is told.
func heldBack() (*post, chan error) {
	answers := make(chan error)
	return newPost(func(ctx context.Context, _ notifyq.Event) error {
		select {
		case err := <-answers:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}), answers
}

func (p *post) Start(ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
	e.Body = append([]byte(nil), e.Body...)
	p.mu.Lock()
	p.calls = append(p.calls, e)
	p.mu.Unlock()
	p.started <- e
	if p.begin != nil {
		if err := p.begin(ctx, e); err != nil {
			return nil, err
		}
	}
	return waiting(func(ctx context.Context) error { return p.answer(ctx, e) }), nil
}

type waiting func(ctx context.Context) error

func (w waiting) Wait(ctx context.Context) error { return w(ctx) }

// sent lists the calls for an event.
func (p *post) sent(id uuid.UUID) []notifyq.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []notifyq.Event
	for _, e := range p.calls {
		if e.ID == id {
			found = append(found, e)
		}
	}
	return found
}

func (p *post) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}

// next waits for a send.
func (b *workerBundle) next(p *post) notifyq.Event {
	b.t.Helper()
	select {
	case e := <-p.started:
		return e
	case <-time.After(patience):
		require.FailNow(b.t, "nothing is sent")
		return notifyq.Event{}
	}
}

// hub is a post whose receivers are endpoints.
type hub struct {
	*post
	endpoint func(e notifyq.Event) notifyq.Endpoint
}

func (h hub) Endpoint(e notifyq.Event) notifyq.Endpoint { return h.endpoint(e) }

// at is a hub with one endpoint.
func at(p *post, ep notifyq.Endpoint) hub {
	return hub{p, func(notifyq.Event) notifyq.Endpoint { return ep }}
}

// relayConfig is a relay whose lease never runs out in a test, unless the test says so.
func (b *workerBundle) relayConfig(p notifyq.Publisher) notifyq.RelayConfig {
	return notifyq.RelayConfig{
		Publisher: p, Schema: b.Schema, Client: b.client, Logger: b.logs.logger(),
		Concurrency: 10, PollInterval: 20 * time.Millisecond, Timeout: patience, Lease: time.Minute,
		ShutdownTimeout: patience, SampleInterval: 100 * time.Millisecond,
		Retry: notifyq.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond},
	}
}

// relay runs a relay until the test is over, which then fails if it did not drain cleanly.
func (b *workerBundle) relay(p notifyq.Publisher, edit ...func(*notifyq.RelayConfig)) *runningRelay {
	b.t.Helper()
	cfg := b.relayConfig(p)
	for _, e := range edit {
		e(&cfg)
	}
	r, err := notifyq.NewRelay(b.Pool, cfg)
	require.NoError(b.t, err)
	return &runningRelay{runningWorker: b.startRun(r.Run), relay: r}
}

type runningRelay struct {
	*runningWorker
	relay *notifyq.Relay
}

// publish commits n events of a service's own and returns their ids, in their order.
func (b *workerBundle) publish(n int, edit ...func(*notifyq.Event)) []uuid.UUID {
	b.t.Helper()
	ids := make([]uuid.UUID, n)
	err := pgx.BeginFunc(b.t.Context(), b.Pool, func(tx pgx.Tx) error {
		for i := range ids {
			e := notifyq.Event{Topic: "order.paid", Key: "k", Body: fmt.Appendf(nil, "body-%d", b.keys.Add(1))}
			for _, change := range edit {
				change(&e)
			}
			var err error
			if ids[i], err = b.client.PublishTx(b.t.Context(), tx, e); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(b.t, err)
	return ids
}

func withTopic(topic string) func(*notifyq.Event) {
	return func(e *notifyq.Event) { e.Topic = topic }
}

// eventRow is an event as it is stored.
type eventRow struct {
	Published, Parked, Claimed bool
	Failures                   int
	LastError, Reason          string
	Wait                       time.Duration // until it is due
}

func (b *workerBundle) event(id uuid.UUID) eventRow {
	b.t.Helper()
	rows, err := b.Pool.Query(b.t.Context(), b.sql(`
		select published_at is not null, parked_at is not null, claim_token is not null, failure_count, coalesce(last_error, ''),
		       coalesce(parked_reason, ''), (extract(epoch from next_attempt_at - statement_timestamp()) * 1e9)::bigint
		  from @outbox_events where id = $1`), id)
	require.NoError(b.t, err)
	e, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (e eventRow, err error) {
		err = row.Scan(&e.Published, &e.Parked, &e.Claimed, &e.Failures, &e.LastError, &e.Reason, &e.Wait)
		return e, err
	})
	require.NoError(b.t, err)
	return e
}

// awaitEvent waits until an event is as a test wants it.
func (b *workerBundle) awaitEvent(id uuid.UUID, ok func(eventRow) bool) eventRow {
	b.t.Helper()
	var e eventRow
	require.Eventually(b.t, func() bool { e = b.event(id); return ok(e) }, patience, poll, "event %s", id)
	return e
}

func (b *workerBundle) awaitPublished(ids ...uuid.UUID) {
	b.t.Helper()
	var left []string
	require.Eventually(b.t, func() bool {
		rows, err := b.Pool.Query(b.t.Context(), b.sql(`select id::text from @outbox_events where id = any($1) and published_at is null`), ids)
		if err != nil {
			return false
		}
		left, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err == nil && len(left) == 0
	}, patience, poll, "not published: %s", strings.Join(left, ", "))
}

// expireEventLeases lets claims run out.
func (b *workerBundle) expireEventLeases(ids ...uuid.UUID) {
	b.t.Helper()
	n := b.exec(`update @outbox_events set next_attempt_at = now() - interval '1 second' where id = any($1) and claim_token is not null`, ids)
	require.EqualValues(b.t, len(ids), n, "every one of them must be claimed")
}
