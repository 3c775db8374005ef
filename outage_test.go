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
	"github.com/notifyq/notifyq/internal/dbtest"
)

// poolAt opens a pool for the length of the test, with run-time parameters as pairs.
func poolAt(t testing.TB, url string, parameters ...string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	for i := 0; i < len(parameters); i += 2 {
		cfg.ConnConfig.RuntimeParams[parameters[i]] = parameters[i+1]
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// through lets the worker and the client of b use another pool to the same schema.
func (b *workerBundle) through(pool *pgxpool.Pool) *workerBundle {
	b.t.Helper()
	other := &workerBundle{DB: &dbtest.DB{Pool: pool, Schema: b.Schema, URL: b.URL}, t: b.t, store: b.store, logs: b.logs}
	var err error
	other.client, err = notifyq.NewClient(pool, notifyq.ClientConfig{Schema: b.Schema, Logger: b.logs.logger()})
	require.NoError(b.t, err)
	return other
}

// C64
func TestTerminatedBackendsCostNoJobAndNoRepetition(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	name := "victim-" + b.Schema
	victim := b.through(poolAt(t, b.URL, "application_name", name))
	var kills, delivered atomic.Int64
	c := newCourier(func(ctx context.Context, _ notifyq.Delivery) error {
		if delivered.Add(1)%40 == 0 {
			_, err := b.Pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1`, name)
			kills.Add(1)
			return err
		}
		return nil
	})
	cfg := victim.config(c)
	// A claim whose answer was lost comes back after its lease.
	cfg.Lease, cfg.Client, cfg.BatchSize = 3*time.Second, nil, 20
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 2 * time.Second}
	ids := b.scheduleMany(300)
	victim.start(cfg)
	b.awaitCount(notifyq.StatusSent, len(ids))
	require.GreaterOrEqual(t, kills.Load(), int64(7))
	requireOnce(t, c, ids)
}

// C61, C65, C66 on a server of its own.
func TestWorkerOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	b := workerBundleOn(t, server.New(t))
	c, answers := held()
	cfg := b.config(c)
	cfg.Concurrency = 20

	// The database is not there when the worker starts.
	first := b.schedule()
	server.Stop(t)
	w := b.start(cfg)
	b.logs.await(t, "worker.database_away")
	server.Restart(t)
	c.next(t)
	answerAll(t, answers, 1, nil)
	b.await(first, notifyq.StatusSent)

	// It crashes while deliveries run and comes back within their lease: what ended meanwhile is kept and written.
	ids := b.scheduleMany(20)
	for range ids {
		c.next(t)
	}
	server.Crash(t)
	answerAll(t, answers, len(ids)/2, nil)
	b.logs.await(t, "worker.record_failed")
	server.Restart(t)
	answerAll(t, answers, len(ids)/2, nil)
	b.awaitCount(notifyq.StatusSent, len(ids)+1)
	requireOnce(t, c, append(ids, first))
	b.logs.await(t, "worker.record_recovered")
	require.NoError(t, w.stop())
	require.Empty(t, b.logs.matching("jobs.recovered", nil))

	// It stays away for longer than the leases: whoever comes first, the outcome or recovery, has it, and a repetition
	// goes under the same key.
	c, answers = held()
	cfg = b.config(c)
	cfg.Concurrency, cfg.Lease = 20, time.Second
	cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 900 * time.Millisecond}
	ids = b.scheduleMany(5)
	b.start(cfg)
	for range ids {
		c.next(t)
	}
	server.Stop(t)
	close(answers)
	<-time.After(1200 * time.Millisecond) // the lease
	server.Restart(t)
	for _, id := range ids {
		b.await(id, notifyq.StatusSent)
		require.LessOrEqual(t, c.times()[id], 2)
	}
}

func TestRefusedCredentialsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	cfg, err := pgxpool.ParseConfig(b.URL)
	require.NoError(t, err)
	cfg.ConnConfig.Database = "no_such_database"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	wcfg := b.config(accepting())
	wcfg.Client = nil
	worker, err := notifyq.NewWorker(pool, wcfg)
	require.NoError(t, err)
	err = worker.Run(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, notifyq.ErrSchema)
}

// C66, C75: what was delivered and can't be recorded is kept under its lease, nothing more is claimed, and nothing is sent
// again.
func TestOutcomesThatCannotBeWrittenAreKept(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"53100", "57014", "40P01", "40001"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			b := newWorkerBundle(t)
			mend := b.sabotage("notification_outcomes", "insert", "true", code)
			ids := b.scheduleMany(3)
			c := accepting()
			cfg := b.config(c)
			cfg.Lease = time.Second
			cfg.Providers["EMAIL"] = notifyq.ProviderConfig{Provider: c, Timeout: 800 * time.Millisecond}
			b.start(cfg)
			entry := b.logs.await(t, "worker.record_failed")
			require.Equal(t, "database error "+code, entry.attrs["error"])
			for range ids {
				c.next(t)
			}
			leases := func() (until time.Time) {
				return one[time.Time](b, `select min(leased_until) from @notification_queue where status = 1`)
			}
			first := leases()
			require.Eventually(t, func() bool { // longer than the lease, which is renewed all the time
				return one[bool](b, `select now() > $1`, first) && one[bool](b, `select now() < $1`, leases())
			}, patience, poll)
			later := b.schedule()
			renewed := leases()
			require.Eventually(t, func() bool { return leases().After(renewed) }, patience, poll)
			require.Equal(t, notifyq.StatusPending, b.job(later).Status, "claiming pauses")
			mend()
			b.awaitCount(notifyq.StatusSent, len(ids)+1)
			requireOnce(t, c, append(ids, later))
			b.logs.await(t, "worker.record_recovered")
		})
	}
}

// blockRecords holds the row of a job that is being delivered, so that outcomes pile up behind its record.
func (b *workerBundle) blockRecords(id uuid.UUID) (release func()) {
	b.t.Helper()
	tx, err := b.Pool.Begin(b.t.Context())
	require.NoError(b.t, err)
	_, err = tx.Exec(b.t.Context(), b.sql(`select from @notification_queue where id = $1 for update`), id)
	require.NoError(b.t, err)
	return func() { require.NoError(b.t, tx.Rollback(b.t.Context())) }
}

// A batch is written as a whole. A row that can't be stored must not sink the others.
func TestRowThatCannotBeStoredDoesNotSinkItsBatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		condition string
		mends     bool // without its text it can be stored
	}{
		"because of its text": {"new.id = '%s' and new.provider_id is not null", true},
		"whatever it says":    {"new.id = '%s'", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorkerBundle(t)
			p, answers := held()
			cfg := b.config(p)
			cfg.Concurrency = 8
			ids := b.scheduleMany(8)
			bad := ids[5]
			mend := b.sabotage("notification_outcomes", "insert", fmt.Sprintf(c.condition, bad), "22001")
			b.start(cfg)
			for range ids {
				p.next(t)
			}
			// Every row of theirs is held until all have answered, so that they are in few batches.
			release := b.blockRecords(ids[0])
			answerAll(t, answers, len(ids), nil)
			release()
			for _, id := range ids {
				if id != bad {
					require.NotEmpty(t, b.await(id, notifyq.StatusSent).ProviderID)
				}
			}
			if c.mends {
				require.Empty(t, b.await(bad, notifyq.StatusSent).ProviderID)
			} else {
				b.logs.awaitJob(t, "worker.record_refused", bad)
				require.Equal(t, notifyq.StatusProcessing, b.job(bad).Status, "it is left to its lease")
				mend()
				b.expireLeases(bad)
				p.next(t)
				answerAll(t, answers, 1, nil)
				b.await(bad, notifyq.StatusSent)
			}
		})
	}
}

// C68
func TestIsolationLevelOfTheRoleDoesNotMatter(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"serializable", "repeatable read"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			b := newWorkerBundle(t)
			strict := b.through(poolAt(t, b.URL, "default_transaction_isolation", level, "default_transaction_deferrable", "on",
				"default_transaction_read_only", "on"))
			c := newCourier(func(_ context.Context, d notifyq.Delivery) error {
				if d.Attempt == 1 && d.Key[15]%4 == 0 {
					return errNo
				}
				return nil
			})
			ids := strict.scheduleMany(200, parked)
			for range 4 {
				cfg := strict.config(c)
				cfg.BatchSize, cfg.RecordEvents = 10, true
				strict.start(cfg)
			}
			b.awaitCount(notifyq.StatusSent, len(ids))
			for _, event := range []string{"worker.poll_failed", "worker.record_failed", "worker.recovery_failed", "worker.expiry_failed", "worker.start_failed"} {
				require.Empty(t, b.logs.matching(event, nil), event)
			}
		})
	}
}

// C76: claims, records, recovery, bulk redrives and cancels take the same rows all the time.
func TestBulkWorkAndClaimsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	hasty := b.through(poolAt(t, b.URL, "deadlock_timeout", "5ms"))
	c := newCourier(func(_ context.Context, d notifyq.Delivery) error {
		if d.Key[15]%2 == 0 {
			return errNo
		}
		return nil
	})
	ids := hasty.scheduleMany(200, withAttempts(1))
	for range 2 {
		cfg := hasty.config(c)
		cfg.BatchSize, cfg.RecordEvents, cfg.Concurrency = 50, true, 20
		hasty.start(cfg)
	}
	ctx := t.Context()
	var wg sync.WaitGroup
	const rounds = 40
	loop := func(do func(round int) error) {
		wg.Go(func() {
			for round := range rounds {
				if err := do(round); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			}
		})
	}
	for range 2 {
		loop(func(int) error {
			_, err := hasty.client.RedriveMany(ctx, notifyq.RedriveParams{Limit: 50})
			return err
		})
	}
	loop(func(round int) error {
		_, err := hasty.client.Cancel(ctx, ids[(round*37)%len(ids)], notifyq.Operation{})
		if errors.Is(err, notifyq.ErrNotCancellable) {
			return nil
		}
		return err
	})
	loop(func(round int) error {
		_, err := hasty.Pool.Exec(ctx, hasty.sql(`update @notification_queue set leased_until = now() - interval '1 s'
			where id in (select id from @notification_queue where status = 1 order by id limit 3 for update skip locked)`))
		return err
	})
	loop(func(int) error {
		_, err := hasty.store.Recover(ctx, hasty.Pool, 20, true)
		return err
	})
	wg.Wait()
	for _, event := range []string{"worker.poll_failed", "worker.record_failed", "worker.recovery_failed", "worker.renew_failed"} {
		require.Empty(t, b.logs.matching(event, nil), event)
	}
}

// C72: while a snapshot is held nobody can clean up what was claimed, and a claim that walked it each time would read the
// square of the jobs. The index's own count of entries read tells.
func TestHeldSnapshotDoesNotMakeClaimsWalkTheDead(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	const jobs, batch = 3000, 20
	b.scheduleMany(jobs)
	old, err := b.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = old.Rollback(context.Background()) }()
	_, err = old.Exec(t.Context(), b.sql(`select count(*) from @notification_queue`))
	require.NoError(t, err)
	cfg := b.config(accepting())
	cfg.Concurrency, cfg.BatchSize = batch, batch
	w := b.start(cfg)
	require.Eventually(t, func() bool { // not by Stats, which reads that index too
		return one[int64](b, `select count(*) from @notification_outcomes`) == jobs
	}, patience, 10*poll)
	require.NoError(t, w.stop()) // which makes its connections report what they counted
	var read int64
	require.Eventually(t, func() bool {
		read = one[int64](b, `select idx_tup_read from pg_stat_user_indexes where schemaname = $1 and indexrelname = 'notification_queue_due'`, b.Schema)
		return read >= jobs
	}, patience, 10*poll, "nothing was counted")
	t.Logf("%d index entries for %d jobs", read, jobs)
	require.Less(t, read, int64(jobs/batch*jobs/2/4), "a quarter of the square")
}
