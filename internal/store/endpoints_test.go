package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func at(name, target string) EndpointKey { return EndpointKey{Name: name, Target: target} }

// receiver is at(…) for tests of a single one.
var receiver = at("a", "x")

func (b *outboxBundle) meet(keys ...EndpointKey) []Endpoint {
	b.t.Helper()
	met, err := b.store.MeetEndpoints(b.t.Context(), b.Pool, keys)
	require.NoError(b.t, err)
	return met
}

func (b *outboxBundle) endpoint(key EndpointKey) Endpoint {
	b.t.Helper()
	list, err := b.store.Endpoints(b.t.Context(), b.Pool, []EndpointKey{key})
	require.NoError(b.t, err)
	require.Len(b.t, list, 1)
	return list[0]
}

func (b *outboxBundle) report(r EndpointReport) Endpoint {
	b.t.Helper()
	if r.Name == "" {
		r.EndpointKey = receiver
	}
	e, found, err := b.store.ReportEndpoint(b.t.Context(), b.Pool, r)
	require.NoError(b.t, err)
	require.True(b.t, found)
	require.Equal(b.t, e, b.endpoint(r.EndpointKey), "what comes back is what is kept")
	return e
}

// failingFor lets the receivers fail since some time ago.
func (b *outboxBundle) failingFor(d time.Duration) {
	b.t.Helper()
	b.exec(`update @webhook_endpoints set failing_since = statement_timestamp() - $1::bigint * interval '1 microsecond',
		failures = greatest(failures, 1)`, d.Microseconds())
}

func TestAReceiverThatIsMetIsKnownAndEnabled(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	_, found, err := b.store.ReportEndpoint(t.Context(), b.Pool, EndpointReport{EndpointKey: receiver, Failures: 1, Gone: true})
	require.NoError(t, err)
	require.False(t, found, "nobody has met it")
	require.Empty(t, must(b.store.Endpoints(t.Context(), b.Pool, []EndpointKey{receiver})))

	require.Equal(t, []Endpoint{{EndpointKey: receiver}}, b.meet(receiver, receiver))
	require.Equal(t, Endpoint{EndpointKey: receiver}, b.report(EndpointReport{DisableAfter: time.Nanosecond}))
	disabled := b.report(EndpointReport{Failures: 2, Gone: true})
	require.Equal(t, []Endpoint{disabled}, b.meet(receiver), "meeting it again changes nothing")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestRelaysMeetReceiversAtOnce(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	var keys, turned []EndpointKey
	for i := range 50 {
		keys = append(keys, at(fmt.Sprint(i), "x"))
		turned = append(turned, at(fmt.Sprint(49-i), "x"))
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 10 {
				met, err := b.store.MeetEndpoints(t.Context(), b.Pool, [][]EndpointKey{keys, turned}[i%2])
				if err != nil || len(met) != len(keys) {
					t.Errorf("met %d: %v", len(met), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestTheFirstFailureTellsSinceWhenAReceiverFails(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.meet(receiver)
	before := b.now()
	e := b.report(EndpointReport{Failures: 3, FailingFor: time.Minute, DisableAfter: time.Hour})
	between(t, before, e.FailingSince, b.now(), -time.Minute)
	require.Equal(t, Endpoint{EndpointKey: receiver, Failures: 3, FailingSince: e.FailingSince}, e)
}

func TestFailuresAddUpUntilASuccess(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.meet(receiver)
	first := b.report(EndpointReport{Failures: 3, FailingFor: time.Minute})
	e := b.report(EndpointReport{Failures: 2, FailingFor: time.Second})
	require.EqualValues(t, 5, e.Failures)
	require.Equal(t, first.FailingSince, e.FailingSince, "it fails since the first")
	e = b.report(EndpointReport{})
	require.EqualValues(t, 5, e.Failures, "no news change nothing")
	require.Equal(t, first.FailingSince, e.FailingSince)

	before := b.now()
	e = b.report(EndpointReport{Failures: 1, FailingFor: time.Hour})
	between(t, before, e.FailingSince, b.now(), -time.Hour) // another relay has seen an earlier one

	before = b.now()
	e = b.report(EndpointReport{Succeeded: true, Failures: 1, FailingFor: time.Second})
	require.EqualValues(t, 1, e.Failures, "those before the success do not count")
	between(t, before, e.FailingSince, b.now(), -time.Second)
	require.Equal(t, Endpoint{EndpointKey: receiver}, b.report(EndpointReport{Succeeded: true}))
	require.Equal(t, Endpoint{EndpointKey: receiver}, b.report(EndpointReport{Succeeded: true}))
}

func TestAReceiverIsDisabledAfterNothingButFailures(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.meet(receiver)
	enabled := func(r EndpointReport, failing time.Duration, why string) {
		t.Helper()
		b.failingFor(failing)
		e := b.report(r)
		require.Zero(t, e.DisabledAt, why)
		require.Empty(t, e.Reason, why)
	}
	fails := EndpointReport{Failures: 1, DisableAfter: time.Hour}
	enabled(fails, 50*time.Minute, "not long enough")
	enabled(EndpointReport{Failures: 1}, 1000*time.Hour, "there is no limit")
	enabled(EndpointReport{DisableAfter: time.Hour}, 2*time.Hour, "nothing has failed since")
	enabled(EndpointReport{Succeeded: true, Failures: 1, DisableAfter: time.Hour}, 2*time.Hour, "something has succeeded since")
	enabled(EndpointReport{Succeeded: true, DisableAfter: time.Hour}, 2*time.Hour, "something has succeeded since")

	b.failingFor(61 * time.Minute)
	failing := b.endpoint(receiver)
	before := b.now()
	e := b.report(fails)
	between(t, before, e.DisabledAt, b.now(), 0)
	require.Equal(t, Endpoint{
		EndpointKey: receiver, Failures: failing.Failures + 1, FailingSince: failing.FailingSince, DisabledAt: e.DisabledAt, Reason: "failing",
	}, e)
}

func TestAReceiverThatIsGoneIsDisabledAtOnce(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	for name, known := range map[string]EndpointReport{"healthy": {}, "failing": {Failures: 1}} {
		for i, r := range []EndpointReport{{Failures: 1, Gone: true}, {Gone: true}, {Succeeded: true, Failures: 2, Gone: true}} {
			r.EndpointKey = at(fmt.Sprint(name, i), "x")
			known.EndpointKey = r.EndpointKey
			b.meet(r.EndpointKey)
			b.report(known)
			before := b.now()
			e := b.report(r)
			between(t, before, e.DisabledAt, b.now(), 0)
			require.Equal(t, "gone", e.Reason, name)
		}
	}
}

func TestADisabledReceiverStaysSoWhateverIsReported(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"gone", "failing"} {
		b := newOutboxBundle(t)
		b.meet(receiver)
		b.report(EndpointReport{Failures: 1, Gone: reason == "gone"})
		b.failingFor(2 * time.Hour)
		disabled := b.report(EndpointReport{Failures: 1, DisableAfter: time.Hour})
		require.NotZero(t, disabled.DisabledAt)
		require.Equal(t, reason, disabled.Reason)
		for _, r := range []EndpointReport{
			{Succeeded: true},
			{Succeeded: true, Failures: 1},
			{Failures: 1, DisableAfter: time.Hour},
			{Failures: 1, Gone: true},
			{},
		} {
			e := b.report(r)
			require.Equal(t, disabled.DisabledAt, e.DisabledAt, "%+v", r)
			require.Equal(t, disabled.Reason, e.Reason, "%+v", r)
		}
	}
}

func TestAReceiverWithAnotherTargetStartsOver(t *testing.T) {
	t.Parallel()
	for _, old := range []EndpointReport{{}, {Failures: 7, FailingFor: 2 * time.Hour}, {Failures: 7, Gone: true}} {
		b := newOutboxBundle(t)
		old.EndpointKey = at("a", "old")
		moved := at("a", "new")
		b.meet(old.EndpointKey)
		before := b.report(old)
		require.Equal(t, []Endpoint{{EndpointKey: moved}}, b.meet(moved))
		e := b.report(EndpointReport{EndpointKey: moved, Failures: 2, DisableAfter: time.Hour})
		require.EqualValues(t, 2, e.Failures)
		require.Zero(t, e.DisabledAt)
		require.Equal(t, before, b.endpoint(old.EndpointKey), "a relay that still knows the old one changes nothing of the new one")
		b.report(EndpointReport{EndpointKey: old.EndpointKey, Failures: 1, Gone: true})
		require.Equal(t, e, b.endpoint(moved))
	}
}

func TestWhatRelaysReportAtOnceAddsUp(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.meet(receiver)
	const relays, reports = 4, 10
	var wg sync.WaitGroup
	for range relays {
		wg.Go(func() {
			for range reports {
				if _, _, err := b.store.ReportEndpoint(t.Context(), b.Pool, EndpointReport{EndpointKey: receiver, Failures: 2}); err != nil {
					t.Errorf("report: %v", err)
				}
			}
		})
	}
	wg.Wait()
	e := b.endpoint(receiver)
	require.EqualValues(t, relays*reports*2, e.Failures)
	require.NotZero(t, e.FailingSince)
}

// Each of them alone has not seen the receiver fail for long enough.
func TestAReceiverIsDisabledByWhatRelaysSawTogether(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.meet(receiver)
	first := b.report(EndpointReport{Failures: 1, FailingFor: time.Minute, DisableAfter: time.Hour})
	b.failingFor(61 * time.Minute)
	e := b.report(EndpointReport{Failures: 1, DisableAfter: time.Hour}) // another, which has just begun
	require.Equal(t, "failing", e.Reason)
	require.EqualValues(t, 2, e.Failures)
	require.Zero(t, first.DisabledAt)
	require.Zero(t, b.report(EndpointReport{Succeeded: true}).Failures)
	require.Equal(t, e.DisabledAt, b.endpoint(receiver).DisabledAt, "the first one's success came too late")
}

func (b *outboxBundle) enabled(name string) (since time.Time, found bool) {
	b.t.Helper()
	err := InTx(b.t.Context(), b.Pool, func(q Querier) (err error) {
		since, found, err = b.store.EnableEndpoint(b.t.Context(), q, name, By{Actor: "ann", Reason: "mended"})
		return err
	})
	require.NoError(b.t, err)
	return since, found
}

func TestEnablingAReceiverForgetsItsFailuresAtEveryTarget(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	_, found := b.enabled("a")
	require.False(t, found)
	require.Zero(t, got(b, pgx.RowTo[int], `select count(*) from @operations`), "nothing was done")

	other, old := at("other", "x"), at("a", "old")
	b.meet(receiver, other, old)
	unchanged := b.report(EndpointReport{EndpointKey: other, Failures: 1, Gone: true})
	b.report(EndpointReport{Failures: 1, FailingFor: time.Minute})
	b.report(EndpointReport{EndpointKey: old, Failures: 1, Gone: true})
	before := b.now()
	_, found = b.enabled("a")
	require.True(t, found)
	for _, key := range []EndpointKey{receiver, old} {
		e := b.endpoint(key)
		between(t, before, e.EnabledAt, b.now(), 0)
		require.Equal(t, Endpoint{EndpointKey: key, EnabledAt: e.EnabledAt}, e)
	}
	require.Equal(t, unchanged, b.endpoint(other))
	require.Equal(t, 1, got(b, pgx.RowTo[int], `select count(*) from @operations
		where what = 'enable_endpoint' and endpoint = 'a' and actor = 'ann' and reason = 'mended'`))
}

func TestEnablingAReceiverTellsSinceWhenItMissesEventsUntilTheyAreBack(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.meet(receiver)
	since, found := b.enabled("a")
	require.True(t, found)
	require.Zero(t, since, "nothing was wrong with it")

	failing := b.report(EndpointReport{Failures: 1, FailingFor: time.Minute})
	b.report(EndpointReport{Failures: 1, Gone: true})
	for range 2 {
		since, _ = b.enabled("a")
		require.Equal(t, failing.FailingSince, since, "it began to fail before it was disabled")
	}
	b.report(EndpointReport{Failures: 1})
	since, _ = b.enabled("a")
	require.Equal(t, failing.FailingSince, since, "it has failed again before all was back")
	require.NoError(t, b.store.NothingMissed(t.Context(), b.Pool, "a", since.Add(-time.Microsecond)))
	again, _ := b.enabled("a")
	require.Equal(t, since, again, "what came back was of another time")
	require.NoError(t, b.store.NothingMissed(t.Context(), b.Pool, "a", since))
	since, _ = b.enabled("a")
	require.Zero(t, since)

	disabled := b.report(EndpointReport{Gone: true})
	b.report(EndpointReport{Failures: 1})
	since, _ = b.enabled("a")
	require.Equal(t, disabled.DisabledAt, since, "it was disabled before it failed")
}

func TestEnablingsOfAReceiverAtOnceAreToldTheSame(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.meet(receiver, at("a", "old"))
	disabled := b.report(EndpointReport{Gone: true})
	b.report(EndpointReport{EndpointKey: at("a", "old"), Failures: 1})
	told := make([]time.Time, 4)
	errs := make([]error, len(told))
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), b.sql(`select from @webhook_endpoints for update`))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range told {
		wg.Go(func() {
			errs[i] = InTx(t.Context(), b.Pool, func(q Querier) (err error) {
				told[i], _, err = b.store.EnableEndpoint(t.Context(), q, "a", By{})
				return err
			})
		})
	}
	b.awaitLocks(len(told))
	require.NoError(t, tx.Rollback(t.Context()))
	wg.Wait()
	for i, since := range told {
		require.NoError(t, errs[i])
		require.Equal(t, disabled.DisabledAt, since)
	}
}

func TestReceiversAreListedByNameWhereTheyWereMetLast(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	listed := func(limit int) (out []EndpointKey) {
		list, err := b.store.ListEndpoints(t.Context(), b.Pool, limit)
		require.NoError(t, err)
		for _, e := range list {
			out = append(out, e.EndpointKey)
		}
		return out
	}
	require.Empty(t, listed(10))
	for _, key := range []EndpointKey{at("c", "1"), at("a", "1"), at("b", "1"), at("a", "2"), at("b", "2"), at("b", "1")} {
		b.meet(key)
	}
	require.Equal(t, []EndpointKey{at("a", "2"), at("b", "1"), at("c", "1")}, listed(10))
	require.Equal(t, []EndpointKey{at("a", "2"), at("b", "1")}, listed(2))
	gone := b.report(EndpointReport{EndpointKey: at("b", "2"), Gone: true})
	list, err := b.store.ListEndpoints(t.Context(), b.Pool, 10)
	require.NoError(t, err)
	require.Zero(t, list[1].DisabledAt, "that of the old target is not shown")
	b.meet(gone.EndpointKey)
	list, err = b.store.ListEndpoints(t.Context(), b.Pool, 10)
	require.NoError(t, err)
	require.Equal(t, gone, list[1])
}

// held are the endpoints of a list for which something has been held for a while.
func TestHeldTellsForWhomEventsHaveBeenHeldForAWhile(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	ids := b.publish(4, 1)
	for i, endpoint := range []string{"a", "just now", "exhausted", "not asked for"} {
		b.exec(`update @outbox_events set parked_at = now() - case when $2 = 'just now' then interval '0' else interval '1 minute' end,
			parked_reason = case when $2 = 'exhausted' then 'exhausted' else 'disabled' end, endpoint = $2::text where id = $1`, ids[i], endpoint)
	}
	held, err := b.store.Held(t.Context(), b.Pool, []string{"exhausted", "just now", "a", "unknown"})
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, held)
	held, err = b.store.Held(t.Context(), b.Pool, nil)
	require.NoError(t, err)
	require.Empty(t, held)
}
