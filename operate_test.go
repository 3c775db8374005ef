package notifyq_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestCancelEndsAPendingJobOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	n := email("k")
	n.Delay = time.Hour
	id := b.schedule(t, n).ID

	job, err := b.client.Cancel(t.Context(), id, notifyq.Operation{Actor: "ann", Reason: "wrong text"})
	require.NoError(t, err)
	require.Equal(t, notifyq.StatusCancelled, job.Status)
	require.Equal(t, "wrong text", job.Reason)
	require.False(t, job.CancelledAt.IsZero())
	require.Zero(t, job.NextAttemptAt)
	require.Equal(t, b.get(t, id), job)

	again, err := b.client.Cancel(t.Context(), id, notifyq.Operation{Actor: "bob", Reason: "another"})
	require.NoError(t, err, "it is safe to repeat")
	require.Equal(t, job, again)
	require.Equal(t, []string{"cancel ann wrong text " + id.String()}, b.operations(t))
	require.Zero(t, b.count(t, "@outbox_events"), "whoever cancelled it knows")
}

// operations are the rows of the audit table, oldest first.
func (b *bundle) operations(t *testing.T) []string {
	t.Helper()
	return value[[]string](t, b, `select coalesce(array_agg(concat_ws(' ', what, nullif(tenant, ''), channel, nullif(actor, ''),
		nullif(reason, ''), job_id, case when affected <> 1 then affected end) order by id), '{}') from @operations`)
}

func TestCancelRefusesWhatIsNoLongerPending(t *testing.T) { // C42
	t.Parallel()
	b := newBundle(t)
	ids := b.scheduleAll(t, emails("k", 4))
	b.hold(t, ids[0])
	b.end(t, notifyq.StatusSent, "", ids[1])
	b.end(t, notifyq.StatusFailed, notifyq.ReasonRefused, ids[2])
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, ids[3])
	for _, id := range ids {
		before := b.get(t, id)
		job, err := b.client.Cancel(t.Context(), id, notifyq.Operation{})
		require.ErrorIs(t, err, notifyq.ErrNotCancellable)
		require.Equal(t, before, job, "the job as it is comes with the refusal")
		require.Equal(t, before, b.get(t, id))
	}
	require.Empty(t, b.operations(t))
}

// A worker hands the job back between the statement that could not cancel it and the one that reads it.
func TestCancelNeverRefusesAPendingJob(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.schedule(t, email("k")).ID
	b.hold(t, id)
	client := b.newClient(t, b.hookedPool(t, "'cancel'", func() { b.letGo(t, id) }), notifyq.ClientConfig{})

	job, err := client.Cancel(t.Context(), id, notifyq.Operation{})
	require.NoError(t, err)
	require.Equal(t, notifyq.StatusCancelled, job.Status)
}

func TestCancelTxFollowsItsTransaction(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.scheduleAll(t, emails("k", 3))
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	job, err := b.client.CancelTx(t.Context(), tx, ids[0], notifyq.Operation{})
	require.NoError(t, err)
	require.Equal(t, notifyq.StatusCancelled, job.Status)
	require.Equal(t, notifyq.StatusPending, b.get(t, ids[0]).Status)

	// A worker passes by the row that the transaction holds, and comes back to it when that rolled back.
	delivered := make(chan uuid.UUID, len(ids))
	stop := b.startWorker(t, b.db.Pool, fastRetries(), provider(func(d notifyq.Delivery) error {
		delivered <- d.Key
		return nil
	}))
	require.ElementsMatch(t, ids[1:], []uuid.UUID{<-delivered, <-delivered})
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, ids[0], <-delivered)
	stop()
	require.Empty(t, b.operations(t))

	later := b.schedule(t, email("later")).ID
	b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
		_, err := b.client.CancelTx(t.Context(), tx, later, notifyq.Operation{})
		require.NoError(t, err)
		_, err = b.client.CancelTx(t.Context(), tx, ids[0], notifyq.Operation{})
		require.ErrorIs(t, err, notifyq.ErrNotCancellable, "which leaves the transaction usable")
	})
	require.Equal(t, notifyq.StatusCancelled, b.get(t, later).Status)
}

// Each job is cancelled and never delivered, or delivered and its cancel was refused.
func TestCancelAgainstClaimHasOneWinner(t *testing.T) { // C41
	t.Parallel()
	b := newBundle(t)
	const jobs, workers, clients = 300, 3, 6
	var mu sync.Mutex
	delivered := map[uuid.UUID]int{}
	deliver := provider(func(d notifyq.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		delivered[d.Key]++
		return nil
	})
	var stops []func()
	for range workers {
		cfg := fastRetries()
		cfg.PollInterval, cfg.BatchSize, cfg.Concurrency = 10*time.Millisecond, 4, 4
		stops = append(stops, b.startWorker(t, b.db.Pool, cfg, deliver))
	}
	ids := make(chan uuid.UUID, jobs)
	var cancelled, refused sync.Map
	var cancels sync.WaitGroup
	for range clients {
		cancels.Go(func() {
			for id := range ids {
				job, err := b.client.Cancel(t.Context(), id, notifyq.Operation{})
				switch {
				case err == nil && job.Status == notifyq.StatusCancelled:
					cancelled.Store(id, true)
				default:
					refused.Store(id, err)
				}
			}
		})
	}
	for i := range jobs {
		scheduled, err := b.client.Schedule(t.Context(), email(fmt.Sprint(i)))
		require.NoError(t, err)
		ids <- scheduled.ID
	}
	close(ids)
	cancels.Wait()
	refused.Range(func(id, _ any) bool {
		b.await(t, id.(uuid.UUID), notifyq.StatusSent)
		return true
	})
	for _, stop := range stops {
		stop()
	}

	lost, won := 0, 0
	cancelled.Range(func(id, _ any) bool {
		won++
		require.Zero(t, delivered[id.(uuid.UUID)])
		require.Equal(t, notifyq.StatusCancelled, b.get(t, id.(uuid.UUID)).Status)
		return true
	})
	refused.Range(func(id, err any) bool {
		lost++
		require.ErrorIs(t, err.(error), notifyq.ErrNotCancellable)
		require.Equal(t, 1, delivered[id.(uuid.UUID)])
		return true
	})
	require.Equal(t, jobs, lost+won)
	t.Logf("cancelled %d, delivered %d", won, lost)
}

func TestRedriveStartsAJobOver(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.scheduleAll(t, emails("k", 2))
	b.end(t, notifyq.StatusFailed, notifyq.ReasonRefused, ids[0])
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, ids[1])
	b.exec(t, `update @notification_outcomes set max_attempts = 5, reconciliation_granted = true where id = $1`, ids[1])
	for i, id := range ids {
		job, err := b.client.Redrive(t.Context(), id, notifyq.Operation{Actor: "ann", Reason: "fixed"})
		require.NoError(t, err)
		require.Equal(t, b.get(t, id), job)
		require.Equal(t, notifyq.StatusPending, job.Status)
		require.Equal(t, id, job.ID, "the delivery key stays")
		require.Equal(t, 1, job.RedriveCount)
		require.Zero(t, job.AttemptCount)
		require.Equal(t, 4, job.MaxAttempts, "a fresh budget")
		require.False(t, job.ReconciliationGranted, "and a fresh grant")
		require.Equal(t, "personal", job.LastError, "kept until the next attempt")
		require.Empty(t, job.Reason)
		require.Equal(t, job.LastRedrivenAt, job.NextAttemptAt, "due now")
		require.Zero(t, job.DeadLetteredAt)
		require.Equal(t, fmt.Sprintf("redrive ann fixed %s", id), b.operations(t)[i])

		_, err = b.client.Redrive(t.Context(), id, notifyq.Operation{})
		require.ErrorIs(t, err, notifyq.ErrNotRedrivable, "it waits already")
	}
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, ids[0])
	job, err := b.client.Redrive(t.Context(), ids[0], notifyq.Operation{})
	require.NoError(t, err)
	require.Equal(t, 2, job.RedriveCount)
}

func TestRedriveRefusesEverythingElse(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	expiring := email("expired while it was dead")
	expiring.ExpiresAt = time.Now().Add(time.Hour)
	ids := b.scheduleAll(t, append(emails("k", 7), expiring))
	b.hold(t, ids[1])
	b.end(t, notifyq.StatusSent, "", ids[2])
	b.end(t, notifyq.StatusCancelled, "", ids[3])
	b.end(t, notifyq.StatusFailed, notifyq.ReasonExpired, ids[4])
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, ids[5:]...)
	b.exec(t, `update @notification_outcomes set redrive_count = 1000, last_redriven_at = now() where id = $1`, ids[5])
	b.exec(t, `update @notifications set expires_at = now(), scheduled_at = now() - interval '1 minute' where id = $1`, ids[7])
	n := email("erased")
	n.Recipient = "erased@example.test"
	erased := b.schedule(t, n).ID
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, erased)
	_, err := b.client.EraseRecipient(t.Context(), n.Recipient)
	require.NoError(t, err)

	for _, id := range []uuid.UUID{ids[0], ids[1], ids[2], ids[3], ids[4], ids[5], ids[7], erased} {
		before := b.get(t, id)
		job, err := b.client.Redrive(t.Context(), id, notifyq.Operation{})
		require.ErrorIs(t, err, notifyq.ErrNotRedrivable)
		require.Equal(t, before, job)
		require.Equal(t, before, b.get(t, id))
	}
	for _, status := range []notifyq.Status{notifyq.StatusFailed, notifyq.StatusDeadLettered} {
		done, err := b.client.RedriveMany(t.Context(), notifyq.RedriveParams{Status: status, Limit: 1000})
		require.NoError(t, err)
		require.Zero(t, done.Remaining)
		if status == notifyq.StatusDeadLettered {
			require.Equal(t, 1, done.Retried, "only the one that nothing speaks against")
			require.Equal(t, notifyq.StatusPending, b.get(t, ids[6]).Status)
		}
	}
}

func TestConcurrentRedrivesOfOneJobHaveOneWinner(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.schedule(t, email("k")).ID
	b.end(t, notifyq.StatusFailed, notifyq.ReasonRefused, id)
	var won counter
	together(10, func(int) {
		switch _, err := b.client.Redrive(t.Context(), id, notifyq.Operation{}); {
		case err == nil:
			won.Add(1)
		default:
			require.ErrorIs(t, err, notifyq.ErrNotRedrivable)
		}
	})
	require.EqualValues(t, 1, won.Load())
	require.Equal(t, 1, b.get(t, id).RedriveCount)
}

// dead are n dead-lettered jobs, oldest first.
func (b *bundle) dead(t *testing.T, prefix string, n int, change func(i int, n *notifyq.Notification)) []uuid.UUID {
	t.Helper()
	ns := emails(prefix, n)
	for i := range ns {
		if change != nil {
			change(i, &ns[i])
		}
	}
	ids := b.scheduleAll(t, ns)
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, ids...)
	return ids
}

// redriven are the ids of the jobs that were, in the order of their due times.
func (b *bundle) redriven(t *testing.T) []uuid.UUID {
	t.Helper()
	return value[[]uuid.UUID](t, b, `select coalesce(array_agg(id order by next_attempt_at, id), '{}') from @notification_queue where redrive_count > 0`)
}

func TestRedriveManyTakesTheOldestHundredByDefault(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.dead(t, "k", 130, nil)
	failed := b.scheduleAll(t, emails("failed", 3))
	b.end(t, notifyq.StatusFailed, notifyq.ReasonRefused, failed...)

	done, err := b.client.RedriveMany(t.Context(), notifyq.RedriveParams{Operation: notifyq.Operation{Actor: "ann", Reason: "back up"}})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{Retried: 100, Remaining: 30}, done)
	require.Equal(t, ids[:100], b.redriven(t))
	require.Equal(t, 100, b.count(t, "@notification_queue where next_attempt_at = last_redriven_at and attempt_count = 0 and last_error = 'personal'"))

	done, err = b.client.RedriveMany(t.Context(), notifyq.RedriveParams{})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{Retried: 30}, done)
	done, err = b.client.RedriveMany(t.Context(), notifyq.RedriveParams{})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{}, done)
	done, err = b.client.RedriveMany(t.Context(), notifyq.RedriveParams{Status: notifyq.StatusFailed, Limit: 2})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{Retried: 2, Remaining: 1}, done)
	require.Equal(t, []string{"redrive_many ann back up 100", "redrive_many 30", "redrive_many 2"}, b.operations(t))
}

func TestRedriveManyIsNarrowedByEachFilter(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.dead(t, "k", 12, func(i int, n *notifyq.Notification) {
		n.Recipient = fmt.Sprintf("%d@example.test", i%2)
		n.Tenant = []string{"", "acme", "beta"}[i%3]
	})
	outage := value[time.Time](t, b, `select clock_timestamp()`)
	b.exec(t, `update @notification_outcomes set finished_at = $1::timestamptz - case when id = any($2) then interval '1 second' else '0' end`,
		outage, ids[:6])
	at := func(chosen ...int) (want []uuid.UUID) {
		for _, i := range chosen {
			want = append(want, ids[i])
		}
		return want
	}
	for _, c := range []struct {
		p    notifyq.RedriveParams
		want []uuid.UUID
	}{
		{notifyq.RedriveParams{Recipient: "nobody"}, at()},
		{notifyq.RedriveParams{Tenant: "nobody"}, at()},
		{notifyq.RedriveParams{Since: outage.Add(time.Hour)}, at()},
		{notifyq.RedriveParams{Recipient: "1@example.test", Tenant: "acme", Since: outage.Add(-time.Second)}, at(1, 7)},
		{notifyq.RedriveParams{Recipient: "0@example.test", Since: outage.Add(-time.Millisecond)}, at(6, 8, 10)},
		{notifyq.RedriveParams{Tenant: "beta"}, at(2, 5, 11)},
	} {
		before := b.redriven(t)
		done, err := b.client.RedriveMany(t.Context(), c.p)
		require.NoError(t, err)
		require.Equal(t, notifyq.Redriven{Retried: len(c.want)}, done, "%+v", c.p)
		got := slices.DeleteFunc(b.redriven(t), func(id uuid.UUID) bool { return slices.Contains(before, id) })
		require.ElementsMatch(t, c.want, got)
	}
}

func TestRedriveManyRefusesWrongParameters(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.dead(t, "k", 1, nil)
	for field, params := range map[string][]notifyq.RedriveParams{
		"Status": {{Status: notifyq.StatusSent}, {Status: notifyq.StatusCancelled}, {Status: notifyq.StatusPending}, {Status: "dead"}},
		"Limit":  {{Limit: -1}, {Limit: 1001}, {Limit: math.MaxInt}},
		"PerSecond": {
			{PerSecond: -1},
			{PerSecond: math.NaN()},
			{PerSecond: math.Inf(1)},
			{PerSecond: 1_000_001},
			{PerSecond: 1e-9},
			{PerSecond: math.SmallestNonzeroFloat64},
		},
		"Since":     {{Since: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"Recipient": {{Recipient: "\x00"}, {Recipient: " "}},
		"Tenant":    {{Tenant: "\x00"}},
	} {
		for _, p := range params {
			_, err := b.client.RedriveMany(t.Context(), p)
			requireInvalid(t, err, field)
		}
	}
	require.Empty(t, b.redriven(t))
}

func TestConcurrentBulkRedrivesShareTheJobs(t *testing.T) { // C44
	t.Parallel()
	b := newBundle(t)
	ids := b.dead(t, "k", 50, nil)
	var retried counter
	together(5, func(int) {
		for {
			done, err := b.client.RedriveMany(t.Context(), notifyq.RedriveParams{Limit: 15})
			if err != nil {
				t.Errorf("redrive: %v", err)
			}
			retried.Add(int64(done.Retried))
			if err != nil || done.Remaining == 0 {
				return
			}
		}
	})
	require.EqualValues(t, 50, retried.Load())
	require.ElementsMatch(t, ids, b.redriven(t))
	require.Equal(t, 50, b.count(t, "@notification_queue where redrive_count = 1"))
	require.EqualValues(t, 50, value[int64](t, b, `select sum(affected) from @operations`))
}

func TestPacedRedriveSpacesTheDueTimes(t *testing.T) { // C101
	t.Parallel()
	b := newBundle(t)
	ids := b.dead(t, "k", 25, nil)
	b.dead(t, "other", 1, func(_ int, n *notifyq.Notification) { n.Tenant = "acme" })
	p := notifyq.RedriveParams{PerSecond: 0.5, Limit: 10, Recipient: "u@example.test"}
	for round, want := range []notifyq.Redriven{{Retried: 10, Remaining: 16}, {Retried: 10, Remaining: 6}} {
		done, err := b.client.RedriveMany(t.Context(), p)
		require.NoError(t, err)
		require.Equal(t, want, done)
		require.Equal(t, ids[:10*(round+1)], b.redriven(t), "the oldest first")
	}
	due := value[[]time.Time](t, b, `select array_agg(next_attempt_at order by id) from @notification_queue`)
	for i := range due {
		require.Equal(t, time.Duration(i)*2*time.Second, due[i].Sub(due[0]), "the second call goes on where the first ends")
	}
	first := value[time.Time](t, b, `select min(last_redriven_at) from @notification_queue`)
	require.True(t, first.Equal(due[0]), "the first is due now")

	// Neither another tenant's pace nor an unpaced call waits for it.
	done, err := b.client.ForTenant("acme").RedriveMany(t.Context(), notifyq.RedriveParams{PerSecond: 1})
	require.NoError(t, err)
	require.Equal(t, 1, done.Retried)
	done, err = b.client.RedriveMany(t.Context(), notifyq.RedriveParams{})
	require.NoError(t, err)
	require.Equal(t, 5, done.Retried)
	require.Equal(t, 7, b.count(t, "@notification_queue where next_attempt_at = last_redriven_at"))
}

func TestAPauseHoldsItsChannelOnly(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	op := notifyq.Operation{Actor: "ann", Reason: "bounces"}
	require.NoError(t, b.client.PauseChannel(t.Context(), notifyq.ChannelEmail, op))
	require.NoError(t, b.client.PauseChannel(t.Context(), notifyq.ChannelEmail, op), "twice is once")
	paused := b.schedule(t, email("paused")).ID
	sms := email("sms")
	sms.Channel = notifyq.ChannelSMS

	delivered := make(chan uuid.UUID, 10)
	deliver := provider(func(d notifyq.Delivery) error {
		delivered <- d.Key
		return nil
	})
	cfg := fastRetries()
	cfg.Providers = map[notifyq.Channel]notifyq.ProviderConfig{
		notifyq.ChannelEmail: {Provider: deliver}, notifyq.ChannelSMS: {Provider: deliver},
	}
	stop := b.startWorker(t, b.db.Pool, cfg, nil)
	for i := range 3 {
		sms.IdempotencyKey = fmt.Sprint(i)
		require.Equal(t, b.schedule(t, sms).ID, <-delivered)
	}
	require.Equal(t, notifyq.StatusPending, b.get(t, paused).Status)

	require.NoError(t, b.client.ResumeChannel(t.Context(), notifyq.ChannelEmail, op))
	require.Equal(t, paused, <-delivered)
	require.NoError(t, b.client.ResumeChannel(t.Context(), notifyq.ChannelEmail, op), "what is not paused stays so")
	require.NoError(t, b.client.ResumeChannel(t.Context(), "NEVER-SEEN", notifyq.Operation{}))
	stop()
	require.Equal(t, []string{
		"pause EMAIL ann bounces", "pause EMAIL ann bounces", "resume EMAIL ann bounces", "resume EMAIL ann bounces", "resume NEVER-SEEN",
	}, b.operations(t))
	for _, channel := range []notifyq.Channel{"", "E MAIL", "%"} {
		requireInvalid(t, b.client.PauseChannel(t.Context(), channel, op), "Channel")
		requireInvalid(t, b.client.ResumeChannel(t.Context(), channel, op), "Channel")
	}
}

func TestErrorsOfTheDatabaseAreDescribedNotQuoted(t *testing.T) { // C118
	t.Parallel()
	b := newBundle(t)
	pool := b.newPool(t, nil)
	client := b.newClient(t, pool, notifyq.ClientConfig{})
	pool.Close()
	for name, call := range everyCall(client, uuid.New()) {
		err := call(context.WithoutCancel(t.Context()))
		require.ErrorContains(t, err, "notifyq: ", name)
		require.ErrorContains(t, err, "database connection failed", name)
		require.NotErrorIs(t, err, notifyq.ErrSchema)
	}
	unreachable := openPool(t, "postgres://canary-user:canary-word@127.0.0.1:1/canary-db?connect_timeout=1", nil)
	for name, call := range everyCall(b.newClient(t, unreachable, notifyq.ClientConfig{}), uuid.New()) {
		err := call(t.Context())
		require.ErrorContains(t, err, "notifyq: ", name)
		require.NotContains(t, err.Error(), "canary", name)
	}
}
