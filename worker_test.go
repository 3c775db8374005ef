package notifyq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/store"
)

// errNo is what a provider says.
var errNo = errors.New("no")

func TestTenWorkersDeliverEachJobOnce(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c := accepting()
	ids := b.scheduleMany(400)
	for i := range 10 {
		cfg := b.config(c)
		cfg.ID = fmt.Sprintf("worker-%d", i)
		cfg.BatchSize = 40
		b.start(cfg)
	}
	b.awaitCount(notifyq.StatusSent, len(ids))
	requireOnce(t, c, ids)
}

func TestProviderGetsWhatWasAskedUnderOneKey(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(func(n *notifyq.Notification) {
		n.Recipient, n.Tenant, n.Payload = "someone@example.test", "acme", []byte(`{"x": 1.10, "n": 12345678901234567890}`)
		n.MaxAttempts = 2
	})
	c := failing(errNo)
	b.run(c)
	first, second := c.next(t), c.next(t)
	require.Equal(t, notifyq.Delivery{
		Key: id, Attempt: 1, FirstAttemptAt: first.FirstAttemptAt, Tenant: "acme", Recipient: "someone@example.test",
		Channel: notifyq.ChannelEmail, Payload: []byte(`{"x": 1.10, "n": 12345678901234567890}`),
	}, first)
	require.WithinDuration(t, b.job(id).CreatedAt, first.FirstAttemptAt, patience)
	again := first
	again.Attempt = 2
	require.Equal(t, again, second, "the key and the first attempt's time stay")

	b.await(id, notifyq.StatusDeadLettered)
	_, err := b.client.Redrive(t.Context(), id, notifyq.Operation{})
	require.NoError(t, err)
	require.Equal(t, first, c.next(t), "a redrive counts attempts from one, under the same key")
	b.awaitJob(id, func(j notifyq.Job) bool { return j.Status == notifyq.StatusDeadLettered && j.RedriveCount == 1 })
}

func TestSentJobTellsWhatTheProviderCalledIt(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	b.run(accepting())
	job := b.await(id, notifyq.StatusSent)
	require.Equal(t, "p-"+id.String(), job.ProviderID)
	require.Equal(t, 1, job.AttemptCount)
	require.False(t, job.SentAt.IsZero())
	require.Empty(t, b.failedAttempts(id))
	require.Zero(t, job.LockedBy)
}

// C34. The provider asks the database's clock.
func TestNoJobIsDeliveredOrHeldBeforeItIsDue(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var early atomic.Int64
	c := newCourier(func(ctx context.Context, d notifyq.Delivery) error {
		var due bool
		err := b.Pool.QueryRow(ctx, b.sql(`select now() >= scheduled_at from @notifications where id = $1`), d.Key).Scan(&due)
		if err != nil || !due {
			early.Add(1)
		}
		return nil
	})
	for range 3 {
		b.run(c)
	}
	ids := b.scheduleMany(30, func(n *notifyq.Notification) { n.Delay = 400 * time.Millisecond })
	held := one[int64](b, `select count(*) from @notification_queue q join @notifications n using (id)
		where q.status = 1 and n.scheduled_at > clock_timestamp()`)
	require.Zero(t, held)
	b.awaitCount(notifyq.StatusSent, len(ids))
	require.Zero(t, early.Load())
	requireOnce(t, c, ids)
}

func TestWorkerLeavesChannelsItDoesNotServeToOthers(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	sms := b.schedule(onChannel("SMS"))
	email := b.schedule()
	b.run(accepting())
	b.await(email, notifyq.StatusSent)
	require.Equal(t, notifyq.StatusPending, b.job(sms).Status)
	cfg := b.config(nil)
	cfg.Providers = map[notifyq.Channel]notifyq.ProviderConfig{"SMS": {Provider: accepting()}}
	b.start(cfg)
	b.await(sms, notifyq.StatusSent)
}

func TestSchedulingWakesAWorkerThatWouldPollMuchLater(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	cfg := b.config(accepting())
	cfg.PollInterval, cfg.PollOnly = time.Hour, true // the client tells it directly
	b.start(cfg)
	b.logs.await(t, "worker.started")
	b.await(b.schedule(), notifyq.StatusSent) // may still be found by the first look
	b.await(b.schedule(), notifyq.StatusSent)
}

func TestJobWithoutAWakeIsFoundByPolling(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	cfg := b.config(accepting())
	cfg.Client, cfg.PollOnly = nil, true
	b.start(cfg)
	b.await(b.schedule(), notifyq.StatusSent)
	b.await(b.schedule(), notifyq.StatusSent)
}

// A row that commits behind the claimer's mark must not wait until the backlog before it has gone.
func TestJobBehindTheMarkIsFoundWhileTheBacklogLasts(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	late := b.schedule(func(n *notifyq.Notification) { n.Delay = time.Hour })
	b.scheduleMany(10_000)
	var delivered atomic.Int64
	found := make(chan struct{})
	c := newCourier(func(ctx context.Context, d notifyq.Delivery) error {
		switch n := delivered.Add(1); {
		case d.Key == late:
			close(found)
		case n == 200:
			if _, err := b.Pool.Exec(ctx, b.sql(
				`update @notification_queue set next_attempt_at = now() - interval '1 hour' where id = $1`), late); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Millisecond)
		return nil
	})
	cfg := b.config(c)
	cfg.Concurrency, cfg.BatchSize = 2, 20
	b.start(cfg)
	select {
	case <-found:
	case <-time.After(patience):
		require.FailNow(t, "not found")
	}
	require.Less(t, delivered.Load(), int64(8000), "the backlog came first")
}

func TestJobThatIsBeingDeliveredIsNotCancelled(t *testing.T) { // C42
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule(withAttempts(2))
	c, answers := held()
	b.run(c)
	c.next(t)
	job, err := b.client.Cancel(t.Context(), id, notifyq.Operation{})
	require.ErrorIs(t, err, notifyq.ErrNotCancellable)
	require.Equal(t, notifyq.StatusProcessing, job.Status)
	answerAll(t, answers, 1, errNo) // the job follows its own outcome
	c.next(t)
	answerAll(t, answers, 1, nil)
	b.await(id, notifyq.StatusSent)
}

// A connection for a lease and for records must be there whatever the service does with its pool.
func TestExhaustedPoolOfTheServiceDoesNotHoldUpTheWorker(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	c, answers := held()
	cfg := b.config(c)
	cfg.Lease, cfg.Concurrency, cfg.BatchSize = 1200*time.Millisecond, 1, 4
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 1100 * time.Millisecond}
	ids := b.scheduleMany(4)
	b.start(cfg)
	c.next(t)
	// A connection outside the pool looks on.
	conn, err := pgx.Connect(t.Context(), b.URL)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	for range b.Pool.Config().MaxConns {
		held, err := b.Pool.Acquire(t.Context())
		require.NoError(t, err)
		defer held.Release()
	}
	leases := func() (earliest time.Time) {
		require.NoError(t, conn.QueryRow(t.Context(), b.sql(`select min(leased_until) from @notification_queue where id = any($1) and status = 1`),
			ids[1:]).Scan(&earliest))
		return earliest
	}
	before := leases()
	require.Eventually(t, func() bool { return leases().After(before) }, patience, poll, "waiting jobs' leases are renewed")
	close(answers)
	require.Eventually(t, func() bool {
		var n int
		err := conn.QueryRow(t.Context(), b.sql(`select count(*) from @notification_outcomes where status = 2`)).Scan(&n)
		return err == nil && n == len(ids)
	}, patience, poll)
}

// C124. While nobody gets at the queue, everything that the worker does at the same time wants a connection.
func TestWorkerOpensNoMoreConnectionsThanPromised(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		promised int
		edit     func(cfg *notifyq.WorkerConfig)
	}{
		"alone":            {3, func(*notifyq.WorkerConfig) {}},
		"with a publisher": {5, func(cfg *notifyq.WorkerConfig) { cfg.Publisher = acknowledging() }},
		"that only polls":  {2, func(cfg *notifyq.WorkerConfig) { cfg.PollOnly = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newWorkerBundle(t).spendConnections(c.promised, c.edit)
		})
	}
}

// spendConnections runs a worker that wants every connection that it may have, and no more.
func (b *workerBundle) spendConnections(promised int, edit func(cfg *notifyq.WorkerConfig)) {
	t := b.t
	t.Helper()
	name := "budget-" + b.Schema
	counted := b.through(poolAt(t, b.URL, "application_name", name))
	count := func() (n int) {
		err := b.Pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where application_name = $1`, name).Scan(&n)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	c, answers := held()
	cfg := counted.config(c)
	cfg.Client, cfg.Concurrency, cfg.BatchSize, cfg.Lease = nil, 2, 20, time.Second
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 900 * time.Millisecond}
	edit(&cfg)
	ids := b.scheduleMany(8, parked)
	worker, err := notifyq.NewWorker(counted.Pool, cfg)
	require.NoError(t, err)
	w := b.startRun(worker.Run)
	c.next(t)
	require.Eventually(t, func() bool { return worker.Stats().Listening != cfg.PollOnly }, patience, poll)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	for _, table := range []string{"notification_queue", "outbox_events"} {
		_, err = tx.Exec(t.Context(), b.sql(`lock table @`+table+` in access exclusive mode`))
		require.NoError(t, err)
	}
	answerAll(t, answers, 1, nil)
	most := 0
	for began := time.Now(); time.Since(began) < 700*time.Millisecond; time.Sleep(10 * time.Millisecond) { // no call times out in that
		most = max(most, count())
	}
	require.Equal(t, promised, most)
	require.NoError(t, tx.Rollback(t.Context()))
	close(answers)
	for _, id := range ids { // what the lock held up for too long is parked
		b.awaitJob(id, func(j notifyq.Job) bool { return j.Status.Terminal() })
	}
	require.NoError(t, w.stop())
	require.Eventually(t, func() bool { return count() == 0 }, patience, poll, "a stopped worker holds no connection")
}

func TestWorkerRunsOnlyOnce(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	worker, err := notifyq.NewWorker(b.Pool, b.config(accepting()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, worker.Run(ctx))
	require.ErrorIs(t, worker.Run(t.Context()), notifyq.ErrInvalid)
}

func TestRunWithAnEndedContextTouchesNothing(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	before := b.job(id)
	c := accepting()
	worker, err := notifyq.NewWorker(b.Pool, b.config(c))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, worker.Run(ctx))
	require.Empty(t, c.all())
	require.Equal(t, before, b.job(id))
}

func TestRunRefusesADatabaseWithoutTheSchema(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	cfg := b.config(accepting())
	cfg.Schema, cfg.Client = "nothing_here", nil
	worker, err := notifyq.NewWorker(b.Pool, cfg)
	require.NoError(t, err)
	require.ErrorIs(t, worker.Run(t.Context()), notifyq.ErrSchema)
}

func TestWorkerRefusesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	elsewhere, err := notifyq.NewClient(pool, notifyq.ClientConfig{Schema: "elsewhere"})
	require.NoError(t, err)
	email := func(edit func(*notifyq.ProviderConfig)) func(*notifyq.WorkerConfig) {
		return func(cfg *notifyq.WorkerConfig) {
			p := cfg.Providers["EMAIL"]
			edit(&p)
			cfg.Providers["EMAIL"] = p
		}
	}
	for field, edit := range map[string]func(*notifyq.WorkerConfig){
		"Schema":            func(c *notifyq.WorkerConfig) { c.Schema = "no;pe" },
		"ID":                func(c *notifyq.WorkerConfig) { c.ID = "a\nb" },
		"Client":            func(c *notifyq.WorkerConfig) { c.Client = elsewhere },
		"Concurrency":       func(c *notifyq.WorkerConfig) { c.Concurrency = 10_001 },
		"BatchSize":         func(c *notifyq.WorkerConfig) { c.BatchSize = -1 },
		"PollInterval":      func(c *notifyq.WorkerConfig) { c.PollInterval = time.Millisecond },
		"Lease":             func(c *notifyq.WorkerConfig) { c.Lease = 999 * time.Millisecond },
		"RecoveryInterval":  func(c *notifyq.WorkerConfig) { c.RecoveryInterval = time.Millisecond },
		"ShutdownTimeout":   func(c *notifyq.WorkerConfig) { c.ShutdownTimeout = -1 },
		"Retry.BaseDelay":   func(c *notifyq.WorkerConfig) { c.Retry.BaseDelay = time.Microsecond },
		"Retry.MaxDelay":    func(c *notifyq.WorkerConfig) { c.Retry.MaxDelay = 25 * time.Hour },
		"RateLimits[0].Max": func(c *notifyq.WorkerConfig) { c.RateLimits = []notifyq.RateLimit{{Window: time.Minute}} },
		"LowPriorityShare":  func(c *notifyq.WorkerConfig) { c.LowPriorityShare = 0.91 },
		"Retention":         func(c *notifyq.WorkerConfig) { c.Retention = time.Second },
		"EventRetention":    func(c *notifyq.WorkerConfig) { c.EventRetention = time.Second },
		"Providers":         func(c *notifyq.WorkerConfig) { c.Providers = nil },
		// A call that outlived its lease could be made twice at once.
		"Providers[EMAIL].Timeout":       email(func(p *notifyq.ProviderConfig) { p.Timeout = 5 * time.Minute }),
		"Providers[EMAIL].Provider":      email(func(p *notifyq.ProviderConfig) { p.Provider = nil }),
		"Providers[EMAIL].Concurrency":   email(func(p *notifyq.ProviderConfig) { p.Concurrency = 11 }),
		"Providers[EMAIL].RatePerSecond": email(func(p *notifyq.ProviderConfig) { p.RatePerSecond = -1 }),
	} {
		cfg := notifyq.WorkerConfig{Providers: map[notifyq.Channel]notifyq.ProviderConfig{"EMAIL": {Provider: accepting()}}}
		_, err := notifyq.NewWorker(pool, cfg)
		require.NoError(t, err)
		edit(&cfg)
		_, err = notifyq.NewWorker(pool, cfg)
		var invalid *notifyq.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
	_, err = notifyq.NewWorker(nil, notifyq.WorkerConfig{})
	require.ErrorIs(t, err, notifyq.ErrInvalid)
}

// The control of the claim: what reads and then updates without a lock hands one job to several workers. The test below
// drives the real statement in the same way.
func TestNaiveClaimHandsOneJobToSeveralWorkers(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	b.scheduleMany(5)
	claims := make(map[uuid.UUID]int)
	var read, wrote sync.WaitGroup
	var mu sync.Mutex
	read.Add(3)
	for range 3 {
		wrote.Go(func() {
			rows, err := b.Pool.Query(t.Context(), b.sql(`select id from @notification_queue where status = 0 limit 5`))
			ids, collectErr := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			read.Done()
			read.Wait() // everybody has read before anybody writes
			if err != nil || collectErr != nil {
				return
			}
			_, _ = b.Pool.Exec(t.Context(), b.sql(`update @notification_queue
				   set status = 1, attempt_count = 1, claim_token = $2, locked_by = 'w', locked_at = now(),
				       leased_until = now() + interval '1 minute', first_attempt_at = now() where id = any($1)`), ids, uuid.New())
			mu.Lock()
			defer mu.Unlock()
			for _, id := range ids {
				claims[id]++
			}
		})
	}
	wrote.Wait()
	for id, n := range claims {
		require.Equal(t, 3, n, "job %s", id)
	}
	require.Len(t, claims, 5)
}

func TestClaimHandsEachJobToOneWorker(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	const jobs, workers = 300, 8
	b.scheduleMany(jobs)
	claims := make(map[uuid.UUID]int)
	var mu sync.Mutex
	var ready, done sync.WaitGroup
	ready.Add(workers)
	for range workers {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			for {
				got, err := b.store.Claim(t.Context(), b.Pool, store.Lease{Worker: "w", Token: uuid.New(), For: time.Minute},
					store.Lane{Channel: "EMAIL", Limit: 5, Probes: []store.Probe{{Priority: 2, Limit: 5}}})
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				mu.Lock()
				for _, j := range got {
					claims[j.ID]++
				}
				left := jobs - len(claims)
				mu.Unlock()
				if left <= 0 {
					return
				}
			}
		})
	}
	done.Wait()
	require.Len(t, claims, jobs)
	for id, n := range claims {
		require.Equal(t, 1, n, "job %s", id)
	}
}

// Without SKIP LOCKED the claim waits for the other transaction, which never ends here.
func TestClaimPassesOverLockedJobs(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	ids := b.scheduleMany(4)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), b.sql(`select from @notification_queue where id = any($1) for update`), ids[:2])
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := b.store.Claim(ctx, b.Pool, store.Lease{Worker: "w", Token: uuid.New(), For: time.Minute},
		store.Lane{Channel: "EMAIL", Limit: 10, Probes: []store.Probe{{Priority: 2, Limit: 10}}})
	require.NoError(t, err)
	var claimed []uuid.UUID
	for _, j := range got {
		claimed = append(claimed, j.ID)
	}
	require.ElementsMatch(t, ids[2:], claimed)
}

// C40: a pod that restarts under its old name vouches for nothing the old one held.
func TestWorkerDoesNotKeepAliveWhatItsNamesakeHeld(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	id := b.schedule()
	token := uuid.New()
	_, err := b.store.Claim(t.Context(), b.Pool, store.Lease{Worker: "W1", Token: token, For: time.Minute},
		store.Lane{Channel: "EMAIL", Limit: 1, Probes: []store.Probe{{Priority: 2, Limit: 1}}})
	require.NoError(t, err)
	c := accepting()
	cfg := b.config(c)
	cfg.ID = "W1"
	b.start(cfg)
	b.await(b.schedule(), notifyq.StatusSent)
	require.Equal(t, notifyq.StatusProcessing, b.job(id).Status, "the lease still runs")
	b.expireLeases(id)
	job := b.await(id, notifyq.StatusSent)
	require.Equal(t, 2, job.AttemptCount)
}

// C40: two live processes of one name neither renew nor complete each other's claims.
func TestWorkersOfOneNameDoNotShareClaims(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	first, late := deaf()
	second, answer := deaf()
	id := b.schedule()
	for _, c := range []*courier{first, second} {
		cfg := b.config(c)
		cfg.ID, cfg.Concurrency, cfg.BatchSize = "W1", 1, 1
		b.start(cfg)
		if c == second {
			b.expireLeases(id)
		}
		c.next(t)
	}
	answerAll(t, late, 1, notifyq.Permanent(errNo))
	b.logs.awaitJob(t, "job.claim_lost", id)
	require.Equal(t, notifyq.StatusProcessing, b.job(id).Status)
	answerAll(t, answer, 1, nil)
	b.await(id, notifyq.StatusSent)
	require.Len(t, b.failedAttempts(id), 1, "the one that expired")
}
