package store

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestAPublishedEventIsDone(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	ids := b.publish(3, 1)
	_, token := b.take(2)
	before := b.now()
	require.ElementsMatch(t, ids[:2], b.record(EventBatch{Published: claimsOf(token, ids...)}), "only what was held")
	after := b.now()
	for _, id := range ids[:2] {
		row := b.row(id)
		between(t, before, *row.Published, after, 0)
		require.Nil(t, row.Token)
		require.Nil(t, row.LockedBy)
		require.Zero(t, row.Failures)
	}
	b.exec(`update @outbox_events set next_attempt_at = now() - interval '1 hour'`)
	events, _ := b.take(10)
	require.Equal(t, ids[2:], idsOf(events))
}

func TestAFailedEventCountsItAndWaits(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	id := b.publish(1, 1)[0]
	b.exec(`update @outbox_events set failure_count = 6, last_error = 'before'`)
	_, token := b.take(1)
	before := b.now()
	require.Len(t, b.record(EventBatch{Failed: []EventFailed{{ID: id, Token: token, Delay: time.Hour, Error: "rejected: 500", Endpoint: "a"}}}), 1)
	row := b.row(id)
	between(t, before, row.Next, b.now(), time.Hour)
	text := "rejected: 500"
	require.Equal(t, eventRow{Next: row.Next, Failures: 7, Error: &text}, row, "the endpoint is kept with parked events only")
	events, _ := b.take(1)
	require.Empty(t, events)
}

func TestAnEventThatWasNotSentIsGivenUpWithoutAFailure(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	id := b.publish(1, 1)[0]
	b.exec(`update @outbox_events set failure_count = 6, last_error = 'before'`)
	_, token := b.take(1)
	require.Len(t, b.record(EventBatch{Failed: []EventFailed{{ID: id, Token: token, Parked: "exhausted", Uncounted: true}}}), 1)
	row := b.row(id)
	require.EqualValues(t, 6, row.Failures)
	require.Equal(t, "before", *row.Error)
	require.Equal(t, "exhausted", *row.Reason)
}

func TestAnEventIsGivenUpWithItsReason(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	for _, reason := range []string{"exhausted", "refused"} {
		for _, endpoint := range []string{"", "a"} {
			id := b.publish(1, 1)[0]
			_, token := b.take(1)
			before := b.now()
			require.Len(t, b.record(EventBatch{Failed: []EventFailed{{ID: id, Token: token, Error: "no", Parked: reason, Endpoint: endpoint}}}), 1)
			row := b.row(id)
			between(t, before, *row.Parked, b.now(), 0)
			require.Equal(t, reason, *row.Reason)
			require.Equal(t, endpoint != "", row.Endpoint != nil)
			require.EqualValues(t, 1, row.Failures)
			require.Nil(t, row.Token)
			events, _ := b.take(1)
			require.Empty(t, events)
		}
	}
	id := b.publish(1, 1)[0]
	_, token := b.take(1)
	claimed := b.row(id)
	_, err := b.store.RecordEvents(t.Context(), b.Pool, &EventBatch{Failed: []EventFailed{{ID: id, Token: token, Parked: "bored"}}})
	require.Equal(t, "23514", Code(err), "there are no other reasons")
	require.Equal(t, claimed, b.row(id))
}

func TestAReleasedEventIsAsItWas(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	id := b.publish(1, 1)[0]
	b.exec(`update @outbox_events set failure_count = 6, last_error = 'before'`)
	for _, delay := range []time.Duration{0, time.Hour} {
		_, token := b.take(1)
		before := b.now()
		require.Len(t, b.record(EventBatch{Released: []EventReleased{{ID: id, Token: token, Delay: delay}}}), 1)
		row := b.row(id)
		between(t, before, row.Next, b.now(), delay)
		text := "before"
		require.Equal(t, eventRow{Next: row.Next, Failures: 6, Error: &text}, row)
	}
	events, _ := b.take(1)
	require.Empty(t, events)
}

func TestAnEventIsHeldOnlyForAnEndpointThatIsDisabled(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	offToo, on := at("off too", "x"), at("on", "x")
	b.disable(offKey, offToo)
	moved := at("off", "new")
	b.meet(on, moved)
	endpoints := []EndpointKey{offKey, on, {}, at("unknown", "x"), offToo, moved, at("on", "unknown"), offKey}
	ids := b.publish(len(endpoints), 1)
	b.exec(`update @outbox_events set failure_count = 2`)
	_, token := b.take(len(ids))
	var batch EventBatch
	for i, id := range ids {
		batch.Released = append(batch.Released, EventReleased{ID: id, Token: token, Delay: time.Minute, Disabled: endpoints[i]})
	}
	before := b.now()
	require.ElementsMatch(t, ids, b.record(batch))
	after := b.now()
	for i, id := range ids {
		row := b.row(id)
		require.Nil(t, row.Token)
		require.EqualValues(t, 2, row.Failures, "it was not tried")
		if key := endpoints[i]; key == offKey || key == offToo {
			between(t, before, *row.Parked, after, 0)
			require.Equal(t, "disabled", *row.Reason)
			require.Equal(t, key.Name, *row.Endpoint)
			continue
		}
		require.Nil(t, row.Parked, "%v", endpoints[i])
		require.Nil(t, row.Endpoint, "%v", endpoints[i])
		between(t, before, row.Next, after, time.Minute)
	}
}

// enable is what an operator does: first the endpoint, then what was held for it.
func (b *outboxBundle) enable(ctx context.Context, q Querier, name string) error {
	_, _, err := b.store.EnableEndpoint(ctx, q, name, By{})
	return err
}

func (b *outboxBundle) bringBack(ctx context.Context, q Querier, name string) error {
	_, err := b.store.RedriveEvents(ctx, q, ParkedFilter{Endpoint: name, Reason: "disabled"}, 1000, 0, By{})
	return err
}

// hold records in the background that an event is held, as often as somebody's lock is in the way.
func (b *outboxBundle) hold(id, token uuid.UUID) (recorded chan error) {
	recorded = make(chan error, 1)
	ctx := context.WithoutCancel(b.t.Context())
	go func() {
		for {
			_, err := b.store.RecordEvents(ctx, b.Pool, &EventBatch{Released: []EventReleased{{ID: id, Token: token, Disabled: offKey}}})
			if Code(err) != "55P03" {
				recorded <- err
				return
			}
		}
	}()
	return recorded
}

func TestAnEventIsNotHeldForAnEndpointThatIsBeingEnabled(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.disable(offKey)
	id := b.publish(1, 1)[0]
	_, token := b.take(1)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	require.NoError(t, b.enable(t.Context(), tx, "off"))
	recorded := b.hold(id, token)
	b.awaitLocks(1)
	require.NoError(t, b.bringBack(t.Context(), b.Pool, "off"))
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-recorded)
	row := b.row(id)
	require.Nil(t, row.Parked, "nobody would bring it back")
	require.Nil(t, row.Token)
}

// The recording is kept between its endpoint and its event, and the enabling finds it there.
func TestEnablingAnEndpointWaitsForWhatIsBeingHeldForIt(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.disable(offKey)
	id := b.publish(1, 1)[0]
	_, token := b.take(1)
	b.exec(`create table @gate ()`)
	b.exec(`create function @wait() returns trigger language plpgsql as $$begin
		while not exists (select from @gate) loop perform pg_sleep(0.01); end loop;
		return new;
	end$$`)
	b.exec(`create trigger wait before update on @outbox_events for each row when (new.parked_at is not null) execute function @wait()`)
	recorded := b.hold(id, token)
	require.Eventually(t, func() bool {
		return got(b, pgx.RowTo[bool], `select exists (select from pg_stat_activity where wait_event = 'PgSleep' and strpos(query, $1) > 0)`, b.Schema)
	}, outboxPatience, 5*time.Millisecond)
	enabled := make(chan error, 1)
	go func() {
		ctx := context.WithoutCancel(t.Context())
		err := InTx(ctx, b.Pool, func(q Querier) error { return b.enable(ctx, q, "off") })
		if err == nil {
			err = InTx(ctx, b.Pool, func(q Querier) error { return b.bringBack(ctx, q, "off") })
		}
		enabled <- err
	}()
	b.awaitLocks(1)
	b.exec(`insert into @gate default values`)
	require.NoError(t, <-recorded)
	require.NoError(t, <-enabled)
	require.Nil(t, b.row(id).Parked, "it was brought back")
	events, _ := b.take(1)
	require.Equal(t, []uuid.UUID{id}, idsOf(events))
}

// Who holds one of the rows for long is nobody of ours.
func TestARecordingGivesUpOnARowThatSomebodyHolds(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	ids := b.publish(2, 1)
	_, token := b.take(2)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), b.sql(`select from @outbox_events where id = $1 for update`), ids[0])
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), outboxPatience)
	defer cancel()
	done, err := b.store.RecordEvents(ctx, b.Pool, &EventBatch{Published: claimsOf(token, ids...)})
	require.True(t, IsRowError(err), "%v", err)
	require.Empty(t, done)
	require.Equal(t, ids[1:], b.record(EventBatch{Published: claimsOf(token, ids[1])}), "the others go without it")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, ids[:1], b.record(EventBatch{Published: claimsOf(token, ids[0])}))
}

func TestABatchOfEventsIsRecordedWhollyOrNotAtAll(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.disable(offKey)
	ids := b.publish(4, 1)
	_, token := b.take(4)
	before := make([]eventRow, len(ids))
	for i, id := range ids {
		before[i] = b.row(id)
	}
	batch := func(text string) *EventBatch {
		return &EventBatch{
			Published: claimsOf(token, ids[0]),
			Failed:    []EventFailed{{ID: ids[1], Token: token, Error: text}},
			Released:  []EventReleased{{ID: ids[2], Token: token}, {ID: ids[3], Token: token, Disabled: offKey}},
		}
	}
	done, err := b.store.RecordEvents(t.Context(), b.Pool, batch("\x00"))
	require.Error(t, err)
	require.True(t, IsDataError(err))
	require.Empty(t, done)
	for i, id := range ids {
		require.Equal(t, before[i], b.row(id))
	}
	require.ElementsMatch(t, ids, b.record(*batch("no")))
	require.Equal(t, 4, got(b, pgx.RowTo[int], `select count(*) from @outbox_events where claim_token is null`))
}

func TestAnEmptyBatchOfEventsIsNothing(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	require.Empty(t, b.record(EventBatch{}))
	done, err := b.store.RenewEvents(t.Context(), b.Pool, Claims{}, time.Hour)
	require.NoError(t, err)
	require.Zero(t, done.Len())
}
