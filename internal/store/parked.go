package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ParkedEvent is one event that was given up or waits for its endpoint.
type ParkedEvent struct {
	ID, JobID                   uuid.UUID
	Status                      int16
	Topic, Key                  string
	Endpoint, Reason, LastError string
	Failures                    int32
	CreatedAt, ParkedAt         time.Time
}

// ParkedFilter chooses parked events; an empty field does not filter.
type ParkedFilter struct {
	Endpoint, Reason string
	Since            time.Time // parked at or after
	OrHeld           bool      // or held for their endpoint, whenever
	After            uuid.UUID // behind this id
}

// Two texts, one for each index, since a plan that fits both is a walk over the larger one: outbox_events_parked and
// outbox_events_parked_endpoint hold parked events only, in the order of the list. The row comparison is a condition that
// only the second can use.
const (
	parkedColumns = `
select e.id, e.job_id, e.status, e.topic, e.key, e.endpoint, e.parked_reason, e.last_error, e.failure_count, e.created_at,
       e.parked_at
  from @outbox_events e`
	parkedSQL   = parkedColumns + ` where e.parked_at is not null and e.id > $1 order by e.id limit $2`
	parkedAtSQL = parkedColumns + ` where e.parked_at is not null and e.endpoint = $3 and (e.endpoint, e.id) > ($3, $1) order by e.id limit $2`
)

// Parked reads up to limit parked events behind after, in the order of their ids: all, or those of one endpoint.
func (s *Store) Parked(ctx context.Context, pool *pgxpool.Pool, endpoint string, after uuid.UUID, limit int) (events []ParkedEvent, err error) {
	sql, args := s.sql.parked, []any{pgUUID(after), limit}
	if endpoint != "" {
		sql, args = s.sql.parkedAt, append(args, endpoint)
	}
	err = pinnedRead(ctx, pool, func(b *pgx.Batch) {
		b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
			events, err = pgx.CollectRows(rows, scanParked)
			return err
		})
	})
	return events, err
}

func scanParked(row pgx.CollectableRow) (e ParkedEvent, err error) {
	var job pgtype.UUID
	var status pgtype.Int2
	var topic, key, endpoint, lastError pgtype.Text
	err = row.Scan(&e.ID, &job, &status, &topic, &key, &endpoint, &e.Reason, &lastError, &e.Failures, &e.CreatedAt, &e.ParkedAt)
	e.JobID, e.Status, e.Topic, e.Key = job.Bytes, status.Int16, topic.String, key.String
	e.Endpoint, e.LastError = endpoint.String, lastError.String
	return e, err
}

// An event that comes back starts over: due now, with a fresh budget. Its last error stays as context.
const redriveEventSQL = `
with back as (
    update @outbox_events e
       set parked_at = null, parked_reason = null, endpoint = null, failure_count = 0, next_attempt_at = statement_timestamp()
     where e.id = $1 and e.parked_at is not null
    returning e.id
), operation as (
    insert into @operations (what, event_id, actor, reason) select 'redrive_event', id, $2, $3 from back
)
select (select count(*) from back), (select count(*) from @outbox_events where id = $1)`

// RedriveEvent brings one parked event back and tells whether it did, and whether there is such an event.
func (s *Store) RedriveEvent(ctx context.Context, q Querier, id uuid.UUID, by By) (done, found bool, err error) {
	var back, there int
	err = q.QueryRow(ctx, s.sql.redriveEvent, pgUUID(id), by.Actor, by.Reason).Scan(&back, &there)
	return back > 0, there > 0, err
}

// The same of every text that reads parked events: the filter, and where to go on.
const (
	parkedScope = ` e.parked_at is not null
       and (($5::boolean and e.parked_reason = 'disabled')
         or (($2::text is null or e.parked_reason = $2) and ($3::timestamptz is null or e.parked_at >= $3)))`
	ofAnyEndpoint = ` $1::text is null and e.id > $4 and`
	ofOneEndpoint = ` e.endpoint = $1::text and (e.endpoint, e.id) > ($1::text, $4) and`
)

// By id with SKIP LOCKED, so that two calls at once share the events, paced as redriveManySQL is. {endpoint} is one of two
// texts, since each has its own index.
const redriveEventsSQL = `
with chosen as materialized (
    select e.id
      from @outbox_events e
     where{endpoint}` + parkedScope + `
     order by e.id
     limit $6
       for update skip locked
), pace as materialized (
    select greatest(statement_timestamp(), (select max(p.paced_until) from @operations p
             where p.what = 'redrive_events' and p.paced_until > statement_timestamp()
               and p.endpoint is not distinct from $1 and $7::bigint > 0)) as start
), placed as materialized (
    select c.id, pace.start + (row_number() over (order by c.id) - 1) * $7::bigint * interval '1 microsecond' as due
      from chosen c cross join pace
), back as (
    update @outbox_events e
       set parked_at = null, parked_reason = null, endpoint = null, failure_count = 0, next_attempt_at = p.due
      from placed p where e.id = any(array[p.id])
    returning e.id
), operation as (
    insert into @operations (what, endpoint, actor, reason, affected, paced_until)
    select 'redrive_events', $1, $8, $9, count(*), case when $7::bigint > 0 then max(due) + $7::bigint * interval '1 microsecond' end
      from placed having count(*) > 0
)
select count(*), max(id::text)::uuid from back`

const parkedCountSQL = `
select count(*) from (select from @outbox_events e where{endpoint}` + parkedScope + ` limit $6) t`

// EventsRedriven is what one step did, and where the next goes on.
type EventsRedriven struct {
	Back, Left int
	Last       uuid.UUID
}

// RedriveEvents brings up to limit parked events back.
func (s *Store) RedriveEvents(ctx context.Context, q Querier, f ParkedFilter, limit int, every time.Duration, by By) (r EventsRedriven, err error) {
	redrive, count := s.sql.redriveEvents, s.sql.parkedCount
	if f.Endpoint != "" {
		redrive, count = s.sql.redriveEventsAt, s.sql.parkedCountAt
	}
	scope := []any{optional(f.Endpoint), optional(f.Reason), optionalTime(f.Since), pgUUID(f.After), f.OrHeld}
	if every > 0 {
		if _, err = q.Exec(ctx, s.sql.paceLock, "events "+f.Endpoint); err != nil {
			return r, err
		}
	}
	var last pgtype.UUID
	args := append(scope[:5:5], limit, micros(every), by.Actor, by.Reason)
	if err = q.QueryRow(ctx, redrive, args...).Scan(&r.Back, &last); err != nil {
		return r, err
	}
	r.Last = last.Bytes
	err = q.QueryRow(ctx, count, append(scope[:5:5], RemainingCap)...).Scan(&r.Left)
	return r, err
}
