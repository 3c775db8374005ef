package notifyq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// C61, C65, C95 for the relay: what was acknowledged during an outage is kept, and recorded when it is over.
func TestRelayOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	b := workerBundleOn(t, server.New(t))
	ids := b.publish(5)
	server.Stop(t)
	p, answers := heldBack()
	b.relay(p)
	b.logs.await(t, "relay.database_away")
	server.Restart(t)
	for range ids {
		b.next(p)
	}
	server.Crash(t)
	answerAll(t, answers, 5, nil)
	b.logs.await(t, "relay.record_failed")
	b.logs.await(t, "relay.poll_failed")
	server.Restart(t)
	b.awaitPublished(ids...)
	require.Equal(t, 5, p.count(), "nothing is sent again")
	require.Equal(t, 0, one[int](b, `select max(failure_count) from @outbox_events`))
	b.logs.await(t, "relay.record_recovered")
	more := b.publish(1)
	b.next(p)
	answerAll(t, answers, 1, nil)
	b.awaitPublished(more...)
}

// Who wakes a relay does so once: a claim that failed must not forget it until the next poll.
func TestWakeUpOutlivesAClaimThatFails(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	p := acknowledging()
	b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.PollInterval, cfg.PollOnly = time.Hour, true })
	first := b.publish(1)
	b.client.Wake()
	b.awaitPublished(first...)
	mend := b.sabotage("outbox_events", "update", "new.claim_token is not null", "53100")
	ids := b.publish(1)
	b.client.Wake()
	b.logs.await(t, "relay.poll_failed")
	mend()
	b.awaitPublished(ids...)
}

// C95: a failure that can't be recorded for a while is neither lost nor counted twice.
func TestFailureThatCannotBeRecordedSurvives(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.publish(1)[0]
	mend := b.sabotage("outbox_events", "update", "new.failure_count > old.failure_count", "53100")
	p := newPost(func(_ context.Context, e notifyq.Event) error {
		if e.Attempt == 1 {
			return errSend
		}
		return nil
	})
	b.relay(p)
	b.logs.await(t, "relay.record_failed")
	require.Equal(t, 1, p.count())
	mend()
	b.awaitPublished(id)
	require.Equal(t, 2, p.count())
	require.Equal(t, 1, b.event(id).Failures)
}

// A text that the database refuses must not sink the batch.
func TestEventErrorThatCannotBeStoredIsLeftOut(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	bad := b.publish(1, withTopic("bad"))[0]
	good := b.publish(20)
	b.sabotage("outbox_events", "update", "new.last_error is not null", "22001")
	p := newPost(func(_ context.Context, e notifyq.Event) error {
		if e.Topic == "bad" {
			return errSend
		}
		return nil
	})
	b.relay(p, func(cfg *notifyq.RelayConfig) { cfg.MaxAttempts = 1 })
	b.awaitPublished(good...)
	e := b.awaitEvent(bad, func(e eventRow) bool { return e.Parked })
	require.Empty(t, e.LastError)
}

// The relay as a process, started by the test below.
func TestRelayProcess(t *testing.T) {
	receiver := os.Getenv("NOTIFYQ_TEST_RELAY_RECEIVER")
	if receiver == "" {
		t.Skip("runs as a process of another test")
	}
	pool := poolAt(t, os.Getenv("NOTIFYQ_TEST_RELAY_DATABASE"))
	r, err := notifyq.NewRelay(pool, notifyq.RelayConfig{
		Publisher: poster(receiver), Schema: os.Getenv("NOTIFYQ_TEST_RELAY_SCHEMA"), Logger: slog.New(slog.DiscardHandler),
		Timeout: 400 * time.Millisecond, Lease: time.Second, PollInterval: 20 * time.Millisecond,
		Retry: notifyq.RetryPolicy{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond},
	})
	require.NoError(t, err)
	require.NoError(t, r.Run(t.Context()))
}

// poster sends events to a URL as JSON.
type poster string

func (p poster) Start(ctx context.Context, e notifyq.Event) (notifyq.Pending, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, notifyq.Permanent(err)
	}
	return waiting(func(context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, string(p), bytes.NewReader(body))
		if err != nil {
			return notifyq.Permanent(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return err
	}), nil
}

// inbox counts what it receives, by id.
type inbox struct {
	mu     sync.Mutex
	bodies map[uuid.UUID]string
	times  map[uuid.UUID]int
	total  int
	grown  chan struct{} // one slot
}

func (in *inbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var e notifyq.Event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	in.mu.Lock()
	in.bodies[e.ID] = string(e.Body)
	in.times[e.ID]++
	in.total++
	in.mu.Unlock()
	select {
	case in.grown <- struct{}{}:
	default:
	}
}

func (in *inbox) counts() (distinct, total int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.times), in.total
}

// waitFor waits until so many events came in, or nothing comes any more.
func (in *inbox) waitFor(total int) {
	for {
		if _, n := in.counts(); n >= total {
			return
		}
		select {
		case <-in.grown:
		case <-time.After(5 * time.Second):
			return
		}
	}
}

// C110, C111: kills lose nothing, and repeat what was not recorded, under the same ids.
func TestKilledRelaysLoseNoEvent(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a process a dozen times")
	}
	b := newWorkerBundle(t)
	const n = 10_000
	b.exec(`insert into @outbox_events (id, topic, key, body)
		select gen_random_uuid(), 'order.paid', 'k', convert_to('body-' || i, 'UTF8') from generate_series(1, $1::int) i`, n)
	in := &inbox{bodies: map[uuid.UUID]string{}, times: map[uuid.UUID]int{}, grown: make(chan struct{}, 1)}
	server := httptest.NewServer(in)
	t.Cleanup(server.Close)
	kills := 0
	for {
		distinct, total := in.counts()
		if distinct == n {
			break
		}
		relay := b.relayProcess(server.URL)
		in.waitFor(total + 900)
		if distinct, _ = in.counts(); distinct == n {
			require.Eventually(t, func() bool {
				return one[int](b, `select count(*)::int from @outbox_events where published_at is null`) == 0
			}, patience, poll)
		}
		require.NoError(t, relay.Process.Signal(syscall.SIGKILL))
		_ = relay.Wait()
		kills++
		require.Less(t, kills, 100)
	}
	require.GreaterOrEqual(t, kills, 8)
	b.relay(poster(server.URL)) // for what the last one had received and not recorded
	require.Eventually(t, func() bool {
		return one[int](b, `select count(*)::int from @outbox_events where published_at is null`) == 0
	}, patience, poll)
	sent := map[string]bool{}
	for id, body := range in.bodies {
		require.Equal(t, body, one[string](b, `select convert_from(body, 'UTF8') from @outbox_events where id = $1`, id))
		sent[body] = true
	}
	require.Len(t, sent, n)
	_, total := in.counts()
	t.Logf("%d kills, %d repetitions", kills, total-n)
}

func (b *workerBundle) relayProcess(receiver string) *exec.Cmd {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), os.Args[0], "-test.run=^TestRelayProcess$")
	cmd.Env = append(os.Environ(), "NOTIFYQ_TEST_DATABASE_URL="+b.URL, "NOTIFYQ_TEST_RELAY_DATABASE="+b.URL,
		"NOTIFYQ_TEST_RELAY_SCHEMA="+b.Schema, "NOTIFYQ_TEST_RELAY_RECEIVER="+receiver)
	require.NoError(b.t, cmd.Start())
	b.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}
