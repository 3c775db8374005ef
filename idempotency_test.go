package notifyq_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestIdenticalConcurrentSchedulesCreateOneJob(t *testing.T) { // C20
	t.Parallel()
	b := newBundle(t)
	ids := make([]string, 25)
	var created counter
	together(len(ids), func(i int) {
		scheduled, err := b.client.Schedule(t.Context(), email("one"))
		if err != nil {
			t.Errorf("schedule: %v", err)
			return
		}
		if !scheduled.Replayed {
			created.Add(1)
		}
		ids[i] = scheduled.ID.String()
	})
	require.EqualValues(t, 1, created.Load())
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	require.Equal(t, 1, b.count(t, "@notification_jobs"))
}

func TestTwoBodiesRacingForOneKeyOneWins(t *testing.T) { // C19, C20
	t.Parallel()
	b := newBundle(t)
	for round := range 5 {
		key := fmt.Sprint(round)
		type answer struct {
			scheduled notifyq.Scheduled
			err       error
		}
		answers := make([]answer, 50)
		together(len(answers), func(i int) {
			n := email(key)
			n.Recipient = fmt.Sprintf("%d@example.test", i%2)
			answers[i].scheduled, answers[i].err = b.client.Schedule(t.Context(), n)
		})
		winner := value[string](t, b, `select recipient from @notification_jobs where idempotency_key = $1`, key)
		created := 0
		for i, a := range answers {
			if fmt.Sprintf("%d@example.test", i%2) != winner {
				require.ErrorIs(t, a.err, notifyq.ErrKeyReused)
				continue
			}
			require.NoError(t, a.err)
			require.Equal(t, winner, a.scheduled.Job.Recipient)
			if !a.scheduled.Replayed {
				created++
			}
		}
		require.Equal(t, 1, created)
	}
	require.Equal(t, 5, b.count(t, "@notification_jobs"))
}

func TestWhatCountsAsTheSameRequest(t *testing.T) { // C19, C22
	t.Parallel()
	b := newBundle(t)
	at := time.Now().UTC().Add(time.Hour).Truncate(time.Millisecond)
	payload := func(text string) func(n *notifyq.Notification) {
		return func(n *notifyq.Notification) { n.Payload = []byte(text) }
	}
	for name, c := range map[string]struct {
		first, second func(n *notifyq.Notification)
		same          bool
	}{
		"nothing differs":      {payload(`{"a":1}`), payload(`{"a":1}`), true},
		"order of members":     {payload(`{"a":1,"b":{"x":1,"y":2}}`), payload(`{"b":{"y":2,"x":1},"a":1}`), true},
		"white space":          {payload(`{"a":[1,2]}`), payload(" {\t\"a\" :\n[ 1 , 2 ] }\r\n"), true},
		"spelling of escapes":  {payload(`{"aé":"/😀\n"}`), payload(`{"\u0061\u00E9":"\/\ud83d\ude00\u000a"}`), true},
		"an escaped backslash": {payload(`{"a":"\\u0041"}`), payload(`{"a":"A"}`), false},
		"order of elements":    {payload(`[1,2]`), payload(`[2,1]`), false},
		"spelling of a number": {payload(`1.0`), payload(`1`), false},
		"an exponent":          {payload(`1e2`), payload(`100`), false},
		"beyond a double":      {payload(`9007199254740993`), payload(`9007199254740992`), false},
		"less":                 {payload(`{"field":1}`), payload(`{}`), false},
		"more":                 {payload(`{}`), payload(`{"field":1}`), false},
		"null is not nothing":  {payload(`{"a":null}`), payload(`{}`), false},
		"a text is no number":  {payload(`"1"`), payload(`1`), false},
		"Unicode forms":        {payload(`"é"`), payload("\"e\u0301\""), false},
		"recipient":            {nil, func(n *notifyq.Notification) { n.Recipient = "U@example.test" }, false},
		"channel":              {nil, func(n *notifyq.Notification) { n.Channel = "email" }, false},
		"priority by default":  {nil, func(n *notifyq.Notification) { n.Priority = notifyq.PriorityNormal }, true},
		"priority":             {nil, func(n *notifyq.Notification) { n.Priority = notifyq.PriorityLow }, false},
		"attempts by default":  {nil, func(n *notifyq.Notification) { n.MaxAttempts = notifyq.DefaultMaxAttempts }, true},
		"policy by default":    {nil, func(n *notifyq.Notification) { n.OnAmbiguous = notifyq.AmbiguousRetry }, true},
		"attempts": {
			func(n *notifyq.Notification) { n.MaxAttempts = 1 }, func(n *notifyq.Notification) { n.MaxAttempts = 2 }, false,
		},
		"policy": {
			func(n *notifyq.Notification) { n.OnAmbiguous = notifyq.AmbiguousRetry },
			func(n *notifyq.Notification) { n.OnAmbiguous = notifyq.AmbiguousPark }, false,
		},
		"another offset": {
			func(n *notifyq.Notification) { n.SendAt, n.ExpiresAt = at, at.Add(time.Hour) },
			func(n *notifyq.Notification) {
				n.SendAt, n.ExpiresAt = at.In(time.FixedZone("", -3600)), at.Add(time.Hour).In(time.FixedZone("", 5400))
			}, true,
		},
		"within a microsecond": {
			func(n *notifyq.Notification) { n.SendAt = at.Add(1001) }, func(n *notifyq.Notification) { n.SendAt = at.Add(1999) }, true,
		},
		"a microsecond later": {
			func(n *notifyq.Notification) { n.SendAt = at }, func(n *notifyq.Notification) { n.SendAt = at.Add(time.Microsecond) }, false,
		},
		"expiry":           {nil, func(n *notifyq.Notification) { n.ExpiresAt = at }, false},
		"the same delay":   {func(n *notifyq.Notification) { n.Delay = time.Minute }, func(n *notifyq.Notification) { n.Delay = time.Minute }, true},
		"another delay":    {func(n *notifyq.Notification) { n.Delay = time.Minute }, func(n *notifyq.Notification) { n.Delay = time.Second }, false},
		"no delay is zero": {nil, func(n *notifyq.Notification) { n.Delay = 0 }, true},
		"now is not a delay": {
			func(n *notifyq.Notification) { n.SendAt = at }, func(n *notifyq.Notification) { n.Delay = time.Hour }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for direction, order := range [][2]func(n *notifyq.Notification){{c.first, c.second}, {c.second, c.first}} {
				ns := [2]notifyq.Notification{email(fmt.Sprint(name, direction)), email(fmt.Sprint(name, direction))}
				for i, change := range order {
					if change != nil {
						change(&ns[i])
					}
				}
				first := b.schedule(t, ns[0])
				second, err := b.client.Schedule(t.Context(), ns[1])
				if !c.same {
					require.ErrorIs(t, err, notifyq.ErrKeyReused)
					require.Equal(t, first.Job, b.get(t, first.ID), "the first is unchanged")
					continue
				}
				require.NoError(t, err)
				require.True(t, second.Replayed)
				require.Equal(t, first.ID, second.ID)
				require.Equal(t, first.Job, second.Job)
			}
		})
	}
}

// schedulers are the ways to schedule one notification.
var schedulers = map[string]func(t *testing.T, b *bundle, c *notifyq.Client, n notifyq.Notification) (notifyq.Scheduled, error){
	"Schedule": func(t *testing.T, _ *bundle, c *notifyq.Client, n notifyq.Notification) (notifyq.Scheduled, error) {
		return c.Schedule(t.Context(), n)
	},
	"ScheduleTx": func(t *testing.T, b *bundle, c *notifyq.Client, n notifyq.Notification) (s notifyq.Scheduled, err error) {
		b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) { s, err = c.ScheduleTx(t.Context(), tx, n) })
		return s, err
	},
	"ScheduleMany": func(t *testing.T, _ *bundle, c *notifyq.Client, n notifyq.Notification) (notifyq.Scheduled, error) {
		answers, err := c.ScheduleMany(t.Context(), []notifyq.Notification{email("between-" + n.IdempotencyKey), n})
		require.NoError(t, err)
		return answers[1], answers[1].Err
	},
}

// Two clients with different settings run side by side while a deployment rolls. What a request leaves out is not what it
// asks for, so it is the same request to both.
func TestSameRequestIsTheSameJobUnderOtherDefaults(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	before := b.newClient(t, b.db.Pool, notifyq.ClientConfig{})
	after := b.newClient(t, b.db.Pool, notifyq.ClientConfig{MaxAttempts: 9, OnAmbiguous: notifyq.AmbiguousPark})
	for name, schedule := range schedulers {
		for direction, c := range [][2]*notifyq.Client{{before, after}, {after, before}} {
			key := fmt.Sprint(name, direction)
			first, err := c[0].Schedule(t.Context(), email(key))
			require.NoError(t, err)
			asked, refused := notifyq.AmbiguousRetry, notifyq.AmbiguousPark
			if c[0] == after {
				asked, refused = refused, asked
			}
			change := func(f func(n *notifyq.Notification)) notifyq.Notification {
				n := email(key)
				f(&n)
				return n
			}
			for what, n := range map[string]notifyq.Notification{
				"as it was":       email(key),
				"attempts given":  change(func(n *notifyq.Notification) { n.MaxAttempts = first.Job.MaxAttempts }),
				"policy given":    change(func(n *notifyq.Notification) { n.OnAmbiguous = asked }),
				"the payload too": change(func(n *notifyq.Notification) { n.Payload = []byte(" { } ") }),
			} {
				again, err := schedule(t, b, c[1], n)
				require.NoError(t, err, "%s %s", key, what)
				require.True(t, again.Replayed)
				require.Equal(t, first.Job, again.Job, "it keeps what it was made with")
			}
			for what, n := range map[string]notifyq.Notification{
				"other attempts":  change(func(n *notifyq.Notification) { n.MaxAttempts = first.Job.MaxAttempts + 1 }),
				"another policy":  change(func(n *notifyq.Notification) { n.OnAmbiguous = refused }),
				"another payload": change(func(n *notifyq.Notification) { n.Payload = []byte("[]") }),
				"a priority":      change(func(n *notifyq.Notification) { n.Priority = notifyq.PriorityHigh }),
				"a delay":         change(func(n *notifyq.Notification) { n.Delay = time.Minute }),
			} {
				_, err := schedule(t, b, c[1], n)
				require.ErrorIs(t, err, notifyq.ErrKeyReused, "%s %s", key, what)
			}
		}
	}
}

// What is asked for stays what the first request asked for, whatever became of the job's budget since.
func TestSameRequestIsTheSameJobAfterARedriveUnderOtherDefaults(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first := b.schedule(t, email("k"))
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, first.ID)
	_, err := b.client.Redrive(t.Context(), first.ID, notifyq.Operation{})
	require.NoError(t, err)
	b.exec(t, `update @notification_queue set max_attempts = max_attempts + 1, reconciliation_granted = true`)
	after := b.newClient(t, b.db.Pool, notifyq.ClientConfig{MaxAttempts: 9})

	again, err := after.Schedule(t.Context(), email("k"))

	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.ID, again.ID)
}

// Within one batch the first of a key is the job, and the others are compared with it as with any.
func TestDuplicatesInOneBatch(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	named := email("k")
	named.MaxAttempts, named.OnAmbiguous = 7, notifyq.AmbiguousPark
	other := named
	other.MaxAttempts = 8
	for name, many := range map[string]func(ns []notifyq.Notification) ([]notifyq.Scheduled, error){
		"ScheduleMany": func(ns []notifyq.Notification) ([]notifyq.Scheduled, error) {
			return b.client.ScheduleMany(t.Context(), ns)
		},
		"ScheduleManyTx": func(ns []notifyq.Notification) (answers []notifyq.Scheduled, err error) {
			b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) { answers, err = b.client.ScheduleManyTx(t.Context(), tx, ns) })
			return answers, err
		},
	} {
		ns := []notifyq.Notification{named, email("k"), other, named}
		for i := range ns {
			ns[i].IdempotencyKey = name
		}
		answers, err := many(ns)
		require.NoError(t, err)
		require.False(t, answers[0].Replayed)
		require.ErrorIs(t, answers[2].Err, notifyq.ErrKeyReused)
		for _, i := range []int{1, 3} {
			require.NoError(t, answers[i].Err, i)
			require.True(t, answers[i].Replayed)
			require.Equal(t, answers[0].Job, answers[i].Job)
		}
	}
}

func TestReplayTellsTheJobAsItIsNow(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first := b.schedule(t, email("k"))
	_, err := b.client.Cancel(t.Context(), first.ID, notifyq.Operation{Reason: "changed our mind"})
	require.NoError(t, err)

	again := b.schedule(t, email("k"))

	require.True(t, again.Replayed)
	require.Equal(t, notifyq.StatusCancelled, again.Job.Status)
	require.Equal(t, b.get(t, first.ID), again.Job)
}

func TestReplayIsAnsweredWhenItsTimesHaveGoneBy(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	n := email("k")
	n.ExpiresAt = value[time.Time](t, b, `select clock_timestamp() + interval '3 seconds'`)
	first := b.schedule(t, n)
	b.exec(t, `select pg_sleep_until($1)`, n.ExpiresAt)

	again := b.schedule(t, n)
	require.True(t, again.Replayed)
	require.Equal(t, first.ID, again.ID)
	n.Recipient = "v@example.test"
	_, err := b.client.Schedule(t.Context(), n)
	require.ErrorIs(t, err, notifyq.ErrKeyReused, "another request is one also when it is invalid by now")
	n.IdempotencyKey = "fresh"
	_, err = b.client.Schedule(t.Context(), n)
	requireInvalid(t, err, "ExpiresAt")
}

func TestKeysAreComparedByteByByte(t *testing.T) { // C12, C23
	t.Parallel()
	b := newBundle(t)
	keys := []string{"k", "K", " k", "k ", "é", "e\u0301", "ｋ", "k\u200b", "ß", "ss", "1", "01", `"k"`, `\u006b`, "k%", "_"}
	ids := map[string]bool{}
	for _, key := range keys {
		scheduled := b.schedule(t, email(key))
		require.False(t, scheduled.Replayed, "%q", key)
		ids[scheduled.ID.String()] = true
		job, err := b.client.GetByKey(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, scheduled.Job, job)
	}
	require.Len(t, ids, len(keys))
	_, err := b.client.GetByKey(t.Context(), "unknown")
	require.ErrorIs(t, err, notifyq.ErrNotFound)
	_, err = b.client.GetByKey(t.Context(), "\t")
	requireInvalid(t, err, "IdempotencyKey")
}

func TestAKeyIsFreeAgainOnceItsJobIsRemoved(t *testing.T) { // C35
	t.Parallel()
	b := newBundle(t)
	first := b.schedule(t, email("k"))
	b.end(t, notifyq.StatusSent, "", first.ID)
	other := email("k")
	other.Recipient = "v@example.test"
	_, err := b.client.Schedule(t.Context(), other)
	require.ErrorIs(t, err, notifyq.ErrKeyReused)

	b.exec(t, `delete from @notification_outcomes`)
	b.exec(t, `delete from @notifications`)
	second := b.schedule(t, other)
	require.False(t, second.Replayed)
	require.NotEqual(t, first.ID, second.ID)
}

// The holder of a key goes between the insert that met it and the read-back: the item is inserted after all.
func TestAKeyFreedInTheMiddleOfAScheduleIsTaken(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first := b.schedule(t, email("k"))
	b.end(t, notifyq.StatusSent, "", first.ID)
	client := b.newClient(t, b.hookedPool(t, "insert into", func() {
		b.exec(t, `delete from @notification_outcomes`)
		b.exec(t, `delete from @notifications`)
	}), notifyq.ClientConfig{})

	scheduled, err := client.Schedule(t.Context(), email("k"))

	require.NoError(t, err)
	require.False(t, scheduled.Replayed)
	require.NotEqual(t, first.ID, scheduled.ID)
}
