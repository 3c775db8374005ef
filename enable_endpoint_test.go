package notifyq_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestEndpointsTellHowEachReceiverIs(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	list, err := b.client.Endpoints(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)
	b.exec(t, `insert into @webhook_endpoints (name, target, failures, failing_since, disabled_at, reason) values
		('c', 'x', 9, '2026-01-02 03:04:05+02', '2026-01-03 00:00:00+02', 'gone'), ('a', '', 0, null, null, null),
		('b', 'x', 2, '2026-01-01 00:00:00+00', null, null)`)
	list, err = b.client.Endpoints(t.Context())
	require.NoError(t, err)
	require.Equal(t, []notifyq.EndpointStatus{
		{Name: "a"},
		{Name: "b", Failures: 2, FailingSince: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		{
			Name: "c", Failures: 9, FailingSince: time.Date(2026, 1, 2, 1, 4, 5, 0, time.UTC),
			DisabledAt: time.Date(2026, 1, 2, 22, 0, 0, 0, time.UTC), Reason: "gone",
		},
	}, list)
}

func (b *bundle) enable(t *testing.T, p notifyq.EnableParams) int {
	t.Helper()
	n, err := b.client.EnableEndpoint(t.Context(), p)
	require.NoError(t, err)
	return n
}

func TestEnablingAnEndpointBringsBackWhatItMissed(t *testing.T) { // C101
	t.Parallel()
	b := newBundle(t)
	b.endpoint(t, "a", "2 hours", "1 hour")
	b.endpoint(t, "b", "2 hours", "1 hour")
	held := b.park(t, 3, "a", notifyq.ParkedDisabled)
	exhausted, refused := b.park(t, 2, "a", notifyq.ParkedExhausted), b.park(t, 2, "a", notifyq.ParkedRefused)
	b.parkedAgo(t, "119 minutes", exhausted[0])
	b.parkedAgo(t, "120 minutes 30 seconds", exhausted[1]) // just before a relay told that the endpoint fails
	older := b.park(t, 2, "a", notifyq.ParkedExhausted)
	b.parkedAgo(t, "125 minutes", older...)
	others := append(b.park(t, 2, "b", notifyq.ParkedDisabled), b.park(t, 2, "", notifyq.ParkedExhausted)...)

	require.Equal(t, 7, b.enable(t, notifyq.EnableParams{Name: "a", Operation: notifyq.Operation{Actor: "ann", Reason: "mended"}}))
	require.ElementsMatch(t, slices.Concat(held, exhausted, refused), b.back(t))
	parked, _ := b.listed(t, notifyq.ParkedParams{}, nil)
	require.ElementsMatch(t, append(others, older...), parked)
	require.Equal(t, "enable_endpoint a ann mended 1", b.outboxOperations(t)[0])
	require.EqualValues(t, 7, value[int64](t, b, `select sum(affected) from @operations
		where what = 'redrive_events' and endpoint = 'a' and actor = 'ann' and reason = 'mended'`))
	list, err := b.client.Endpoints(t.Context())
	require.NoError(t, err)
	require.Equal(t, notifyq.EndpointStatus{Name: "a"}, list[0])
	require.NotZero(t, list[1].DisabledAt)
}

func TestEnablingAnEndpointThatIsEnabledBringsBackWhatIsStillHeld(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.endpoint(t, "a", "", "")
	require.Zero(t, b.enable(t, notifyq.EnableParams{Name: "a"}))
	held := b.park(t, 3, "a", notifyq.ParkedDisabled)
	b.park(t, 2, "a", notifyq.ParkedExhausted)
	require.Equal(t, 3, b.enable(t, notifyq.EnableParams{Name: "a"}))
	require.ElementsMatch(t, held, b.back(t))
	require.Zero(t, b.enable(t, notifyq.EnableParams{Name: "a"}))
	require.Equal(t, 2, b.count(t, "@outbox_events where parked_at is not null"))
}

func TestEnablingWithinALimitGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.endpoint(t, "a", "2 hours", "1 hour")
	ids := append(b.park(t, 1200, "a", notifyq.ParkedExhausted), b.park(t, 300, "a", notifyq.ParkedDisabled)...)
	p := notifyq.EnableParams{Name: "a", Limit: 1100}
	require.Equal(t, 1100, b.enable(t, p))
	require.Len(t, b.back(t), 1100)
	require.Equal(t, 400, b.enable(t, p), "what it missed while it failed is still known")
	require.ElementsMatch(t, ids, b.back(t))
	require.Zero(t, b.enable(t, p))
	later := b.park(t, 1, "a", notifyq.ParkedExhausted) // the endpoint does not fail
	require.Zero(t, b.enable(t, p))
	require.NotContains(t, b.back(t), later[0])
	for _, limit := range []int{-1, 1_000_001} {
		_, err := b.client.EnableEndpoint(t.Context(), notifyq.EnableParams{Name: "a", Limit: limit})
		require.ErrorIs(t, err, notifyq.ErrInvalid)
	}
}

func TestEnablingAnUnknownEndpointIsNotFound(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.park(t, 3, "a", notifyq.ParkedDisabled)
	n, err := b.client.EnableEndpoint(t.Context(), notifyq.EnableParams{Name: "a"})
	require.ErrorIs(t, err, notifyq.ErrNotFound)
	require.Zero(t, n)
	require.Empty(t, b.back(t))
	require.Empty(t, b.outboxOperations(t))
}

func TestEnablingAnEndpointCanBeRepeatedAfterAnError(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.endpoint(t, "a", "2 hours", "1 hour")
	missed := append(b.park(t, 3, "a", notifyq.ParkedDisabled), b.park(t, 2, "a", notifyq.ParkedExhausted)...)
	b.exec(t, `alter table @outbox_events add constraint broken check (parked_at is not null) not valid`)
	n, err := b.client.EnableEndpoint(t.Context(), notifyq.EnableParams{Name: "a"})
	require.ErrorContains(t, err, "23514")
	require.Zero(t, n)
	b.exec(t, `alter table @outbox_events drop constraint broken`)
	require.Equal(t, len(missed), b.enable(t, notifyq.EnableParams{Name: "a"}))
	require.ElementsMatch(t, missed, b.back(t))
	b.park(t, 2, "a", notifyq.ParkedExhausted)
	require.Zero(t, b.enable(t, notifyq.EnableParams{Name: "a"}), "it has missed nothing more")
}

// An endpoint was enabled, the call ended in an error, and it has begun to fail again before the next one.
func TestEnablingAnEndpointBringsBackWhatWasHeldBeforeItFailedAgain(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.endpoint(t, "a", "1 minute", "")
	held := b.park(t, 3, "a", notifyq.ParkedDisabled)
	b.parkedAgo(t, "1 hour", held...)
	require.Equal(t, 3, b.enable(t, notifyq.EnableParams{Name: "a"}))
	require.ElementsMatch(t, held, b.back(t))
}

func TestWhatAnEndpointMissedComesBackAtItsPace(t *testing.T) { // C101
	t.Parallel()
	b := newBundle(t)
	b.endpoint(t, "a", "2 hours", "1 hour")
	ids := b.park(t, 2100, "a", notifyq.ParkedDisabled)
	before := value[time.Time](t, b, `select clock_timestamp()`)
	require.Equal(t, len(ids), b.enable(t, notifyq.EnableParams{Name: "a", PerSecond: 4}))
	after := value[time.Time](t, b, `select clock_timestamp()`)
	due := b.due(t, ids)
	requirePaced(t, due, 250*time.Millisecond)
	require.False(t, due[0].Before(before) || due[0].After(after), "the first is due now")
	require.EqualValues(t, len(ids), value[int64](t, b, `select sum(affected) from @operations where what = 'redrive_events'`))
}

func TestEnablingsOfOneEndpointAtOnceBringBackEachEventOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.endpoint(t, "a", "2 hours", "1 hour")
	ids := append(b.park(t, 30, "a", notifyq.ParkedDisabled), b.park(t, 10, "a", notifyq.ParkedExhausted)...)
	var back counter
	together(4, func(int) {
		n, err := b.client.EnableEndpoint(t.Context(), notifyq.EnableParams{Name: "a"})
		if err != nil {
			t.Errorf("enable: %v", err)
		}
		back.Add(int64(n))
	})
	require.EqualValues(t, len(ids), back.Load())
	require.ElementsMatch(t, ids, b.back(t))
}
