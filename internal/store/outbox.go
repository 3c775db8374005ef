package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// EventCap is how far the events of one kind are counted.
const EventCap = 100_000

// Outbox is the state of the outbox, from its rows.
type Outbox struct {
	Pending, Parked, Disabled int64 // Disabled: parked until their endpoint is enabled
	Capped                    bool  // a count stopped at EventCap
	Published                 int64
	Estimated                 bool // Published is an estimate
	OldestPending, OldestDue  time.Duration
	Failing                   []int64 // by the thresholds asked for
	DisabledEndpoints         int64
}

// What is pending is never sorted or read to its end: counts stop at $1, and ages are the first entries of indexes. The
// first due event is the oldest of those that are as they were written, or older than they; the others are in an index of
// their own, by age. What is published has no index, and is counted only where the whole table is small.
const outboxSQL = `
with pending as (
    select count(*) as n from (select from @outbox_events e where e.published_at is null and e.parked_at is null limit $1) t
), parked as (
    select count(*) as n, count(*) filter (where t.parked_reason = 'disabled') as disabled
      from (select e.parked_reason from @outbox_events e where e.parked_at is not null limit $1) t
), first as (
    select (select e.created_at from @outbox_events e where e.published_at is null and e.parked_at is null
             order by e.next_attempt_at, e.id limit 1) as first,
           (select e.next_attempt_at from @outbox_events e where e.published_at is null and e.parked_at is null
             order by e.next_attempt_at, e.id limit 1) as due,
           (select e.created_at from @outbox_events e
             where e.published_at is null and e.parked_at is null and e.next_attempt_at > e.created_at
             order by e.created_at limit 1) as touched
), history as (
    select greatest(c.reltuples, 0)::bigint as rows from pg_catalog.pg_class c where c.oid = '@outbox_events'::regclass
), seen as (
    select count(*) as n, count(*) filter (where t.published_at is not null) as published
      from (select e.published_at from @outbox_events e where (select h.rows from history h) < $1 order by e.id limit $1) t
), published as (
    select case when h.rows < $1 and seen.n < $1 then seen.published
                else greatest(h.rows - pending.n - parked.n, seen.published) end as n,
           h.rows >= $1 or seen.n >= $1 as estimated
      from history h, seen, pending, parked
)
select pending.n, parked.n, parked.disabled, pending.n >= $1 or parked.n >= $1, published.n, published.estimated,
       greatest(extract(epoch from statement_timestamp() - least(first.first, first.touched)) * 1000000, 0)::bigint,
       greatest(extract(epoch from statement_timestamp() - first.due) * 1000000, 0)::bigint,
       (select array_agg((select count(*) from (select from @outbox_events e
                where e.published_at is null and e.parked_at is null and e.failure_count > 0 and e.failure_count >= t.least order by e.failure_count limit $1) c)
                order by t.place)
          from unnest($2::int[]) with ordinality as t(least, place)),
       (select count(*) from (select distinct on (w.name) w.disabled_at from @webhook_endpoints w order by w.name, w.met_at desc) w
         where w.disabled_at is not null)
  from pending, parked, first, published`

// Outbox measures the outbox, with pinned plans: what was drained a moment ago is not what the planner knows. thresholds are
// counts of failures, at least 1.
func (s *Store) Outbox(ctx context.Context, pool *pgxpool.Pool, thresholds []int32) (o Outbox, err error) {
	err = pinned(ctx, pool, func(b *pgx.Batch) {
		b.Queue(s.sql.outbox, EventCap, thresholds).QueryRow(func(row pgx.Row) error {
			var pending, due pgtype.Int8
			err := row.Scan(&o.Pending, &o.Parked, &o.Disabled, &o.Capped, &o.Published, &o.Estimated, &pending, &due, &o.Failing, &o.DisabledEndpoints)
			o.OldestPending, o.OldestDue = time.Duration(pending.Int64)*time.Microsecond, time.Duration(due.Int64)*time.Microsecond
			return err
		})
	})
	return o, err
}

const eventsDueSoonSQL = `
select count(*)
  from @outbox_events e
 where e.published_at is null and e.parked_at is null
   and (e.claim_token is not null or e.next_attempt_at <= statement_timestamp() + $1::bigint * interval '1 microsecond')`

// EventsDueSoon counts the events that are claimed, or due within d. It reads all that are pending: it is for tests.
func (s *Store) EventsDueSoon(ctx context.Context, q Querier, d time.Duration) (int, error) {
	var n int
	err := q.QueryRow(ctx, s.sql.eventsDueSoon, micros(d)).Scan(&n)
	return n, err
}
