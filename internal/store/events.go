package store

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const publishSQL = `
insert into @outbox_events (id, topic, key, body)
values (coalesce($1::uuid, (select (lpad(to_hex(t.us / 1000), 12, '0') || to_hex(28672 + (t.us % 1000) * 4096 / 1000) || $5)::uuid
                              from (select (extract(epoch from statement_timestamp()) * 1000000)::bigint as us) t)), $2, $3, $4)
returning id`

// Publish writes an event of the service's own. A nil id is made up.
func (s *Store) Publish(ctx context.Context, q Querier, id uuid.UUID, topic, key string, body []byte) (uuid.UUID, error) {
	given := pgUUID(id)
	given.Valid = id != uuid.Nil
	random := uuid.New()
	err := q.QueryRow(ctx, s.sql.publish, given, topic, key, body, idTail(0, random[:6])).Scan(&id)
	return id, err
}

// ClaimedEvent is one event that now belongs to the claiming relay. Topic and Key are empty for a job's event, Status is 0
// for a service's own.
type ClaimedEvent struct {
	ID, JobID  uuid.UUID
	Status     int16
	Topic, Key string
	Body       []byte
	CreatedAt  time.Time
	Due        Mark
	Failures   int32
}

// The claim walks outbox_events_due from a mark; see claimSQL for the mark and the shape. The end of the lease becomes
// next_attempt_at, which takes the row out of the way of other claims and brings it back by itself. A claim that ran out
// counts as a failure, so that an event which kills its relay shows.
//
// Bodies are up to 1 MiB, so a claim also ends where they add up to too much; what was locked for nothing is free again
// at the commit.
const claimEventsSQL = `
with due as materialized (
    select e.id, e.next_attempt_at, octet_length(e.body) as size
      from @outbox_events e
     where e.published_at is null and e.parked_at is null
       and (e.next_attempt_at, e.id) > ($1::timestamptz, $2::uuid) and e.next_attempt_at <= statement_timestamp()
     order by e.next_attempt_at, e.id
     limit $3
       for update skip locked
), fitting as materialized (
    select s.id, s.next_attempt_at
      from (select d.id, d.next_attempt_at, sum(d.size) over (order by d.next_attempt_at, d.id) - d.size as before from due d) s
     where s.before < $4
)
update @outbox_events e
   set claim_token = $5, locked_by = $6, next_attempt_at = statement_timestamp() + $7::bigint * interval '1 microsecond',
       failure_count = e.failure_count + (e.claim_token is not null)::int,
       last_error = case when e.claim_token is null then e.last_error else 'the relay that held it did not report back in time' end
  from fitting f
 where e.id = any(array[f.id])
returning e.id, e.job_id, e.status, e.topic, e.key, e.body, e.created_at, e.failure_count, f.next_attempt_at`

// ClaimEvents takes up to limit due events behind a mark, and no more once their bodies have reached maxBytes. They come in
// no order.
func (s *Store) ClaimEvents(ctx context.Context, pool *pgxpool.Pool, lease Lease, low Mark, limit, maxBytes int) ([]ClaimedEvent, error) {
	var events []ClaimedEvent
	err := pinned(ctx, pool, func(b *pgx.Batch) {
		b.Queue(s.sql.claimEvents, lowAt(low), pgUUID(low.ID), limit, maxBytes, pgUUID(lease.Token), lease.Worker, micros(lease.For)).
			Query(func(rows pgx.Rows) (err error) {
				events, err = pgx.CollectRows(rows, scanEvent)
				return err
			})
	})
	return events, err
}

func scanEvent(row pgx.CollectableRow) (ClaimedEvent, error) {
	var e ClaimedEvent
	var job pgtype.UUID
	var status pgtype.Int2
	var topic, key pgtype.Text
	err := row.Scan(&e.ID, &job, &status, &topic, &key, &e.Body, &e.CreatedAt, &e.Failures, &e.Due.At)
	e.JobID, e.Status, e.Topic, e.Key, e.Due.ID = job.Bytes, status.Int16, topic.String, key.String, e.ID
	return e, err
}

// lowAt is the time of a mark, or the beginning.
func lowAt(m Mark) pgtype.Timestamptz {
	if m.At.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: m.At, Valid: true}
}

// See renewSQL for SKIP LOCKED.
const renewEventsSQL = `
with mine as materialized (
    select e.id
      from unnest($1::uuid[], $2::uuid[]) as m(id, token)
     cross join lateral (
         select e.id from @outbox_events e where e.id = m.id and e.claim_token = m.token for update skip locked) e
)
update @outbox_events e
   set next_attempt_at = statement_timestamp() + $3::bigint * interval '1 microsecond'
  from mine where e.id = any(array[mine.id])
returning e.id, e.claim_token`

// RenewEvents prolongs claims by d from now and returns those for which that worked.
func (s *Store) RenewEvents(ctx context.Context, pool *pgxpool.Pool, claims Claims, d time.Duration) (Claims, error) {
	return s.fenced(ctx, pool, s.sql.renewEvents, claims, micros(d))
}

// EventFailed is a claim that ends with a failure, after which the event waits or is parked. Parked is the reason, or
// empty.
type EventFailed struct {
	ID, Token               uuid.UUID
	Delay                   time.Duration
	Error, Parked, Endpoint string
	Uncounted               bool // it was not sent this time
}

// EventReleased is a claim that is given back without a failure. A disabled endpoint parks the event until it is enabled;
// if it has been enabled meanwhile, the event is due after Delay like any other.
type EventReleased struct {
	ID, Token uuid.UUID
	Delay     time.Duration
	Disabled  EndpointKey // zero: none
}

// EventBatch is what one transaction records. Each id stands in it once.
type EventBatch struct {
	Published Claims
	Failed    []EventFailed
	Released  []EventReleased
}

// Fenced by the token and nothing else, as sentSQL is; the rows are locked in the order of the parameters, which is that of
// the ids.
const publishedSQL = `
update @outbox_events e
   set published_at = statement_timestamp(), claim_token = null, locked_by = null
  from unnest($1::uuid[], $2::uuid[]) as p(id, token)
 where e.id = any(array[p.id]) and e.claim_token = p.token
returning e.id`

const eventFailedSQL = `
update @outbox_events e
   set failure_count = e.failure_count + (not f.uncounted)::int, last_error = coalesce(f.error, e.last_error), claim_token = null, locked_by = null,
       next_attempt_at = statement_timestamp() + f.delay * interval '1 microsecond',
       parked_at = case when f.parked is not null then statement_timestamp() end, parked_reason = f.parked,
       endpoint = case when f.parked is not null then f.endpoint end
  from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::boolean[])
       as f(id, token, delay, error, parked, endpoint, uncounted)
 where e.id = any(array[f.id]) and e.claim_token = f.token
returning e.id`

// Parking for a disabled endpoint and enabling it exclude each other by the endpoint's row, which is locked here before
// the events' and is updated there before they are brought back. Without that an event could be parked just after
// everything that was missed had been brought back, and stay.
const eventReleasedSQL = `
with disabled as materialized (
    select w.name, w.target from @webhook_endpoints w
     where (w.name, w.target) in (select k.name, k.target from unnest($4::text[], $5::text[]) as k(name, target))
       and w.disabled_at is not null
     order by w.name, w.target for share
)
update @outbox_events e
   set claim_token = null, locked_by = null, next_attempt_at = statement_timestamp() + r.delay * interval '1 microsecond',
       parked_at = case when r.off is not null then statement_timestamp() end,
       parked_reason = case when r.off is not null then 'disabled' end, endpoint = r.off
  from (select r.id, r.token, r.delay, (select d.name from disabled d where d.name = r.endpoint and d.target = r.target) as off
          from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[]) as r(id, token, delay, endpoint, target) offset 0) r
 where e.id = any(array[r.id]) and e.claim_token = r.token
returning e.id`

// RecordEvents writes a batch in one transaction and returns the ids whose claims were still held.
func (s *Store) RecordEvents(ctx context.Context, pool *pgxpool.Pool, batch *EventBatch) ([]uuid.UUID, error) {
	slices.SortFunc(batch.Failed, func(a, b EventFailed) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	slices.SortFunc(batch.Released, func(a, b EventReleased) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	done := make([]uuid.UUID, 0, batch.Published.Len()+len(batch.Failed)+len(batch.Released))
	err := recording(ctx, pool, func(b *pgx.Batch) {
		if len(batch.Released) > 0 { // first: it locks endpoints, which come before events
			b.Queue(s.sql.eventReleased, releasedArgs(batch.Released)...).Query(collectIDs(&done))
		}
		if batch.Published.Len() > 0 {
			ids, tokens := batch.Published.sorted()
			b.Queue(s.sql.published, ids, tokens).Query(collectIDs(&done))
		}
		if len(batch.Failed) > 0 {
			b.Queue(s.sql.eventFailed, failedArgs(batch.Failed)...).Query(collectIDs(&done))
		}
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

func failedArgs(failed []EventFailed) []any {
	n := len(failed)
	ids, tokens, delays := make(uuidArray, n), make(uuidArray, n), make([]int64, n)
	uncounted := make([]bool, n)
	errs, parked, endpoints := make(textArray, n), make(textArray, n), make(textArray, n)
	for i, f := range failed {
		ids[i], tokens[i], delays[i] = pgUUID(f.ID), pgUUID(f.Token), micros(f.Delay)
		uncounted[i] = f.Uncounted
		errs[i], parked[i], endpoints[i] = optional(f.Error), optional(f.Parked), optional(f.Endpoint)
	}
	return []any{ids, tokens, delays, errs, parked, endpoints, uncounted}
}

func releasedArgs(released []EventReleased) []any {
	n := len(released)
	ids, tokens, delays := make(uuidArray, n), make(uuidArray, n), make([]int64, n)
	names, targets := make(textArray, n), make([]string, n)
	for i, r := range released {
		ids[i], tokens[i], delays[i] = pgUUID(r.ID), pgUUID(r.Token), micros(r.Delay)
		names[i], targets[i] = optional(r.Disabled.Name), r.Disabled.Target
	}
	return []any{ids, tokens, delays, names, targets}
}
