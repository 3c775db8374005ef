package store

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Sent is a claim whose delivery was accepted.
type Sent struct {
	ID, Token  uuid.UUID
	ProviderID string
	Place      Place // where the claim left its row; not Valid: unknown
}

// Ended is a claim that ends its job in FAILED or DEAD_LETTERED. Class is empty if there was no attempt to record, as
// for a job that expired before its call; the attempt that the claim counted is then refunded.
type Ended struct {
	ID, Token            uuid.UUID
	Status               int16
	Reason, Error, Class string
	StartedAgo, Lasted   time.Duration
}

// Retried is a claim that goes back to wait after an attempt that counts.
type Retried struct {
	ID, Token          uuid.UUID
	Delay              time.Duration
	Error, Class       string
	StartedAgo, Lasted time.Duration
}

// Released is a claim that is handed back with the attempt refunded, due now. Error is what its provider said, if that is
// why; without, the last error stays.
type Released struct {
	ID, Token uuid.UUID
	Error     string
}

// Batch is what one transaction records. Each id stands in it once.
type Batch struct {
	Sent     []Sent
	Ended    []Ended
	Retried  []Retried
	Released []Released
	// Worker is kept with the attempts; Events writes an event with each outcome.
	Worker string
	Events bool
}

// The whole transition is one statement: the queue row goes by id and token, and what is written is made of what it
// returned. Nothing but id and token may be named in its condition: 'and status = 1' would let the planner walk the
// partial index of claims in progress, at 24 ms a job under a held snapshot; a CHECK makes a live token imply
// PROCESSING. Rows are deleted in the order of the parameters, which is that of the ids.
//
// A row is looked for where its claim left it (foundByPlace), and by id if that is unknown. The id is compared all the same,
// in a form that no index serves, since another row may have come to the place. One that moved is not found so, and looked
// for by id in a statement of its own.
const sentSQL = `
with clock as materialized (
    select to_char(statement_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as text
), gone as (
    delete from @notification_queue q
     using unnest($1::uuid[], $2::uuid[], $3::text[], $5::tid[]) as f(id, token, provider_id, place)
     where {found} and q.claim_token = f.token
    returning q.id, q.attempt_count, q.max_attempts, q.reconciliation_granted, q.redrive_count,
              q.last_redriven_at, q.first_attempt_at, q.tenant, q.last_error, f.provider_id
), outcome as (
    insert into @notification_outcomes (id, tenant, status, finished_at, attempt_count, max_attempts, reconciliation_granted,
                                        redrive_count, last_redriven_at, first_attempt_at, last_error, provider_id)
    select id, tenant, 2, statement_timestamp(), attempt_count, max_attempts, reconciliation_granted,
           redrive_count, last_redriven_at, first_attempt_at, last_error, provider_id
      from gone
), event as (
    insert into @outbox_events (id, job_id, status, redrive_count, body)
    select g.event, g.id, 2, g.redrive_count,
           @event_body(g.event, g.id, 2::smallint, g.attempt_count, clock.text)
      from (select @event_id(id, 2::smallint, redrive_count) as event, * from gone offset 0) g cross join clock where $4
)
select id from gone`

const (
	foundByPlace = `q.ctid = f.place and q.id is not distinct from f.id`
	foundByID    = `q.id = any(array[f.id])`
)

// The same for the other ends, with the attempt beside the outcome.
const endedSQL = `
with clock as materialized (
    select to_char(statement_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as text
), gone as (
    delete from @notification_queue q
     using unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])
           as f(id, token, status, reason, error, class, started_ago, lasted)
     where q.id = any(array[f.id]) and q.claim_token = f.token
    returning q.id, q.attempt_count - (f.class is null)::int as attempt_count, q.max_attempts, q.reconciliation_granted,
              q.redrive_count, q.last_redriven_at, q.first_attempt_at, q.tenant, coalesce(f.error, q.last_error) as last_error,
              f.status, f.reason, f.error, f.class, f.started_ago, f.lasted
), outcome as (
    insert into @notification_outcomes (id, tenant, status, finished_at, attempt_count, max_attempts, reconciliation_granted,
                                        redrive_count, last_redriven_at, first_attempt_at, reason, last_error)
    select id, tenant, status, statement_timestamp(), attempt_count, max_attempts, reconciliation_granted,
           redrive_count, last_redriven_at, first_attempt_at, reason, last_error
      from gone
), attempt as (
    insert into @notification_attempts (id, redrive_count, number, started_at, ended_at, class, error, worker)
    select id, redrive_count, attempt_count, statement_timestamp() - started_ago * interval '1 microsecond',
           statement_timestamp() - (started_ago - lasted) * interval '1 microsecond', class, error, $9
      from gone where class is not null
), slot as (
    delete from @rate_limit_reservations r using gone where r.job_id = any(array[gone.id]) and r.booked and gone.class is null
), event as (
    insert into @outbox_events (id, job_id, status, redrive_count, body)
    select g.event, g.id, g.status, g.redrive_count,
           @event_body(g.event, g.id, g.status, g.attempt_count::smallint, clock.text)
      from (select @event_id(id, status, redrive_count) as event, * from gone offset 0) g cross join clock where $10
)
select id from gone`

// The row goes back to wait and its attempt is written, in one statement. How long it waits is the caller's business; from
// when on is the database's.
const retrySQL = `
with back as (
    update @notification_queue q
       set status = 0, next_attempt_at = statement_timestamp() + r.delay * interval '1 microsecond', last_error = r.error,
           claim_token = null, locked_by = null, locked_at = null, leased_until = null, started_at = null,
           updated_at = statement_timestamp()
      from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
           as r(id, token, delay, error, class, started_ago, lasted)
     where q.id = any(array[r.id]) and q.claim_token = r.token
    returning q.id, q.redrive_count, q.attempt_count, r.class, r.error, r.started_ago, r.lasted
), attempt as (
    insert into @notification_attempts (id, redrive_count, number, started_at, ended_at, class, error, worker)
    select id, redrive_count, attempt_count, statement_timestamp() - started_ago * interval '1 microsecond',
           statement_timestamp() - (started_ago - lasted) * interval '1 microsecond', class, error, $8
      from back
)
select id from back`

// The attempt is refunded and leaves no trace but, if the provider said why, its error.
const releaseSQL = `
update @notification_queue q
   set status = 0, next_attempt_at = statement_timestamp() + $3::bigint * interval '1 microsecond', attempt_count = q.attempt_count - 1,
       last_error = coalesce(r.error, q.last_error),
       first_attempt_at = case when q.attempt_count = 1 and q.redrive_count = 0 then null else q.first_attempt_at end,
       claim_token = null, locked_by = null, locked_at = null, leased_until = null, started_at = null,
       updated_at = statement_timestamp()
  from unnest($1::uuid[], $2::uuid[], $4::text[]) as r(id, token, error)
 where q.id = any(array[r.id]) and q.claim_token = r.token
returning q.id`

// Record writes a batch in one transaction and returns the ids whose claims were still held. The others lost theirs:
// nothing of them was written. Rows that are not where their claims left them take a second transaction; see InPart.
func (s *Store) Record(ctx context.Context, pool *pgxpool.Pool, batch *Batch) ([]uuid.UUID, error) {
	slices.SortFunc(batch.Sent, func(a, b Sent) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	slices.SortFunc(batch.Ended, func(a, b Ended) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	slices.SortFunc(batch.Released, func(a, b Released) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	slices.SortFunc(batch.Retried, func(a, b Retried) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	placed, unplaced := byPlace(batch.Sent)
	found, done := make([]uuid.UUID, 0, len(placed)), make([]uuid.UUID, 0, batch.Len())
	err := recording(ctx, pool, func(b *pgx.Batch) {
		if len(placed) > 0 {
			b.Queue(s.sql.sent, sentArgs(placed, batch.Events)...).Query(collectIDs(&found))
		}
		if len(unplaced) > 0 {
			b.Queue(s.sql.sentByID, sentArgs(unplaced, batch.Events)...).Query(collectIDs(&done))
		}
		if len(batch.Ended) > 0 {
			b.Queue(s.sql.ended, endedArgs(batch)...).Query(collectIDs(&done))
		}
		if len(batch.Retried) > 0 {
			b.Queue(s.sql.retry, retryArgs(batch)...).Query(collectIDs(&done))
		}
		if len(batch.Released) > 0 {
			b.Queue(s.sql.release, releaseArgs(batch.Released)...).Query(collectIDs(&done))
		}
	})
	if err != nil {
		return nil, err
	}
	done = append(done, found...)
	if moved := without(placed, found); len(moved) > 0 {
		err = recording(ctx, pool, func(b *pgx.Batch) {
			b.Queue(s.sql.sentByID, sentArgs(moved, batch.Events)...).Query(collectIDs(&done))
		})
		if err != nil {
			return nil, &partError{err}
		}
	}
	return done, nil
}

// partError tells that a part of the batch was written before the error.
type partError struct{ error }

func (e *partError) Unwrap() error { return e.error }

// InPart tells whether a part of what failed may have been written: the connection broke, so nobody knows, or it is known.
func InPart(err error) bool {
	var part *partError
	return errors.As(err, &part) || Code(err) == ""
}

// byPlace parts those whose place is known from the others.
func byPlace(all []Sent) (placed, unplaced []Sent) {
	for _, f := range all {
		if f.Place.Valid {
			placed = append(placed, f)
		} else {
			unplaced = append(unplaced, f)
		}
	}
	return placed, unplaced
}

// without leaves out what was done.
func without(all []Sent, done []uuid.UUID) (left []Sent) {
	if len(all) == len(done) {
		return nil
	}
	ids := make(map[uuid.UUID]struct{}, len(done))
	for _, id := range done {
		ids[id] = struct{}{}
	}
	for _, f := range all {
		if _, ok := ids[f.ID]; !ok {
			left = append(left, f)
		}
	}
	return left
}

// Len is the number of jobs in the batch.
func (b *Batch) Len() int { return len(b.Sent) + len(b.Ended) + len(b.Retried) + len(b.Released) }

func sentArgs(all []Sent, events bool) []any {
	n := len(all)
	ids, tokens, providerIDs, places := make(uuidArray, n), make(uuidArray, n), make(textArray, n), make(placeArray, n)
	for i := range all {
		f := &all[i]
		ids[i], tokens[i], providerIDs[i], places[i] = pgUUID(f.ID), pgUUID(f.Token), optional(f.ProviderID), f.Place
	}
	return []any{ids, tokens, providerIDs, events, places}
}

func endedArgs(batch *Batch) []any {
	n := len(batch.Ended)
	ids, tokens, states := make(uuidArray, n), make(uuidArray, n), make([]int16, n)
	reasons, errs, classes := make([]string, n), make(textArray, n), make(textArray, n)
	startedAgo, lasted := make([]int64, n), make([]int64, n)
	for i := range batch.Ended {
		f := &batch.Ended[i]
		ids[i], tokens[i], states[i] = pgUUID(f.ID), pgUUID(f.Token), f.Status
		reasons[i], errs[i], classes[i] = f.Reason, optional(f.Error), optional(f.Class)
		startedAgo[i], lasted[i] = micros(f.StartedAgo), micros(f.Lasted)
	}
	return []any{ids, tokens, states, reasons, errs, classes, startedAgo, lasted, batch.Worker, batch.Events}
}

func retryArgs(batch *Batch) []any {
	n := len(batch.Retried)
	ids, tokens, delays := make(uuidArray, n), make(uuidArray, n), make([]int64, n)
	errs, classes := make(textArray, n), make([]string, n)
	startedAgo, lasted := make([]int64, n), make([]int64, n)
	for i, r := range batch.Retried {
		ids[i], tokens[i], delays[i] = pgUUID(r.ID), pgUUID(r.Token), micros(r.Delay)
		errs[i], classes[i] = optional(r.Error), r.Class
		startedAgo[i], lasted[i] = micros(r.StartedAgo), micros(r.Lasted)
	}
	return []any{ids, tokens, delays, errs, classes, startedAgo, lasted, batch.Worker}
}

func releaseArgs(released []Released) []any {
	n := len(released)
	ids, tokens, errs := make(uuidArray, n), make(uuidArray, n), make(textArray, n)
	for i, r := range released {
		ids[i], tokens[i], errs[i] = pgUUID(r.ID), pgUUID(r.Token), optional(r.Error)
	}
	return []any{ids, tokens, micros(0), errs}
}
