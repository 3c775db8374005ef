package notifyq_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// endpoint makes a receiver known that fails since one time ago and is disabled since another; empty: it does not, it is not.
func (b *bundle) endpoint(t *testing.T, name, failing, disabled string) {
	t.Helper()
	b.exec(t, `insert into @webhook_endpoints (name, target, failures, failing_since, disabled_at, reason)
		values ($1, 'x', case when $2 = '' then 0 else 7 end, now() - nullif($2, '')::interval, now() - nullif($3, '')::interval,
			case when $3 <> '' then 'failing' end)`, name, failing, disabled)
}

// parkedAgo moves the time when events were parked.
func (b *bundle) parkedAgo(t *testing.T, ago string, ids ...uuid.UUID) {
	t.Helper()
	b.exec(t, `update @outbox_events set parked_at = now() - $2::text::interval where id = any($1)`, ids, ago)
}

// back are the events that were brought back, by the time when they are due.
func (b *bundle) back(t *testing.T) []uuid.UUID {
	t.Helper()
	return value[[]uuid.UUID](t, b, `select coalesce(array_agg(id order by next_attempt_at, id), '{}') from @outbox_events
		where parked_at is null and failure_count = 0 and published_at is null and last_error = 'rejected: 500'`)
}

// due are the times when they are, in the order of their ids.
func (b *bundle) due(t *testing.T, ids []uuid.UUID) []time.Time {
	t.Helper()
	return value[[]time.Time](t, b, `select array_agg(next_attempt_at order by id) from @outbox_events where id = any($1)`, ids)
}

// outboxOperations are the rows of the audit table about events, oldest first.
func (b *bundle) outboxOperations(t *testing.T) []string {
	t.Helper()
	return value[[]string](t, b, `select coalesce(array_agg(concat_ws(' ', what, endpoint, event_id, actor, reason, affected) order by id), '{}')
		from @operations`)
}

func TestARedrivenEventStartsOverUnderItsID(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.park(t, 2, "a", notifyq.ParkedExhausted)
	b.exec(t, `update @outbox_events set next_attempt_at = now() + interval '1 day'`)
	before := value[time.Time](t, b, `select clock_timestamp()`)
	require.NoError(t, b.client.RedriveEvent(t.Context(), ids[0], notifyq.Operation{Actor: "ann", Reason: "mended"}))
	after := value[time.Time](t, b, `select clock_timestamp()`)
	require.Equal(t, ids[:1], b.back(t), "its last error stays")
	due := b.due(t, ids[:1])[0]
	require.False(t, due.Before(before) || due.After(after), "it is due now")
	require.Equal(t, 1, b.count(t, `@outbox_events where id = $1 and endpoint is null and parked_reason is null and claim_token is null`, ids[0]))
	require.Equal(t, []string{fmt.Sprintf("redrive_event %s ann mended 1", ids[0])}, b.outboxOperations(t))
	page, err := b.client.ListParked(t.Context(), notifyq.ParkedParams{})
	require.NoError(t, err)
	require.Len(t, page.Events, 1)
	require.Equal(t, ids[1], page.Events[0].ID)
}

func TestOnlyAParkedEventIsRedriven(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.unparked(t)
	before := b.outboxText(t)
	for _, id := range ids {
		require.ErrorIs(t, b.client.RedriveEvent(t.Context(), id, notifyq.Operation{}), notifyq.ErrNotParked)
	}
	for _, id := range []uuid.UUID{uuid.Nil, uuid.New(), uuid.Max} {
		require.ErrorIs(t, b.client.RedriveEvent(t.Context(), id, notifyq.Operation{}), notifyq.ErrNotFound)
	}
	done, err := b.client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{})
	require.NoError(t, err)
	require.Zero(t, done)
	require.Equal(t, before, b.outboxText(t))
	require.Empty(t, b.outboxOperations(t), "nothing was done")
}

func TestConcurrentRedrivesOfOneEventHaveOneWinner(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.park(t, 1, "", notifyq.ParkedRefused)[0]
	var won counter
	together(6, func(int) {
		switch err := b.client.RedriveEvent(t.Context(), id, notifyq.Operation{}); {
		case err == nil:
			won.Add(1)
		case !errors.Is(err, notifyq.ErrNotParked):
			t.Errorf("redrive: %v", err)
		}
	})
	require.EqualValues(t, 1, won.Load())
	require.Len(t, b.outboxOperations(t), 1)
}

func TestRedriveEventsTakesAHundredByDefault(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.unparked(t)
	ids := b.park(t, 130, "a", notifyq.ParkedExhausted)
	done, err := b.client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{Operation: notifyq.Operation{Actor: "ann", Reason: "mended"}})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{Retried: 100, Remaining: 30}, done)
	require.Equal(t, ids[:100], b.back(t))
	done, err = b.client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{Endpoint: "a", Limit: 20})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{Retried: 20, Remaining: 10}, done)
	done, err = b.client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{Limit: 1000})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{Retried: 10}, done)
	require.ElementsMatch(t, ids, b.back(t))
	require.Equal(t, []string{"redrive_events ann mended 100", "redrive_events a   20", "redrive_events   10"}, b.outboxOperations(t))
}

func TestRedriveEventsIsNarrowedByEachFilter(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	held, exhausted := b.park(t, 3, "a", notifyq.ParkedDisabled), b.park(t, 3, "a", notifyq.ParkedExhausted)
	other, none := b.park(t, 3, "b", notifyq.ParkedExhausted), b.park(t, 3, "", notifyq.ParkedRefused)
	since := value[time.Time](t, b, `select date_trunc('milliseconds', now()) - interval '1 hour'`)
	b.exec(t, `update @outbox_events set parked_at = $1`, since)
	b.exec(t, `update @outbox_events set parked_at = $1::timestamptz - interval '1 microsecond' where id = any($2)`,
		since, []uuid.UUID{held[0], exhausted[0], other[0], none[0]})
	for _, c := range []struct {
		p    notifyq.RedriveEventsParams
		want []uuid.UUID
	}{
		{notifyq.RedriveEventsParams{Endpoint: "unknown"}, nil},
		{notifyq.RedriveEventsParams{Endpoint: "b", Reason: notifyq.ParkedDisabled}, nil},
		{notifyq.RedriveEventsParams{Since: since.Add(time.Microsecond)}, nil},
		{notifyq.RedriveEventsParams{Endpoint: "a", Reason: notifyq.ParkedExhausted, Since: since}, exhausted[1:]},
		{notifyq.RedriveEventsParams{Reason: notifyq.ParkedDisabled}, held},
		{notifyq.RedriveEventsParams{Since: since}, append(other[1:], none[1:]...)},
		{notifyq.RedriveEventsParams{Endpoint: "a"}, exhausted[:1]},
		{notifyq.RedriveEventsParams{Reason: notifyq.ParkedRefused}, none[:1]},
		{notifyq.RedriveEventsParams{}, other[:1]},
	} {
		before := b.back(t)
		done, err := b.client.RedriveEvents(t.Context(), c.p)
		require.NoError(t, err)
		require.Equal(t, notifyq.Redriven{Retried: len(c.want)}, done, "%+v", c.p)
		came := slices.DeleteFunc(b.back(t), func(id uuid.UUID) bool { return slices.Contains(before, id) })
		require.ElementsMatch(t, c.want, came, "%+v", c.p)
	}
}

func TestConcurrentRedrivesShareTheEvents(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.park(t, 50, "a", notifyq.ParkedExhausted)
	var retried counter
	together(5, func(int) {
		for {
			done, err := b.client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{Limit: 6})
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
	require.ElementsMatch(t, ids, b.back(t))
	require.EqualValues(t, 50, value[int64](t, b, `select sum(affected) from @operations`))
}

func TestARedriveOfEventsPassesByWhatSomebodyHolds(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.park(t, 4, "a", notifyq.ParkedExhausted)
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(contextAfter(t)) }()
	_, err = tx.Exec(t.Context(), b.sql(`select from @outbox_events where id = any($1) for update`), ids[:2])
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done, err := b.client.RedriveEvents(ctx, notifyq.RedriveEventsParams{})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{Retried: 2, Remaining: 2}, done)
	require.NoError(t, tx.Rollback(t.Context()))
}

// requirePaced wants times a fixed distance apart.
func requirePaced(t *testing.T, due []time.Time, every time.Duration) {
	t.Helper()
	for i := range due {
		require.Equal(t, time.Duration(i)*every, due[i].Sub(due[0]), "event %d", i)
	}
}

func TestAPacedRedriveOfEventsGoesOnWhereTheOneBeforeEnds(t *testing.T) { // C101
	t.Parallel()
	b := newBundle(t)
	ids, other := b.park(t, 25, "a", notifyq.ParkedDisabled), b.park(t, 3, "b", notifyq.ParkedExhausted)
	before := value[time.Time](t, b, `select clock_timestamp()`)
	p := notifyq.RedriveEventsParams{PerSecond: 0.5, Limit: 10, Endpoint: "a"}
	for _, want := range []notifyq.Redriven{{Retried: 10, Remaining: 15}, {Retried: 10, Remaining: 5}} {
		done, err := b.client.RedriveEvents(t.Context(), p)
		require.NoError(t, err)
		require.Equal(t, want, done)
	}
	requirePaced(t, b.due(t, ids[:20]), 2*time.Second)
	require.False(t, b.due(t, ids[:1])[0].Before(before), "the first is due now")

	// Neither another endpoint's pace nor an unpaced call waits for it.
	now := func() time.Time { return value[time.Time](t, b, `select clock_timestamp()`) }
	_, err := b.client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{Endpoint: "b", PerSecond: 0.001, Limit: 2})
	require.NoError(t, err)
	require.False(t, b.due(t, other[:1])[0].After(now()))
	done, err := b.client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{Retried: 6}, done)
	for _, due := range b.due(t, append(ids[20:], other[2])) {
		require.False(t, due.After(now()))
	}
}

func TestPacedRedrivesAtOnceKeepOnePace(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.park(t, 40, "a", notifyq.ParkedDisabled)
	together(4, func(int) {
		if _, err := b.client.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{Endpoint: "a", PerSecond: 0.1, Limit: 10}); err != nil {
			t.Errorf("redrive: %v", err)
		}
	})
	require.Len(t, b.back(t), 40)
	due := b.due(t, ids)
	slices.SortFunc(due, time.Time.Compare)
	requirePaced(t, due, 10*time.Second)
}

func TestRedrivingEventsRefusesWrongParameters(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.park(t, 1, "a", notifyq.ParkedDisabled)[0]
	b.endpoint(t, "a", "2 hours", "1 hour")
	before := b.outboxText(t)
	paces := []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 1_000_001, 1e-9, 0.000999, math.SmallestNonzeroFloat64}
	long := strings.Repeat("x", 256)
	for field, params := range map[string][]notifyq.RedriveEventsParams{
		"Endpoint":  {{Endpoint: "\x00"}, {Endpoint: "\xff"}, {Endpoint: long}},
		"Reason":    {{Reason: "bored"}, {Reason: "DISABLED"}, {Operation: notifyq.Operation{Reason: long}}},
		"Limit":     {{Limit: -1}, {Limit: 1001}, {Limit: math.MaxInt}},
		"Since":     {{Since: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, {Since: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}},
		"Actor":     {{Operation: notifyq.Operation{Actor: "a\nb"}}, {Operation: notifyq.Operation{Actor: long}}},
		"PerSecond": nil,
	} {
		if field == "PerSecond" {
			for _, pace := range paces {
				params = append(params, notifyq.RedriveEventsParams{PerSecond: pace})
			}
		}
		for _, p := range params {
			_, err := b.client.RedriveEvents(t.Context(), p)
			requireInvalid(t, err, field)
		}
	}
	for field, params := range map[string][]notifyq.EnableParams{
		"Name":      {{}, {Name: " "}, {Name: "\x00"}, {Name: long}},
		"Actor":     {{Name: "a", Operation: notifyq.Operation{Actor: "\u202e"}}},
		"Reason":    {{Name: "a", Operation: notifyq.Operation{Reason: "\n"}}},
		"PerSecond": nil,
	} {
		if field == "PerSecond" {
			for _, pace := range paces {
				params = append(params, notifyq.EnableParams{Name: "a", PerSecond: pace})
			}
		}
		for _, p := range params {
			_, err := b.client.EnableEndpoint(t.Context(), p)
			requireInvalid(t, err, field)
		}
	}
	requireInvalid(t, b.client.RedriveEvent(t.Context(), id, notifyq.Operation{Actor: long}), "Actor")
	requireInvalid(t, b.client.RedriveEvent(t.Context(), id, notifyq.Operation{Reason: "\x00"}), "Reason")
	require.Equal(t, before, b.outboxText(t))
}
