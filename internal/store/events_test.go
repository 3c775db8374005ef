package store

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// outboxBundle is a schema of a test's own with what the tests of events ask of it.
type outboxBundle struct {
	*dbtest.DB
	t     *testing.T
	store *Store
}

func newOutboxBundle(t *testing.T) *outboxBundle {
	t.Helper()
	db := dbtest.New(t)
	return &outboxBundle{db, t, New(db.Schema, Guards{Cancel: []int16{0}, Redrive: []int16{3, 4}})}
}

func (b *outboxBundle) sql(text string) string { return strings.ReplaceAll(text, "@", b.Schema+".") }

func (b *outboxBundle) exec(text string, args ...any) {
	b.t.Helper()
	_, err := b.Pool.Exec(b.t.Context(), b.sql(text), args...)
	require.NoError(b.t, err)
}

// got reads a single row.
func got[T any](b *outboxBundle, to pgx.RowToFunc[T], text string, args ...any) T {
	b.t.Helper()
	rows, err := b.Pool.Query(b.t.Context(), b.sql(text), args...)
	require.NoError(b.t, err)
	v, err := pgx.CollectExactlyOneRow(rows, to)
	require.NoError(b.t, err)
	return v
}

// now is the database's clock.
func (b *outboxBundle) now() time.Time {
	b.t.Helper()
	return got(b, pgx.RowTo[time.Time], `select clock_timestamp()`)
}

// publish stores n events with a body of some bytes. They are due one after another, in the order in which they come back.
func (b *outboxBundle) publish(n, bytes int) []uuid.UUID {
	b.t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		var err error
		ids[i], err = b.store.Publish(b.t.Context(), b.Pool, uuid.New(), "topic", "key", make([]byte, bytes))
		require.NoError(b.t, err)
	}
	return ids
}

// eventRow is all of an event that a statement may change.
type eventRow struct {
	Next                              time.Time
	Published, Parked                 *time.Time
	Token                             *uuid.UUID
	LockedBy, Reason, Endpoint, Error *string
	Failures                          int32
}

func (b *outboxBundle) row(id uuid.UUID) eventRow {
	b.t.Helper()
	return got(b, pgx.RowToStructByPos[eventRow], `select next_attempt_at, published_at, parked_at, claim_token, locked_by,
		parked_reason, endpoint, last_error, failure_count from @outbox_events where id = $1`, id)
}

func (b *outboxBundle) claim(lease Lease, low Mark, limit, maxBytes int) []ClaimedEvent {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), outboxPatience)
	defer cancel()
	events, err := b.store.ClaimEvents(ctx, b.Pool, lease, low, limit, maxBytes)
	require.NoError(b.t, err)
	slices.SortFunc(events, func(x, y ClaimedEvent) int {
		if y.Due.After(x.Due) {
			return -1
		}
		return 1
	})
	return events
}

// take claims what is due, with a new token.
func (b *outboxBundle) take(limit int) (events []ClaimedEvent, token uuid.UUID) {
	b.t.Helper()
	token = uuid.New()
	return b.claim(Lease{"relay", token, time.Hour}, Mark{}, limit, 1<<20), token
}

func (b *outboxBundle) record(batch EventBatch) []uuid.UUID {
	b.t.Helper()
	done, err := b.store.RecordEvents(b.t.Context(), b.Pool, &batch)
	require.NoError(b.t, err)
	return done
}

func (b *outboxBundle) expireClaims() {
	b.t.Helper()
	b.exec(`update @outbox_events set next_attempt_at = statement_timestamp() - interval '1 second' where claim_token is not null`)
}

// outboxPatience bounds every wait for something that has to happen.
const outboxPatience = 20 * time.Second

// awaitLocks returns when n statements on the schema wait for a lock.
func (b *outboxBundle) awaitLocks(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var waiting int
		err := b.Pool.QueryRow(b.t.Context(), `select count(*) from pg_stat_activity
			where wait_event_type = 'Lock' and strpos(query, $1) > 0`, b.Schema).Scan(&waiting)
		return err == nil && waiting == n
	}, outboxPatience, 5*time.Millisecond, "%d statements wait", n)
}

// between wants a time that a statement wrote as its own plus d.
func between(t *testing.T, before, at, after time.Time, d time.Duration) {
	t.Helper()
	require.False(t, at.Before(before.Add(d)), "%v is before %v", at, before.Add(d))
	require.False(t, at.After(after.Add(d)), "%v is after %v", at, after.Add(d))
}

func idsOf(events []ClaimedEvent) (ids []uuid.UUID) {
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	return ids
}

func claimsOf(token uuid.UUID, ids ...uuid.UUID) (c Claims) {
	for _, id := range ids {
		c.Add(id, token)
	}
	return c
}

// endings are the statements that end or prolong a claim; each returns the ids that it changed.
func (b *outboxBundle) endings() map[string]func(id, token uuid.UUID) []uuid.UUID {
	return map[string]func(id, token uuid.UUID) []uuid.UUID{
		"renewed": func(id, token uuid.UUID) []uuid.UUID {
			done, err := b.store.RenewEvents(b.t.Context(), b.Pool, claimsOf(token, id), 2*time.Hour)
			require.NoError(b.t, err)
			return done.IDs
		},
		"published": func(id, token uuid.UUID) []uuid.UUID {
			return b.record(EventBatch{Published: claimsOf(token, id)})
		},
		"failed": func(id, token uuid.UUID) []uuid.UUID {
			return b.record(EventBatch{Failed: []EventFailed{{ID: id, Token: token, Error: "no", Delay: time.Second}}})
		},
		"given up": func(id, token uuid.UUID) []uuid.UUID {
			return b.record(EventBatch{Failed: []EventFailed{{ID: id, Token: token, Error: "no", Parked: "exhausted", Endpoint: "off"}}})
		},
		"released": func(id, token uuid.UUID) []uuid.UUID {
			return b.record(EventBatch{Released: []EventReleased{{ID: id, Token: token, Delay: time.Second}}})
		},
		"held": func(id, token uuid.UUID) []uuid.UUID {
			return b.record(EventBatch{Released: []EventReleased{{ID: id, Token: token, Disabled: offKey}}})
		},
	}
}

var offKey = EndpointKey{Name: "off", Target: "x"}

// disable makes receivers known and disables them.
func (b *outboxBundle) disable(keys ...EndpointKey) {
	b.t.Helper()
	b.meet(keys...)
	for _, key := range keys {
		b.report(EndpointReport{EndpointKey: key, Gone: true})
	}
}

func TestNoStatementChangesAnEventWithoutItsToken(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.disable(offKey)
	for name, end := range b.endings() {
		id := b.publish(1, 1)[0]
		fresh := b.row(id)
		require.Empty(t, end(id, uuid.New()), "%s, unclaimed", name)
		require.Equal(t, fresh, b.row(id), "%s, unclaimed", name)

		first, old := b.take(1)
		require.Equal(t, []uuid.UUID{id}, idsOf(first))
		b.expireClaims()
		expired := b.row(id)
		require.Empty(t, end(id, uuid.New()), "%s, expired and another token", name)
		require.Equal(t, expired, b.row(id), "%s, expired and another token", name)

		_, token := b.take(1)
		claimed := b.row(id)
		require.Equal(t, token, *claimed.Token)
		require.Empty(t, end(id, old), "%s, the token of the claim before", name)
		require.Equal(t, claimed, b.row(id), "%s, the token of the claim before", name)
		require.Equal(t, []uuid.UUID{id}, end(id, token), "%s, its own token", name)
		require.NotEqual(t, claimed, b.row(id), "%s, its own token", name)
		if name == "renewed" {
			require.Len(t, b.record(EventBatch{Published: claimsOf(token, id)}), 1)
		}

		ended := b.row(id)
		for again, end := range b.endings() {
			require.Empty(t, end(id, token), "%s after %s", again, name)
			require.Equal(t, ended, b.row(id), "%s after %s", again, name)
		}
		b.exec(`delete from @outbox_events`)
	}
}

// An expired claim that nobody has taken over is still worth something: what was acknowledged need not be sent again.
func TestAnExpiredClaimCanStillBeRecorded(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	b.disable(offKey)
	for name, end := range b.endings() {
		id := b.publish(1, 1)[0]
		_, token := b.take(1)
		b.expireClaims()
		require.Equal(t, []uuid.UUID{id}, end(id, token), name)
		b.exec(`delete from @outbox_events`)
	}
}

func TestClaimsAtOnceShareTheEvents(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	ids := b.publish(120, 1)
	var mu sync.Mutex
	var all []uuid.UUID
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				events, err := b.store.ClaimEvents(t.Context(), b.Pool, Lease{"relay", uuid.New(), time.Hour}, Mark{}, 7, 1<<20)
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				if len(events) == 0 {
					return
				}
				mu.Lock()
				all = append(all, idsOf(events)...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.ElementsMatch(t, ids, all)
}

func TestAClaimPassesByWhatSomebodyHolds(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	ids := b.publish(4, 1)
	tx, err := b.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), b.sql(`select from @outbox_events where id = any($1) for update`), ids[:2])
	require.NoError(t, err)
	events, token := b.take(10)
	require.Equal(t, ids[2:], idsOf(events))

	_, err = tx.Exec(t.Context(), b.sql(`select from @outbox_events where id = $1 for update`), ids[2])
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), outboxPatience)
	defer cancel()
	renewed, err := b.store.RenewEvents(ctx, b.Pool, claimsOf(token, ids...), time.Hour)
	require.NoError(t, err)
	require.Equal(t, claimsOf(token, ids[3]), renewed, "nor does a renewal wait")
	require.NoError(t, tx.Rollback(t.Context()))
	events, _ = b.take(10)
	require.Equal(t, ids[:2], idsOf(events))
}

func TestAClaimTellsAllOfAnEvent(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	id, err := b.store.Publish(t.Context(), b.Pool, uuid.Nil, "order.paid", "customer 7", []byte("\x00\xff body"))
	require.NoError(t, err)
	b.exec(`update @outbox_events set created_at = '2026-01-02 03:04:05.678901+00', next_attempt_at = '2026-01-03 00:00:00.000001+00',
		failure_count = 5, last_error = 'before'`)
	events, token := b.take(1)
	require.Len(t, events, 1)
	e := events[0]
	require.True(t, e.CreatedAt.Equal(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)))
	require.True(t, e.Due.At.Equal(time.Date(2026, 1, 3, 0, 0, 0, 1000, time.UTC)), "where it stood, not the end of the lease")
	e.CreatedAt, e.Due.At = time.Time{}, time.Time{}
	require.Equal(t, ClaimedEvent{
		ID: id, Topic: "order.paid", Key: "customer 7", Body: []byte("\x00\xff body"), Due: Mark{ID: id}, Failures: 5,
	}, e)
	row := b.row(id)
	require.Equal(t, token, *row.Token)
	require.Equal(t, "relay", *row.LockedBy)
	require.Equal(t, "before", *row.Error)
	require.EqualValues(t, 5, row.Failures)
}

func TestOnlyWhatIsDueIsClaimed(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	ids := b.publish(5, 1)
	b.exec(`update @outbox_events set next_attempt_at = now() + interval '1 hour' where id = $1`, ids[0])
	b.exec(`update @outbox_events set published_at = now() where id = $1`, ids[1])
	b.exec(`update @outbox_events set parked_at = now(), parked_reason = 'refused' where id = $1`, ids[2])
	b.exec(`update @outbox_events set claim_token = gen_random_uuid(), locked_by = 'w',
		next_attempt_at = now() + interval '1 hour' where id = $1`, ids[3])
	events, _ := b.take(10)
	require.Equal(t, ids[4:], idsOf(events))
}

func TestTheLeaseOfAnEventIsWhenItIsDueAgain(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	id, token := b.publish(1, 1)[0], uuid.New()
	before := b.now()
	require.Len(t, b.claim(Lease{"relay", token, time.Hour}, Mark{}, 1, 1), 1)
	between(t, before, b.row(id).Next, b.now(), time.Hour)
	require.Empty(t, b.claim(Lease{"other", uuid.New(), time.Hour}, Mark{}, 1, 1))

	before = b.now()
	_, err := b.store.RenewEvents(t.Context(), b.Pool, claimsOf(token, id), 3*time.Hour)
	require.NoError(t, err)
	between(t, before, b.row(id).Next, b.now(), 3*time.Hour)
}

func TestAClaimThatRanOutCountsAsAFailure(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	id := b.publish(1, 1)[0]
	for failures := range int32(3) {
		events, token := b.take(1)
		require.Len(t, events, 1)
		require.Equal(t, failures, events[0].Failures)
		row := b.row(id)
		require.Equal(t, failures, row.Failures)
		require.Equal(t, token, *row.Token)
		if failures == 0 {
			require.Nil(t, row.Error, "the first claim is no failure")
		} else {
			require.Equal(t, "the relay that held it did not report back in time", *row.Error)
		}
		b.expireClaims()
	}
	_, token := b.take(1)
	require.Len(t, b.record(EventBatch{Released: []EventReleased{{ID: id, Token: token}}}), 1)
	events, _ := b.take(1)
	require.EqualValues(t, 3, events[0].Failures, "what was handed back did not run out")
}

func TestAClaimEndsWhereBodiesAddUpToTooMuch(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	ids := b.publish(5, 400)
	lease := func() Lease { return Lease{"relay", uuid.New(), time.Hour} }
	require.Equal(t, ids[:2], idsOf(b.claim(lease(), Mark{}, 10, 800)))
	require.Equal(t, ids[2:3], idsOf(b.claim(lease(), Mark{}, 10, 1)), "the first always fits")
	require.Equal(t, ids[3:], idsOf(b.claim(lease(), Mark{}, 10, 401)), "what was locked for nothing is free again")

	large := append(b.publish(1, 1), b.publish(1, 1<<20)...)
	small := b.publish(3, 1)
	require.Equal(t, large, idsOf(b.claim(lease(), Mark{}, 10, 1000)))
	require.Equal(t, small[:2], idsOf(b.claim(lease(), Mark{}, 2, 1000)), "and the limit holds too")
}

func TestAMarkTellsEventsOfOneTimeApart(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	ids := b.publish(10, 1)
	b.exec(`update @outbox_events set next_attempt_at = '2026-01-01 00:00:00.123456+00'`)
	slices.SortFunc(ids, func(x, y uuid.UUID) int { return strings.Compare(x.String(), y.String()) })
	var low Mark
	for _, want := range [][]uuid.UUID{ids[:4], ids[4:8], ids[8:], nil} {
		events := b.claim(Lease{"relay", uuid.New(), time.Hour}, low, 4, 1<<20)
		require.Equal(t, want, idsOf(events))
		for _, e := range events {
			require.True(t, e.Due.After(low))
			low = e.Due
		}
	}
}

// C102: what commits late stands before the mark, and a look from the beginning finds it. A rollback leaves no gap to
// wait for.
func TestWhatCommitsLateIsBehindNoMarkForGood(t *testing.T) {
	t.Parallel()
	b := newOutboxBundle(t)
	begin := func() (pgx.Tx, uuid.UUID) {
		tx, err := b.Pool.Begin(t.Context())
		require.NoError(t, err)
		id, err := b.store.Publish(t.Context(), tx, uuid.Nil, "topic", "", []byte("x"))
		require.NoError(t, err)
		return tx, id
	}
	late, lateID := begin()
	undone, _ := begin()
	second := b.publish(1, 1)
	events, _ := b.take(10)
	require.Equal(t, second, idsOf(events), "neither blocks what is behind it")
	low := events[0].Due
	require.NoError(t, undone.Rollback(t.Context()))
	require.NoError(t, late.Commit(t.Context()))
	third := b.publish(1, 1)
	require.Equal(t, third, idsOf(b.claim(Lease{"relay", uuid.New(), time.Hour}, low, 10, 1<<20)))
	events, _ = b.take(10)
	require.Equal(t, []uuid.UUID{lateID}, idsOf(events))
}
