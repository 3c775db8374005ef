package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// One guarded statement on the database's clock, which any worker may run for any channel: all it needs is in the row.
// An expired claim was counted and may have reached the provider. So: a job that must not be repeated and whose call
// had begun is parked; one with attempts left waits again, due now; one without gets a single attempt more, since
// resending under the same key either finds it delivered or delivers it; and one that had that too is dead-lettered.
// A history that has the attempt or the event already, whoever wrote it, must not keep the other claims from recovering.
// SKIP LOCKED, so that workers recovering at the same time share the work, and one that is just being recorded or
// renewed is left to that.
const recoverSQL = `
with clock as materialized (
    select to_char(statement_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as text
), stale as materialized (
    select q.id, q.redrive_count, q.attempt_count, q.locked_by, q.locked_at,
           case when q.on_ambiguous = 1 and q.started_at is not null then 'ambiguous'
                when q.attempt_count < q.max_attempts or not q.reconciliation_granted then null
                else 'lease_expired' end as reason
      from @notification_queue q
     where q.status = 1 and q.leased_until < statement_timestamp()
     order by q.id
     limit $1
       for update skip locked
), attempt as (
    insert into @notification_attempts (id, redrive_count, number, started_at, ended_at, class, error, worker)
    select id, redrive_count, attempt_count, least(locked_at, statement_timestamp()), statement_timestamp(), 'lease_expired',
           'the claim expired before an outcome was recorded', locked_by
      from stale
    on conflict do nothing
), back as (
    update @notification_queue q
       set status = 0, next_attempt_at = statement_timestamp(),
           max_attempts = q.max_attempts + (q.attempt_count >= q.max_attempts)::int,
           reconciliation_granted = q.reconciliation_granted or q.attempt_count >= q.max_attempts,
           last_error = 'the claim expired before an outcome was recorded',
           claim_token = null, locked_by = null, locked_at = null, leased_until = null, started_at = null,
           updated_at = statement_timestamp()
      from stale where q.id = any(array[stale.id]) and stale.reason is null
    returning q.id
), gone as (
    delete from @notification_queue q
     using stale where q.id = any(array[stale.id]) and stale.reason is not null
    returning q.id, q.attempt_count, q.max_attempts, q.reconciliation_granted, q.redrive_count, q.last_redriven_at,
              q.first_attempt_at, q.tenant, stale.reason
), outcome as (
    insert into @notification_outcomes (id, tenant, status, finished_at, attempt_count, max_attempts, reconciliation_granted,
                                        redrive_count, last_redriven_at, first_attempt_at, reason, last_error)
    select id, tenant, 4, statement_timestamp(), attempt_count, max_attempts, reconciliation_granted,
           redrive_count, last_redriven_at, first_attempt_at, reason, 'the claim expired before an outcome was recorded'
      from gone
), event as (
    insert into @outbox_events (id, job_id, status, redrive_count, body)
    select g.event, g.id, 4, g.redrive_count,
           @event_body(g.event, g.id, 4::smallint, g.attempt_count, clock.text)
      from (select @event_id(id, 4::smallint, redrive_count) as event, * from gone offset 0) g cross join clock where $2
    on conflict do nothing
)
select id, 0::smallint, '' from back
union all
select id, attempt_count, reason from gone`

// Recovered are the claims that had expired.
type Recovered struct {
	Requeued     []uuid.UUID
	DeadLettered []DeadLetter
}

// DeadLetter is a job that recovery ended.
type DeadLetter struct {
	ID      uuid.UUID
	Attempt int16
	Reason  string
}

// Recover ends up to limit expired claims, whoever held them.
func (s *Store) Recover(ctx context.Context, pool *pgxpool.Pool, limit int, events bool) (Recovered, error) {
	var r Recovered
	err := pinned(ctx, pool, func(b *pgx.Batch) {
		b.Queue(s.sql.recover, limit, events).Query(func(rows pgx.Rows) error {
			defer rows.Close()
			for rows.Next() {
				var d DeadLetter
				if err := rows.Scan(&d.ID, &d.Attempt, &d.Reason); err != nil {
					return err
				}
				if d.Reason == "" {
					r.Requeued = append(r.Requeued, d.ID)
				} else {
					r.DeadLettered = append(r.DeadLettered, d)
				}
			}
			return rows.Err()
		})
	})
	if err != nil {
		return Recovered{}, err
	}
	return r, nil
}

// A job whose time is over ends where it waits, whatever its channel. The index holds only jobs that can expire.
const expireSQL = `
with clock as materialized (
    select to_char(statement_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as text
), over as materialized (
    select q.id
      from @notification_queue q
     where q.status = 0 and q.expires_at is not null and q.expires_at <= statement_timestamp()
     order by q.expires_at
     limit $1
       for update skip locked
), gone as (
    delete from @notification_queue q
     using over where q.id = any(array[over.id])
    returning q.id, q.attempt_count, q.max_attempts, q.reconciliation_granted, q.redrive_count, q.last_redriven_at,
              q.first_attempt_at, q.tenant, q.last_error
), outcome as (
    insert into @notification_outcomes (id, tenant, status, finished_at, attempt_count, max_attempts, reconciliation_granted,
                                        redrive_count, last_redriven_at, first_attempt_at, reason, last_error)
    select id, tenant, 3, statement_timestamp(), attempt_count, max_attempts, reconciliation_granted,
           redrive_count, last_redriven_at, first_attempt_at, 'expired', last_error
      from gone
), slot as (
    delete from @rate_limit_reservations r using gone where r.job_id = any(array[gone.id]) and r.booked
), event as (
    insert into @outbox_events (id, job_id, status, redrive_count, body)
    select g.event, g.id, 3, g.redrive_count,
           @event_body(g.event, g.id, 3::smallint, g.attempt_count, clock.text)
      from (select @event_id(id, 3::smallint, redrive_count) as event, * from gone offset 0) g cross join clock where $2
    on conflict do nothing
)
select id from gone`

// Expire ends up to limit waiting jobs whose time is over.
func (s *Store) Expire(ctx context.Context, pool *pgxpool.Pool, limit int, events bool) ([]uuid.UUID, error) {
	var ids []uuid.UUID
	err := pinned(ctx, pool, func(b *pgx.Batch) {
		b.Queue(s.sql.expire, limit, events).Query(collectIDs(&ids))
	})
	return ids, err
}
