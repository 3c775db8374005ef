package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// By says who asked and why.
type By struct{ Actor, Reason string }

// One conditional statement. If a claim holds the row, this waits for it, checks the condition again, finds PROCESSING
// and changes nothing: a job is either cancelled and never claimed, or claimed and not cancelled. 'q.status + 0' proves no
// partial index: one of them was walked from end to end for the id that stands last in it.
const cancelSQL = `
with gone as (
    delete from @notification_queue q
     where q.id = $1 and q.status + 0 in ({states}) and ($2::text is null or q.tenant = $2)
    returning q.*
), outcome as (
    insert into @notification_outcomes (id, tenant, status, finished_at, attempt_count, max_attempts, reconciliation_granted,
                                        redrive_count, last_redriven_at, first_attempt_at, reason, last_error)
    select id, tenant, 5, statement_timestamp(), attempt_count, max_attempts, reconciliation_granted,
           redrive_count, last_redriven_at, first_attempt_at, nullif($4, ''), last_error
      from gone
), slot as (
    delete from @rate_limit_reservations r using gone where r.job_id = any(array[gone.id]) and r.booked
), operation as (
    insert into @operations (what, tenant, job_id, actor, reason)
    select 'cancel', tenant, id, $3, $4 from gone
)
select count(*) from gone`

// Cancel ends a pending job and tells whether it did.
func (s *Store) Cancel(ctx context.Context, q Querier, id uuid.UUID, tenant *string, by By) (bool, error) {
	return s.changed(ctx, q, s.sql.cancel, pgUUID(id), tenant, by.Actor, by.Reason)
}

// Redriving and erasing a finished job exclude each other: both lock its outcome and then its notification, in this
// order, and look at the latest version of both.
//
// A redriven job starts over: due now, with the budget it was asked for and a fresh grant. Its last error stays as
// context. One that has expired would end at once and one that was erased has nothing left to send. redrive_count ends
// at 1,000, which is what an event's id has room for.
const redriveSQL = `
with mine as materialized (
    select o.id, n.tenant, n.channel, n.priority, n.expires_at, n.max_attempts, n.on_ambiguous, o.redrive_count,
           o.first_attempt_at, o.last_error
      from @notification_outcomes o
      join @notifications n on n.id = any(array[o.id])
     where o.id = $1 and o.status + 0 in ({states}) and ($2::text is null or o.tenant = $2)
       and o.reason is distinct from 'expired' and (n.expires_at is null or n.expires_at > statement_timestamp())
       and n.erased_at is null and o.redrive_count < 1000
       for update of o, n
), gone as (
    delete from @notification_outcomes o using mine where o.id = any(array[mine.id]) returning mine.*
), back as (
    insert into @notification_queue (id, tenant, channel, priority, next_attempt_at, expires_at, max_attempts, on_ambiguous,
                                     redrive_count, last_redriven_at, first_attempt_at, last_error, updated_at)
    select id, tenant, channel, priority, statement_timestamp(), expires_at, max_attempts, on_ambiguous,
           redrive_count + 1, statement_timestamp(), first_attempt_at, last_error, statement_timestamp()
      from gone
), operation as (
    insert into @operations (what, tenant, job_id, actor, reason)
    select 'redrive', tenant, id, $3, $4 from gone
)
select count(*) from gone`

// Redrive sends one ended job back to the queue and tells whether it did.
func (s *Store) Redrive(ctx context.Context, q Querier, id uuid.UUID, tenant *string, by By) (bool, error) {
	return s.changed(ctx, q, s.sql.redrive, pgUUID(id), tenant, by.Actor, by.Reason)
}

func (s *Store) changed(ctx context.Context, q Querier, sql string, args ...any) (bool, error) {
	var n int
	err := q.QueryRow(ctx, sql, args...).Scan(&n)
	return n > 0, err
}

// Bulk chooses ended jobs.
type Bulk struct {
	Status       int16
	Tenant       *string
	RecipientKey *string
	Since        time.Time // ended at or after; zero: any
	Limit        int
	Every        time.Duration // between two due times; 0: all due now
}

// Oldest first, by id, with SKIP LOCKED: two calls at once share the jobs instead of redriving one twice, and the
// condition is checked again on the locked row. A paced call begins where the last paced one of the same scope ends, so
// that calling again and again keeps the pace. The status is a range of one value, and part of the order, so that only the
// index that begins with it has that order: SENT, of which there may be millions, is never passed by. See pinSQL for the rest.
const redriveManySQL = `
with chosen as materialized (
    select o.id, o.tenant, o.redrive_count, o.first_attempt_at, o.last_error
      from @notification_outcomes o
      join @notifications n on n.id = any(array[o.id])
     where o.status between $1 and $1 and o.status in ({states}) and o.status <> 2
       and ($2::text is null or o.tenant = $2) and ($3::text is null or n.recipient_key = $3)
       and ($4::timestamptz is null or o.finished_at >= $4)
       and o.reason is distinct from 'expired' and (n.expires_at is null or n.expires_at > statement_timestamp())
       and n.erased_at is null and o.redrive_count < 1000
     order by o.status, o.id
     limit $5
       for update of o, n skip locked
), pace as materialized (
    select greatest(statement_timestamp(), (select max(p.paced_until) from @operations p
             where p.what = 'redrive_many' and p.paced_until > statement_timestamp() and p.tenant is not distinct from $2 and $6::bigint > 0)) as start
), placed as materialized (
    select c.*, pace.start + (row_number() over (order by c.id) - 1) * $6::bigint * interval '1 microsecond' as due
      from chosen c cross join pace
), gone as (
    delete from @notification_outcomes o using placed where o.id = any(array[placed.id]) returning o.id
), back as (
    insert into @notification_queue (id, tenant, channel, priority, next_attempt_at, expires_at, max_attempts, on_ambiguous,
                                     redrive_count, last_redriven_at, first_attempt_at, last_error, updated_at)
    select n.id, n.tenant, n.channel, n.priority, p.due, n.expires_at, n.max_attempts, n.on_ambiguous,
           p.redrive_count + 1, statement_timestamp(), p.first_attempt_at, p.last_error, statement_timestamp()
      from placed p
      join gone on gone.id = p.id
      join @notifications n on n.id = any(array[p.id])
), operation as (
    insert into @operations (what, tenant, actor, reason, affected, paced_until)
    select 'redrive_many', $2, $7, $8, count(*), case when $6::bigint > 0 then max(due) + $6::bigint * interval '1 microsecond' end
      from placed having count(*) > 0
)
select count(*) from gone`

const redrivableSQL = `
select count(*) from (
select
  from @notification_outcomes o
  join @notifications n on n.id = any(array[o.id])
 where o.status between $1 and $1 and o.status in ({states}) and o.status <> 2
   and ($2::text is null or o.tenant = $2) and ($3::text is null or n.recipient_key = $3)
   and ($4::timestamptz is null or o.finished_at >= $4)
   and o.reason is distinct from 'expired' and (n.expires_at is null or n.expires_at > statement_timestamp())
   and n.erased_at is null and o.redrive_count < 1000
 order by o.status, o.id
 limit $5) t`

// Paced calls of one scope take turns, or two at once would begin at the same moment and double the pace.
const paceLockSQL = `select pg_advisory_xact_lock(hashtextextended('@ pace ' || coalesce($1::text, '*'), 0))`

// RemainingCap is how far the jobs that are left are counted: an operator who repeats the call wants to know whether, not
// to pay for the whole dead-letter queue each time.
const RemainingCap = 100_000

// RedriveMany sends ended jobs back to the queue, oldest first, and tells how many, and how many are left.
func (s *Store) RedriveMany(ctx context.Context, q Querier, bulk Bulk, by By) (retried, remaining int, err error) {
	scope := []any{bulk.Status, bulk.Tenant, bulk.RecipientKey, optionalTime(bulk.Since)}
	args := append(scope[:4:4], bulk.Limit, micros(bulk.Every), by.Actor, by.Reason)
	if bulk.Every > 0 {
		if _, err = q.Exec(ctx, s.sql.paceLock, bulk.Tenant); err != nil {
			return 0, 0, err
		}
	}
	if err = q.QueryRow(ctx, s.sql.redriveMany, args...).Scan(&retried); err != nil {
		return 0, 0, err
	}
	err = q.QueryRow(ctx, s.sql.redrivable, append(scope[:4:4], RemainingCap)...).Scan(&remaining)
	return retried, remaining, err
}

const operationSQL = `
insert into @operations (what, tenant, channel, actor, reason, affected) values ($1, $2, $3, $4, $5, $6)`

const pauseSQL = `
insert into @channel_states as c (channel, paused_at) values ($1, statement_timestamp())
on conflict (channel) do update set paused_at = excluded.paused_at where c.paused_at is null`

const resumeSQL = `
update @channel_states set paused_at = null where channel = $1 and paused_at is not null`

// SetPaused pauses or resumes a channel. Doing either twice changes nothing, but is recorded.
func (s *Store) SetPaused(ctx context.Context, q Querier, channel string, paused bool, by By) error {
	sql, what := s.sql.resume, "resume"
	if paused {
		sql, what = s.sql.pause, "pause"
	}
	if _, err := q.Exec(ctx, sql, channel); err != nil {
		return err
	}
	_, err := q.Exec(ctx, s.sql.operation, what, nil, channel, by.Actor, by.Reason, 1)
	return err
}

// Erasing goes in bounded batches: first the waiting jobs are cancelled, then everything finished loses what is
// personal. Both walk notifications_recipient_key, as redriveManySQL walks its index. The request's fingerprint goes too: a hash of a short recipient can
// be guessed, and so can that in a reservation. Finished jobs are locked in a statement before the one that erases: the snapshot of a single one could
// precede the lock, and miss that a redrive brought the job back.
const eraseLiveSQL = `
with mine as materialized (
    select q.id
      from @notifications n
      join @notification_queue q on q.id = any(array[n.id])
     where n.recipient_key between $1 and $1 and n.recipient_key <> '' and ($2::text is null or n.tenant = $2) and n.erased_at is null
       and q.status + 0 in ({states})
     order by n.recipient_key, n.id
     limit $3
       for update of q skip locked
), gone as (
    delete from @notification_queue q using mine where q.id = any(array[mine.id])
    returning q.id, q.tenant, q.attempt_count, q.max_attempts, q.reconciliation_granted, q.redrive_count, q.last_redriven_at, q.first_attempt_at
), outcome as (
    insert into @notification_outcomes (id, tenant, status, finished_at, attempt_count, max_attempts, reconciliation_granted,
                                        redrive_count, last_redriven_at, first_attempt_at, reason)
    select id, tenant, 5, statement_timestamp(), attempt_count, max_attempts, reconciliation_granted,
           redrive_count, last_redriven_at, first_attempt_at, 'erased'
      from gone
), slot as (
    delete from @rate_limit_reservations r using gone where r.job_id = any(array[gone.id]) and r.booked
)
select count(*) from gone`

const lockFinishedSQL = `
select o.id
  from @notifications n
  join @notification_outcomes o on o.id = any(array[n.id])
 where n.recipient_key between $1 and $1 and n.recipient_key <> '' and ($2::text is null or n.tenant = $2) and n.erased_at is null
 order by n.recipient_key, n.id
 limit $3
   for update of o, n skip locked`

const eraseFinishedSQL = `
with mine as materialized (
    select o.id from @notification_outcomes o where o.id = any($1::uuid[])
), outcome as (
    update @notification_outcomes o set last_error = null, provider_id = null from mine where o.id = any(array[mine.id])
), attempt as (
    update @notification_attempts a set error = null from mine where a.id = any(array[mine.id])
), slot as (
    delete from @rate_limit_reservations r using mine where r.job_id = any(array[mine.id])
), erased as (
    update @notifications n
       set recipient = '', recipient_key = '', payload = 'null', request_fingerprint = '', trace_context = null,
           erased_at = statement_timestamp()
      from mine where n.id = any(array[mine.id])
    returning n.id
)
select count(*) from erased`

// Jobs that ended after the last batch count too: they are not erased.
const eraseHeldSQL = `
select count(*)
  from @notifications n
 where n.recipient_key = $1 and n.recipient_key <> '' and ($2::text is null or n.tenant = $2) and n.erased_at is null`

// EraseBatch erases up to limit jobs of each kind and returns how many live ones it cancelled and how many it erased.
func (s *Store) EraseBatch(ctx context.Context, q Querier, recipientKey string, tenant *string, limit int) (cancelled, erased int, err error) {
	if err = q.QueryRow(ctx, s.sql.eraseLive, recipientKey, tenant, limit).Scan(&cancelled); err != nil {
		return 0, 0, err
	}
	rows, err := q.Query(ctx, s.sql.lockFinished, recipientKey, tenant, limit)
	if err != nil {
		return 0, 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
	if err != nil {
		return 0, 0, err
	}
	err = q.QueryRow(ctx, s.sql.eraseFinished, ids).Scan(&erased)
	return cancelled, erased, err
}

// EraseEnd counts the recipient's jobs that are not erased, which are those in a worker's hands, and records the
// operation.
func (s *Store) EraseEnd(ctx context.Context, q Querier, recipientKey string, tenant *string, erased int) (held int, err error) {
	if err = q.QueryRow(ctx, s.sql.eraseHeld, recipientKey, tenant).Scan(&held); err != nil {
		return 0, err
	}
	_, err = q.Exec(ctx, s.sql.operation, "erase", tenant, nil, "", "", erased)
	return held, err
}

var _ Querier = pgx.Tx(nil)
