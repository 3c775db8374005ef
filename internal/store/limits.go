package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Reservation is a job's place in the rolling windows of its recipient: the time its delivery was admitted, or, booked,
// the later time at which its turn comes.
type Reservation struct {
	JobID   uuid.UUID
	Key     uuid.UUID
	Channel string
	At      time.Time
	Booked  bool
}

// Reading asks for the reservations that one rule needs of one key, of Channel or, if that is empty, of all: the latest
// Past admissions that are not older than Window, nor further than Ahead; as many of the bookings that should have been
// used within Window; and what is to come, the first Near and the last Last.
type Reading struct {
	Key              uuid.UUID
	Channel          string
	Window, Ahead    time.Duration
	Past, Near, Last int
}

// Deferral sends a claimed job back until Due with its attempt refunded. Book says that Due is its slot.
type Deferral struct {
	ID, Token uuid.UUID
	Due       time.Time
	Book      *Reservation
}

// Checks for one recipient take turns: a row lock could not do that, since a recipient's first notification has no row
// to lock. The keys are hashes, so two recipients may share a lock, which only makes them wait. They are taken in
// ascending order, so that two admissions can't wait for each other, and of one transaction only, so PgBouncer is fine.
// The shared lock table holds about 6,400 of them: an admission takes at most 256.
//
// The transaction is open between two round trips. A process that is frozen there must not hold others up for long, and
// whoever waits for it must not wait long: what it waits for is one recipient.
const impatientSQL = `select set_config('idle_in_transaction_session_timeout', '5s', true), set_config('lock_timeout', '1s', true)`

// busyKeysSQL tells which keys somebody else holds. The locks it takes end with it.
const busyKeysSQL = `select k from unnest($1::bigint[]) k where not pg_try_advisory_xact_lock(k)`

// Counted, so that one row comes back and not one for each.
const lockKeysSQL = `select count(pg_advisory_xact_lock(k)) from unnest($1::bigint[]) k`

// A second statement, whose snapshot is newer than the locks: read in the same statement, the snapshot would precede the
// lock, and two admissions would both see the last slot free. The first row is the clock. Each part walks
// rate_limit_reservations_key from an end of its range and stops at its limit, whatever the recipient has booked.
// Admissions are read apart from bookings, so that no number of these can hide one.
const reservationsSQL = `
select null::uuid, null::uuid, '', statement_timestamp(), false
union all
select r.job_id, r.limit_key, r.channel, r.reserved_at, r.booked
  from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::int[], $6::int[], $7::int[])
       as k(limit_key, channel, window_us, ahead_us, past, near, last)
 cross join lateral (
     (select r.job_id, r.limit_key, r.channel, r.reserved_at, r.booked
        from @rate_limit_reservations r
       where r.limit_key = k.limit_key and r.reserved_at > statement_timestamp() - k.window_us * interval '1 microsecond'
         and r.reserved_at <= statement_timestamp() + k.ahead_us * interval '1 microsecond'
         and (k.channel = '' or r.channel = k.channel) and not r.booked
       order by r.limit_key desc, r.reserved_at desc
       limit k.past)
     union all
     (select r.job_id, r.limit_key, r.channel, r.reserved_at, r.booked
        from @rate_limit_reservations r
       where r.limit_key = k.limit_key and r.reserved_at > statement_timestamp() - k.window_us * interval '1 microsecond'
         and r.reserved_at <= statement_timestamp() and (k.channel = '' or r.channel = k.channel) and r.booked
       order by r.limit_key desc, r.reserved_at desc
       limit k.past)
     union all
     (select r.job_id, r.limit_key, r.channel, r.reserved_at, r.booked
        from @rate_limit_reservations r
       where r.limit_key = k.limit_key and r.reserved_at > statement_timestamp() and (k.channel = '' or r.channel = k.channel)
       order by r.limit_key, r.reserved_at
       limit k.near)
     union all
     (select r.job_id, r.limit_key, r.channel, r.reserved_at, r.booked
        from @rate_limit_reservations r
       where r.limit_key = k.limit_key and r.reserved_at > statement_timestamp() and (k.channel = '' or r.channel = k.channel)
       order by r.limit_key desc, r.reserved_at desc
       limit k.last)) r
union all
select r.job_id, r.limit_key, r.channel, r.reserved_at, r.booked
  from @rate_limit_reservations r where r.job_id = any($8::uuid[])`

const reserveSQL = `
insert into @rate_limit_reservations as r (job_id, limit_key, channel, reserved_at, booked)
select * from unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[], $5::boolean[])
on conflict (job_id) do update
   set limit_key = excluded.limit_key, reserved_at = excluded.reserved_at, booked = excluded.booked`

// The slot is booked in the statement that gives the job back, and only if the claim was still held. A job that books
// nothing gives up what it had booked; an admission stays.
const deferSQL = `
with back as (
    update @notification_queue q
       set status = 0, next_attempt_at = d.due, attempt_count = q.attempt_count - 1,
           first_attempt_at = case when q.attempt_count = 1 and q.redrive_count = 0 then null else q.first_attempt_at end,
           claim_token = null, locked_by = null, locked_at = null, leased_until = null, started_at = null,
           updated_at = statement_timestamp()
      from unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::uuid[], $5::text[]) as d(id, token, due, limit_key, channel)
     where q.id = any(array[d.id]) and q.claim_token = d.token
    returning q.id, d.due, d.limit_key, d.channel
), booking as (
    insert into @rate_limit_reservations as r (job_id, limit_key, channel, reserved_at, booked)
    select id, limit_key, channel, due, true from back where limit_key is not null
    on conflict (job_id) do update
       set limit_key = excluded.limit_key, reserved_at = excluded.reserved_at, booked = true
), given as (
    delete from @rate_limit_reservations r using back where r.job_id = any(array[back.id]) and back.limit_key is null and r.booked
)
select id from back`

// Judge decides, from the reservations that exist, what to reserve and what to send back. now is the database's, and
// sent the local time before it was asked for.
type Judge func(now, sent time.Time, existing []Reservation) (reserve []Reservation, send []Deferral)

// Admit runs one admission: it takes the locks, reads, asks judge, and writes what it said. It returns the deferred ids
// whose claims were still held.
func (s *Store) Admit(ctx context.Context, pool *pgxpool.Pool, locks []int64, readings []Reading, jobs []uuid.UUID, judge Judge) ([]uuid.UUID, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	deferred, err := s.admit(ctx, conn.Conn(), locks, readings, jobs, judge)
	if err != nil {
		leave(ctx, conn.Conn(), err)
	}
	return deferred, err
}

func (s *Store) admit(ctx context.Context, conn *pgx.Conn, locks []int64, readings []Reading, jobs []uuid.UUID, judge Judge) ([]uuid.UUID, error) {
	var now time.Time
	var existing []Reservation
	read := &pgx.Batch{}
	read.Queue(beginSQL)
	read.Queue(pinSQL)
	read.Queue(impatientSQL)
	read.Queue(s.sql.lockKeys, locks)
	read.Queue(s.sql.reservations, append(readingArgs(readings), uuids(jobs))...).Query(func(rows pgx.Rows) (err error) {
		now, existing, err = collectReservations(rows)
		return err
	})
	sent := time.Now()
	if err := conn.SendBatch(ctx, read).Close(); err != nil {
		return nil, err
	}
	reserve, send := judge(now, sent, existing)
	var deferred []uuid.UUID
	write := &pgx.Batch{}
	if len(reserve) > 0 {
		write.Queue(s.sql.reserve, reserveArgs(reserve)...)
	}
	if len(send) > 0 {
		write.Queue(s.sql.deferred, deferArgs(send)...).Query(collectIDs(&deferred))
	}
	write.Queue(`commit`)
	err := conn.SendBatch(ctx, write).Close()
	return deferred, err
}

// IsBusy tells that Admit waited too long for a recipient's lock.
func IsBusy(err error) bool { return Code(err) == "55P03" }

// BusyKeys tells which of the locks somebody else holds.
func (s *Store) BusyKeys(ctx context.Context, pool *pgxpool.Pool, locks []int64) ([]int64, error) {
	var busy []int64
	err := pipeline(ctx, pool, func(b *pgx.Batch) {
		b.Queue(busyKeysSQL, locks).Query(func(rows pgx.Rows) (err error) {
			busy, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	})
	return busy, err
}

// Postpone sends claimed jobs back for a while with their attempts refunded, without asking the limit, and returns the ids
// whose claims were still held.
func (s *Store) Postpone(ctx context.Context, pool *pgxpool.Pool, claims Claims, d time.Duration) ([]uuid.UUID, error) {
	var held []uuid.UUID
	err := pinned(ctx, pool, func(b *pgx.Batch) {
		ids, tokens := claims.sorted()
		b.Queue(s.sql.release, ids, tokens, micros(d), make(textArray, len(ids))).Query(collectIDs(&held))
	})
	return held, err
}

func readingArgs(readings []Reading) []any {
	n := len(readings)
	keys, channels := make(uuidArray, n), make([]string, n)
	windows, ahead := make([]int64, n), make([]int64, n)
	past, near, last := make([]int32, n), make([]int32, n), make([]int32, n)
	for i, r := range readings {
		keys[i], channels[i], windows[i], ahead[i] = pgUUID(r.Key), r.Channel, micros(r.Window), micros(r.Ahead)
		past[i], near[i], last[i] = int32(r.Past), int32(r.Near), int32(r.Last)
	}
	return []any{keys, channels, windows, ahead, past, near, last}
}

func collectReservations(rows pgx.Rows) (now time.Time, out []Reservation, err error) {
	defer rows.Close()
	for rows.Next() {
		var job, key pgtype.UUID
		var r Reservation
		if err := rows.Scan(&job, &key, &r.Channel, &r.At, &r.Booked); err != nil {
			return now, nil, err
		}
		if !job.Valid {
			now = r.At
			continue
		}
		r.JobID, r.Key = job.Bytes, key.Bytes
		out = append(out, r)
	}
	return now, out, rows.Err()
}

func reserveArgs(reserve []Reservation) []any {
	n := len(reserve)
	jobs, keys, channels := make(uuidArray, n), make(uuidArray, n), make([]string, n)
	at, booked := make(timeArray, n), make([]bool, n)
	for i, r := range reserve {
		jobs[i], keys[i], channels[i] = pgUUID(r.JobID), pgUUID(r.Key), r.Channel
		at[i], booked[i] = optionalTime(r.At), r.Booked
	}
	return []any{jobs, keys, channels, at, booked}
}

func deferArgs(send []Deferral) []any {
	n := len(send)
	ids, tokens, due := make(uuidArray, n), make(uuidArray, n), make(timeArray, n)
	keys, channels := make(uuidArray, n), make([]string, n)
	for i, d := range send {
		ids[i], tokens[i], due[i] = pgUUID(d.ID), pgUUID(d.Token), optionalTime(d.Due)
		if d.Book != nil {
			keys[i], channels[i] = pgUUID(d.Book.Key), d.Book.Channel
		}
	}
	return []any{ids, tokens, due, keys, channels}
}
