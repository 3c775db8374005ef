package notifyq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
)

func TestScheduleAnswersTheJobAsItIsStored(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	sendAt := time.Now().Add(time.Hour).In(time.FixedZone("", 5400)).Truncate(time.Second)
	n := notifyq.Notification{
		IdempotencyKey: "all", Recipient: "u@example.test", Channel: "fax.2", Payload: []byte(`[1.0, "é"]`),
		Priority: notifyq.PriorityHigh, SendAt: sendAt, ExpiresAt: sendAt.Add(time.Minute), Tenant: "acme",
		MaxAttempts: 7, OnAmbiguous: notifyq.AmbiguousPark,
	}

	scheduled := b.schedule(t, n)

	job := scheduled.Job
	require.Equal(t, b.get(t, scheduled.ID), job)
	require.False(t, scheduled.Replayed)
	require.NoError(t, scheduled.Err)
	require.Equal(t, notifyq.Job{
		ID: scheduled.ID, Status: notifyq.StatusPending, Tenant: "acme", IdempotencyKey: "all", Recipient: "u@example.test",
		Channel: "fax.2", Priority: notifyq.PriorityHigh, ScheduledAt: sendAt.UTC(), NextAttemptAt: sendAt.UTC(),
		ExpiresAt: sendAt.Add(time.Minute).UTC(), MaxAttempts: 7, CreatedAt: job.CreatedAt, UpdatedAt: job.CreatedAt,
	}, job)
	require.Equal(t, time.UTC, job.CreatedAt.Location())
	require.Equal(t, "park", value[string](t, b, `select on_ambiguous from @notification_jobs`))
}

func TestScheduleKeepsThePayloadByteForByte(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	// C08, C17, C18: digits, order, spaces, escapes and characters that encoders like to rewrite.
	payloads := []string{
		`{"a":9007199254740993,"b":-9223372036854775809,"c":18446744073709551616,"d":0.1000000000000000055511151231257827}`,
		` { "b":1.0,"a":  "x","z":{"y":2,"x":1e2} } `,
		"{\"t\":\"\U0001F600 \u202eabc \u2028\u2029 <a&b> é e\u0301\",\"\U0001F600\":1}",
		"{\"t\":\"😀 \u202eabc \\u2028 <\",\"/\":\"\\/\"}",
		`{"a":"x\\u0000y"}`, // C01: a backslash and text, not a NUL
		`null`, `"text"`, `-0`, `[]`,
	}
	for i, payload := range payloads {
		n := email(fmt.Sprint(i))
		n.Payload = []byte(payload)
		id := b.schedule(t, n).ID
		require.Equal(t, payload, value[string](t, b, `select payload::text from @notifications where id = $1`, id))
	}
}

func TestScheduleDefaults(t *testing.T) {
	t.Parallel()
	b := newBundle(t)

	job := b.schedule(t, email("library")).Job
	require.Equal(t, notifyq.PriorityNormal, job.Priority)
	require.Equal(t, 4, job.MaxAttempts)
	require.Equal(t, job.CreatedAt, job.ScheduledAt)
	require.Equal(t, job.CreatedAt, job.NextAttemptAt)
	require.Zero(t, job.ExpiresAt)
	require.Empty(t, job.Tenant)

	strict := b.newClient(t, b.db.Pool, notifyq.ClientConfig{MaxAttempts: 9, OnAmbiguous: notifyq.AmbiguousPark})
	scheduled, err := strict.Schedule(t.Context(), email("client"))
	require.NoError(t, err)
	require.Equal(t, 9, scheduled.Job.MaxAttempts)
	require.Equal(t, []string{"park", "retry"}, value[[]string](t, b,
		`select array_agg(on_ambiguous order by id desc) from @notification_jobs`))
}

func TestScheduleInThePastMeansNow(t *testing.T) { // C30
	t.Parallel()
	b := newBundle(t)
	now := time.Now()
	for i, sendAt := range []time.Time{
		now.Add(-time.Second), now.Add(-time.Hour), now.AddDate(-10, 0, 0), time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC),
	} {
		n := email(fmt.Sprint(i))
		n.SendAt = sendAt
		job := b.schedule(t, n).Job
		require.Equal(t, job.CreatedAt, job.NextAttemptAt)
		require.WithinDuration(t, sendAt, job.ScheduledAt, time.Microsecond, "it keeps what was asked for")
		require.Equal(t, b.get(t, job.ID), job)
	}
}

func TestScheduleDueTimeIsByTheDatabaseClock(t *testing.T) { // C32
	t.Parallel()
	b := newBundle(t)
	n := email("delayed")
	n.Delay = 90 * time.Minute
	job := b.schedule(t, n).Job
	require.Equal(t, job.CreatedAt.Add(90*time.Minute), job.ScheduledAt)
	require.True(t, value[bool](t, b, `select created_at between now() - interval '10 minutes' and now() from @notifications`))
}

func TestScheduleRoundsTimesUpToMicroseconds(t *testing.T) { // C27
	t.Parallel()
	b := newBundle(t)
	base := time.Now().UTC().Add(time.Hour).Truncate(time.Second)
	for nanos, micros := range map[int]int{123_456_789: 123_457, 123_456_000: 123_456, 999_999_900: 1_000_000, 1: 1} {
		n := email(fmt.Sprint(nanos))
		n.SendAt = base.Add(time.Duration(nanos))
		n.ExpiresAt = n.SendAt.Add(time.Minute)
		first := b.schedule(t, n)
		require.Equal(t, base.Add(time.Duration(micros)*time.Microsecond), first.Job.ScheduledAt)
		require.Equal(t, b.get(t, first.ID), first.Job)
		require.True(t, b.schedule(t, n).Replayed)
	}
}

func TestScheduleHorizonIsByTheDatabaseClock(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	now := value[time.Time](t, b, `select clock_timestamp()`)

	n := email("inside")
	n.SendAt = now.Add(notifyq.Horizon)
	require.Equal(t, n.SendAt.UTC(), b.schedule(t, n).Job.ScheduledAt)
	n = email("longest-delay")
	n.Delay = notifyq.Horizon
	job := b.schedule(t, n).Job
	require.Equal(t, job.CreatedAt.Add(notifyq.Horizon), job.ScheduledAt)

	n = email("outside")
	n.SendAt = now.Add(notifyq.Horizon + time.Hour)
	_, err := b.client.Schedule(t.Context(), n)
	requireInvalid(t, err, "SendAt")
	require.Equal(t, 2, b.count(t, "@notifications"))
}

func TestScheduleExpiryMustFollowTheDueTime(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	now := value[time.Time](t, b, `select clock_timestamp()`)
	for name, change := range map[string]func(n *notifyq.Notification){
		"gone by":              func(n *notifyq.Notification) { n.ExpiresAt = now.Add(-time.Second) },
		"at the due time":      func(n *notifyq.Notification) { n.SendAt = now.Add(time.Hour); n.ExpiresAt = n.SendAt },
		"before the due time":  func(n *notifyq.Notification) { n.SendAt, n.ExpiresAt = now.Add(time.Hour), now.Add(time.Minute) },
		"within the delay":     func(n *notifyq.Notification) { n.Delay, n.ExpiresAt = time.Hour, now.Add(time.Minute) },
		"both in the past":     func(n *notifyq.Notification) { n.SendAt, n.ExpiresAt = now.Add(-time.Hour), now.Add(-time.Minute) },
		"less than one micro":  func(n *notifyq.Notification) { n.SendAt = now.Add(time.Hour); n.ExpiresAt = n.SendAt.Add(-1) },
		"of the year of Moses": func(n *notifyq.Notification) { n.ExpiresAt = time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC) },
	} {
		n := email(name)
		change(&n)
		_, err := b.client.Schedule(t.Context(), n)
		requireInvalid(t, err, "ExpiresAt")
	}
	require.Zero(t, b.count(t, "@notifications"))

	n := email("just after")
	n.SendAt = now.Add(time.Hour)
	n.ExpiresAt = n.SendAt.Add(time.Microsecond)
	require.Equal(t, n.ExpiresAt.UTC(), b.schedule(t, n).Job.ExpiresAt)
}

func TestScheduleTxIsSeenOnlyAfterCommit(t *testing.T) { // C123
	t.Parallel()
	b := newBundle(t)
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	scheduled, err := b.client.ScheduleTx(t.Context(), tx, email("k"))
	require.NoError(t, err)

	_, err = b.client.Get(t.Context(), scheduled.ID)
	require.ErrorIs(t, err, notifyq.ErrNotFound)
	b.schedule(t, email("another key waits for nobody"))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, scheduled.Job, b.get(t, scheduled.ID))
}

func TestScheduleTxLeavesNothingAfterRollback(t *testing.T) { // C123
	t.Parallel()
	b := newBundle(t)
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = b.client.ScheduleTx(t.Context(), tx, email("k"))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))

	require.Zero(t, b.count(t, "@notification_jobs"))
	require.Zero(t, b.count(t, "@notification_queue"))
	require.False(t, b.schedule(t, email("k")).Replayed, "the key is free again")
}

func TestScheduleTxLeavesNothingWhenTheConnectionIsLost(t *testing.T) { // C123
	t.Parallel()
	b := newBundle(t)
	conn, err := pgx.Connect(t.Context(), b.db.URL)
	require.NoError(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = b.client.ScheduleTx(t.Context(), tx, email("k"))
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	require.False(t, b.schedule(t, email("k")).Replayed)
}

func TestScheduleTxFollowsItsSavepoint(t *testing.T) { // C123
	t.Parallel()
	b := newBundle(t)
	b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
		_, err := b.client.ScheduleTx(t.Context(), tx, email("kept"))
		require.NoError(t, err)
		savepoint, err := tx.Begin(t.Context())
		require.NoError(t, err)
		_, err = b.client.ScheduleManyTx(t.Context(), savepoint, emails("undone", 3))
		require.NoError(t, err)
		require.NoError(t, savepoint.Rollback(t.Context()))
		again, err := b.client.ScheduleTx(t.Context(), tx, emails("undone", 1)[0])
		require.NoError(t, err)
		require.False(t, again.Replayed)
	})
	require.Equal(t, []string{"kept", "undone-00000"}, value[[]string](t, b,
		`select array_agg(idempotency_key order by id) from @notification_jobs`))
}

func TestScheduleTxReplaysWhatItScheduledItself(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		key := string(isolation)
		b.inTx(t, isolation, func(tx pgx.Tx) {
			first, err := b.client.ScheduleTx(t.Context(), tx, email(key))
			require.NoError(t, err)
			again, err := b.client.ScheduleTx(t.Context(), tx, email(key))
			require.NoError(t, err)
			require.True(t, again.Replayed)
			require.Equal(t, first.ID, again.ID)
			require.Equal(t, first.Job, again.Job)
		})
	}
}

func TestScheduleTxConflictLeavesAReadCommittedTransactionUsable(t *testing.T) { // C20
	t.Parallel()
	b := newBundle(t)
	b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), `select 1`) // the snapshots of its statements are its own
		require.NoError(t, err)
		first := b.schedule(t, email("taken"))

		replay, err := b.client.ScheduleTx(t.Context(), tx, email("taken"))
		require.NoError(t, err)
		require.True(t, replay.Replayed)
		require.Equal(t, first.ID, replay.ID)
		other := email("taken")
		other.Recipient = "v@example.test"
		_, err = b.client.ScheduleTx(t.Context(), tx, other)
		require.ErrorIs(t, err, notifyq.ErrKeyReused)
		_, err = b.client.ScheduleTx(t.Context(), tx, email("blank\x00"))
		require.ErrorIs(t, err, notifyq.ErrInvalid)

		_, err = b.client.ScheduleTx(t.Context(), tx, email("free"))
		require.NoError(t, err)
	})
	require.Equal(t, 2, b.count(t, "@notification_queue"))
}

func TestScheduleTxAtRepeatableReadShows40001(t *testing.T) { // C20
	t.Parallel()
	b := newBundle(t)
	for _, isolation := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := b.db.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: isolation})
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `select now()`) // takes the snapshot
		require.NoError(t, err)
		b.schedule(t, email(string(isolation)))

		_, err = b.client.ScheduleTx(t.Context(), tx, email(string(isolation)))
		var pg *pgconn.PgError
		require.ErrorAs(t, err, &pg)
		require.Equal(t, "40001", pg.Code)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

func TestScheduleTxOnAFinishedTransactionSaysSo(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = b.client.ScheduleTx(t.Context(), tx, email("k"))
	require.ErrorIs(t, err, pgx.ErrTxClosed)
}

func TestScheduleEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.client.Schedule(ctx, email("k"))
	require.ErrorIs(t, err, context.Canceled)
	_, err = b.client.Cancel(ctx, uuid.New(), notifyq.Operation{})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, b.count(t, "@notifications"))
}

func TestScheduleUnderEveryDefaultIsolation(t *testing.T) { // C20, C68
	t.Parallel()
	for _, isolation := range []string{"serializable", "repeatable read"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			client := b.newClient(t, b.newPool(t, func(cfg *pgxpool.Config) {
				cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation
			}), notifyq.ClientConfig{})
			var created, replayed counter
			together(30, func(i int) {
				n := email(fmt.Sprint(i % 3))
				scheduled, err := client.Schedule(t.Context(), n)
				switch {
				case err != nil:
					t.Errorf("schedule: %v", err)
				case scheduled.Replayed:
					replayed.Add(1)
				default:
					created.Add(1)
				}
			})
			require.EqualValues(t, 3, created.Load())
			require.EqualValues(t, 27, replayed.Load())
			// The operator's calls meet each other too.
			ids := b.scheduleAll(t, emails("dead", 20))
			b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, ids...)
			var retried counter
			together(5, func(int) {
				done, err := client.RedriveMany(t.Context(), notifyq.RedriveParams{Limit: 10})
				if err != nil {
					t.Errorf("redrive: %v", err)
				}
				retried.Add(int64(done.Retried))
			})
			require.EqualValues(t, 20, retried.Load())
			together(20, func(i int) {
				if _, err := client.Cancel(t.Context(), ids[i/2], notifyq.Operation{}); err != nil {
					t.Errorf("cancel: %v", err)
				}
			})
		})
	}
}

func TestScheduleUnderAReadOnlyDefault(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	pool := b.newPool(t, func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on" })
	client := b.newClient(t, pool, notifyq.ClientConfig{})
	scheduled, err := client.Schedule(t.Context(), email("k"))
	require.NoError(t, err)
	_, err = client.Cancel(t.Context(), scheduled.ID, notifyq.Operation{})
	require.NoError(t, err)
}

func TestScheduleManyAnswersEachAtItsPlace(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	taken := b.schedule(t, email("taken"))
	n := func(key string, change func(n *notifyq.Notification)) notifyq.Notification {
		item := email(key)
		if change != nil {
			change(&item)
		}
		return item
	}
	other := func(n *notifyq.Notification) { n.Recipient = "v@example.test" }
	batch := []notifyq.Notification{
		n("z", nil),       // 0 new
		n("", nil),        // 1 invalid
		n("taken", nil),   // 2 replays
		n("taken", other), // 3 conflicts
		n("twice", nil),   // 4 new
		n("a", nil),       // 5 new
		n("twice", nil),   // 6 replays 4
		n("twice", other), // 7 conflicts with 4
		n("p", func(n *notifyq.Notification) { n.Payload = []byte(`{`) }),                        // 8 invalid
		n("h", func(n *notifyq.Notification) { n.SendAt = time.Now().Add(2 * notifyq.Horizon) }), // 9 found by the database
		n("e", func(n *notifyq.Notification) { n.ExpiresAt = time.Now().Add(-time.Hour) }),       // 10 too
		n("m", nil), // 11 new
	}

	answers, err := b.client.ScheduleMany(t.Context(), batch)

	require.NoError(t, err)
	require.Len(t, answers, len(batch))
	for i, field := range map[int]string{1: "IdempotencyKey", 8: "Payload", 9: "SendAt", 10: "ExpiresAt"} {
		requireInvalid(t, answers[i].Err, field)
		require.Zero(t, answers[i].ID)
	}
	for _, i := range []int{3, 7} {
		require.ErrorIs(t, answers[i].Err, notifyq.ErrKeyReused)
		require.Zero(t, answers[i].ID, "who holds the key is nobody's business")
	}
	for _, i := range []int{0, 4, 5, 11} {
		require.NoError(t, answers[i].Err)
		require.False(t, answers[i].Replayed)
		require.Equal(t, batch[i].IdempotencyKey, answers[i].Job.IdempotencyKey)
		require.Equal(t, b.get(t, answers[i].ID), answers[i].Job)
	}
	for i, first := range map[int]notifyq.Scheduled{2: taken, 6: answers[4]} {
		require.True(t, answers[i].Replayed)
		require.Equal(t, first.ID, answers[i].ID)
		require.Equal(t, first.Job, answers[i].Job)
	}
	require.Equal(t, 5, b.count(t, "@notification_jobs"))
}

func TestScheduleManyTakesTenThousandAndNoMore(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	batch := emails("many", notifyq.MaxBatch+1)
	_, err := b.client.ScheduleMany(t.Context(), batch)
	requireInvalid(t, err, "Notifications")
	require.Zero(t, b.count(t, "@notifications"))

	for i := range batch { // the keys' order is not the batch's
		batch[i].IdempotencyKey = fmt.Sprint((i * 7919) % len(batch))
	}
	ids := b.scheduleAll(t, batch[:notifyq.MaxBatch])

	require.True(t, slices.IsSortedFunc(ids, func(x, y uuid.UUID) int { return slices.Compare(x[:], y[:]) }), "ids ascend in batch order")
	require.Equal(t, notifyq.MaxBatch, b.count(t, "@notification_queue"))
	keys := value[[]string](t, b, `select array_agg(idempotency_key order by id) from @notifications`)
	for i, key := range keys {
		require.Equal(t, batch[i].IdempotencyKey, key)
	}
	again, err := b.client.ScheduleMany(t.Context(), batch[:notifyq.MaxBatch])
	require.NoError(t, err)
	for i := range again {
		require.True(t, again[i].Replayed)
		require.Equal(t, ids[i], again[i].ID)
	}
}

func TestScheduleManyOfNothing(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	answers, err := b.client.ScheduleMany(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, answers)
	answers, err = b.client.ScheduleMany(t.Context(), []notifyq.Notification{{}})
	require.NoError(t, err)
	require.ErrorIs(t, answers[0].Err, notifyq.ErrInvalid)
}

func TestIDsAreUUIDv7OfTheDatabaseClock(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var last uuid.UUID
	for i := range 20 {
		scheduled := b.schedule(t, email(fmt.Sprint(i)))
		require.Equal(t, uuid.Version(7), scheduled.ID.Version())
		require.Equal(t, uuid.RFC4122, scheduled.ID.Variant())
		seconds, nanos := scheduled.ID.Time().UnixTime()
		require.WithinDuration(t, scheduled.Job.CreatedAt, time.Unix(seconds, nanos), time.Millisecond)
		require.Positive(t, slices.Compare(scheduled.ID[:], last[:]), "later ids are larger")
		last = scheduled.ID
	}
}

func TestScheduleManyInOppositeOrderNeverDeadlocks(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const rounds, size = 20, 200
	for round := range rounds {
		batch := emails(fmt.Sprint(round), size)
		backwards := slices.Clone(batch)
		slices.Reverse(backwards)
		var stored counter
		together(4, func(i int) {
			mine := batch
			if i%2 == 1 {
				mine = backwards
			}
			// In transactions, where nothing repeats the statement when it is the victim of a deadlock.
			err := pgx.BeginFunc(t.Context(), b.db.Pool, func(tx pgx.Tx) error {
				answers, err := b.client.ScheduleManyTx(t.Context(), tx, mine)
				for _, a := range answers {
					err = errors.Join(err, a.Err)
					if !a.Replayed {
						stored.Add(1)
					}
				}
				return err
			})
			if err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		})
		require.EqualValues(t, size, stored.Load())
	}
}

func TestScheduleNeedsItsSchema(t *testing.T) {
	t.Parallel()
	pool := openPool(t, dbtest.NewDatabase(t), nil)
	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{})
	require.NoError(t, err, "nothing is asked of the database before the first call")
	calls := everyCall(client, uuid.New())
	for name, call := range calls {
		err := call(t.Context())
		require.ErrorIs(t, err, notifyq.ErrSchema, name)
		require.ErrorContains(t, err, "schema", name)
	}
}

func TestClientRefusesAWrongConfiguration(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for field, configs := range map[string][]notifyq.ClientConfig{
		"Schema": {
			{Schema: "Weird-Schema"},
			{Schema: `a"; drop schema public; --`},
			{Schema: "a.b"},
			{Schema: " "},
			{Schema: "1a"},
			{Schema: "é"},
			{Schema: "pg_catalog"},
			{Schema: "information_schema"},
			{Schema: "a\x00"},
			{Schema: "a@b"},
			{Schema: fmt.Sprintf("%064d", 0)},
			{Schema: fmt.Sprintf("a%063d", 0)},
		},
		"MaxAttempts": {{MaxAttempts: -1}, {MaxAttempts: 1001}},
		"OnAmbiguous": {{OnAmbiguous: "PARK"}, {OnAmbiguous: "send twice"}},
	} {
		for _, cfg := range configs {
			_, err := notifyq.NewClient(b.db.Pool, cfg)
			requireInvalid(t, err, field)
		}
	}
	_, err := notifyq.NewClient(nil, notifyq.ClientConfig{})
	requireInvalid(t, err, "pool")
	for _, schema := range []string{"order", "_", "t_1"} {
		_, err := notifyq.NewClient(b.db.Pool, notifyq.ClientConfig{Schema: schema})
		require.NoError(t, err)
	}
}
