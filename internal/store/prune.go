package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pruned is what one bounded step did.
type Pruned struct {
	Read, Deleted int
	Last          uuid.UUID // where to go on
}

// Ids are times: a job that finished before the cutoff was created before it, so walking the primary key up to the
// cutoff's id finds them all without an index on finished_at, which every job would pay for. What is kept on the way
// are jobs that were scheduled long ahead. The id bound is made of the cutoff's milliseconds.
const pruneJobsSQL = `
with walk as materialized (
    select o.id, o.finished_at < statement_timestamp() - $2::bigint * interval '1 microsecond' as old
      from @notification_outcomes o
     where o.id > $1
       and o.id < (lpad(to_hex(((extract(epoch from statement_timestamp()) * 1000000)::bigint - $2::bigint) / 1000), 12, '0') || repeat('0', 20))::uuid
     order by o.id
     limit $3
), mine as materialized (
    select o.id from walk join @notification_outcomes o on o.id = any(array[walk.id])
     where walk.old and o.finished_at < statement_timestamp() - $2::bigint * interval '1 microsecond'
       for update of o skip locked
), outcome as (
    delete from @notification_outcomes o using mine where o.id = any(array[mine.id]) returning o.id
), attempt as (
    delete from @notification_attempts a using mine where a.id = any(array[mine.id])
), asked as (
    delete from @notifications n using mine where n.id = any(array[mine.id])
)
select (select count(*) from walk), (select count(*) from outcome), (select max(id::text)::uuid from walk)`

// PruneJobs deletes jobs that finished longer than keep ago, among at most limit that stand behind after.
func (s *Store) PruneJobs(ctx context.Context, pool *pgxpool.Pool, after uuid.UUID, keep time.Duration, limit int) (Pruned, error) {
	return s.prune(ctx, pool, s.sql.pruneJobs, after, keep, limit)
}

const pruneEventsSQL = `
with walk as materialized (
    select e.id, e.published_at < statement_timestamp() - $2::bigint * interval '1 microsecond' as old
      from @outbox_events e
     where e.id > $1
       and e.id < (lpad(to_hex(((extract(epoch from statement_timestamp()) * 1000000)::bigint - $2::bigint) / 1000), 12, '0') || repeat('0', 20))::uuid
     order by e.id
     limit $3
), gone as (
    delete from @outbox_events e
     using (select e.id from walk join @outbox_events e on e.id = any(array[walk.id]) where walk.old for update of e skip locked) mine
     where e.id = any(array[mine.id])
    returning e.id
)
select (select count(*) from walk), (select count(*) from gone), (select max(id::text)::uuid from walk)`

// PruneEvents deletes events that were published longer than keep ago; one that was not stays, whatever its age.
func (s *Store) PruneEvents(ctx context.Context, pool *pgxpool.Pool, after uuid.UUID, keep time.Duration, limit int) (Pruned, error) {
	return s.prune(ctx, pool, s.sql.pruneEvents, after, keep, limit)
}

// A service may give its own events any ids, so they are found by when they were published, from where the last step was.
const pruneOwnEventsSQL = `
with mine as materialized (
    select e.id, e.published_at from @outbox_events e
     where e.topic is not null and e.published_at >= $1::timestamptz
       and e.published_at < statement_timestamp() - $2::bigint * interval '1 microsecond'
     order by e.published_at limit $3 for update skip locked
), gone as (
    delete from @outbox_events e using mine where e.id = any(array[mine.id]) returning e.id
)
select (select count(*) from gone), (select max(published_at) from mine)`

// PruneOwnEvents is PruneEvents for the events of a service's own. from is where to start, and last where to go on.
func (s *Store) PruneOwnEvents(ctx context.Context, pool *pgxpool.Pool, from time.Time, keep time.Duration, limit int) (deleted int, last time.Time, err error) {
	err = pinned(ctx, pool, func(b *pgx.Batch) {
		b.Queue(s.sql.pruneOwnEvents, lowAt(Mark{At: from}), micros(keep), limit).QueryRow(func(row pgx.Row) error {
			var at pgtype.Timestamptz
			err := row.Scan(&deleted, &at)
			last = at.Time
			return err
		})
	})
	return deleted, last, err
}

// The second look at reserved_at is not in a form that an index serves: PostgreSQL 18, which skips through
// rate_limit_reservations_key, read all of that for it.
const pruneSlotsSQL = `
with walk as materialized (
    select r.job_id as id, r.reserved_at < statement_timestamp() - $2::bigint * interval '1 microsecond' as old
      from @rate_limit_reservations r
     where r.job_id > $1
       and r.job_id < (lpad(to_hex(((extract(epoch from statement_timestamp()) * 1000000)::bigint - $2::bigint) / 1000), 12, '0') || repeat('0', 20))::uuid
     order by r.job_id
     limit $3
), gone as (
    delete from @rate_limit_reservations r
     using (select r.job_id from walk join @rate_limit_reservations r on r.job_id = any(array[walk.id])
             where walk.old and r.reserved_at + $2::bigint * interval '1 microsecond' < statement_timestamp()
               for update of r skip locked) mine
     where r.job_id = any(array[mine.job_id])
    returning r.job_id
)
select (select count(*) from walk), (select count(*) from gone), (select max(id::text)::uuid from walk)`

// PruneSlots deletes reservations that have left every window of length keep.
func (s *Store) PruneSlots(ctx context.Context, pool *pgxpool.Pool, after uuid.UUID, keep time.Duration, limit int) (Pruned, error) {
	return s.prune(ctx, pool, s.sql.pruneSlots, after, keep, limit)
}

func (s *Store) prune(ctx context.Context, pool *pgxpool.Pool, sql string, after uuid.UUID, keep time.Duration, limit int) (Pruned, error) {
	var p Pruned
	err := pinned(ctx, pool, func(b *pgx.Batch) {
		b.Queue(sql, pgUUID(after), micros(keep), limit).QueryRow(func(row pgx.Row) error {
			var last pgtype.UUID
			err := row.Scan(&p.Read, &p.Deleted, &last)
			p.Last = last.Bytes
			return err
		})
	})
	return p, err
}
