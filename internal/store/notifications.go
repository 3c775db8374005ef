package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// NewJob is one notification to insert, checked by the caller.
type NewJob struct {
	Tenant, Key, Recipient, RecipientKey, Channel string
	Fingerprint, Payload                          []byte
	TraceContext                                  string
	Priority, MaxAttempts                         int16
	Park                                          bool
	SendAt                                        time.Time // zero: now plus Delay
	Delay                                         time.Duration
	ExpiresAt                                     time.Time
	// AttemptsLeftOut and ParkLeftOut say that the request did not name MaxAttempts and Park, so that they are the client's.
	AttemptsLeftOut, ParkLeftOut bool
}

// Fault is what only the database's clock can find wrong with a new job.
type Fault int16

// The faults.
const (
	FaultNone    Fault = 0
	FaultHorizon Fault = 1
	FaultExpiry  Fault = 2
)

// Inserted says what became of one new job. Without an id and without a fault, its key was taken.
type Inserted struct {
	ID                                    uuid.UUID
	Fault                                 Fault
	CreatedAt, ScheduledAt, NextAttemptAt time.Time
}

// An id is a UUIDv7 of the statement's time by the database's clock: 48 bits of milliseconds, 12 bits of the rest of
// the millisecond, then, made here, 14 bits of position in the batch and 48 random bits. gen_random_uuid() would cost a
// tenth of a job's budget and scatter new rows over the whole index.
//
// The horizon is in hours, since a day of an interval is 23 or 25 of them where the session's time zone changes its clock.
//
// A conflict inserts nothing and waits for the other insert to end, without failing the statement, so a caller's
// READ COMMITTED transaction stays usable. Rows come sorted by key, so that two batches wait for each other in one
// direction only.
const insertSQL = `
with clock as materialized (
    select t.now, lpad(to_hex(t.us / 1000), 12, '0') || to_hex(28672 + (t.us % 1000) * 4096 / 1000) as prefix
      from (select statement_timestamp() as now, (extract(epoch from statement_timestamp()) * 1000000)::bigint as us) t
), item as not materialized (
    select (c.prefix || i.tail)::uuid as id, c.now, i.*, coalesce(i.send_at, c.now + i.delay_us * interval '1 microsecond') as scheduled_at
      from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::text[],
                  $9::smallint[], $10::smallint[], $11::smallint[], $12::timestamptz[], $13::bigint[], $14::timestamptz[],
                  $15::text[])
           as i(tail, tenant, idempotency_key, request_fingerprint, recipient, recipient_key, channel, payload,
                priority, max_attempts, on_ambiguous, send_at, delay_us, expires_at, trace_context)
     cross join clock c
), judged as materialized (
    select i.*, case when i.scheduled_at > i.now + interval '8760 hours' then 1
                     when i.expires_at <= greatest(i.scheduled_at, i.now) then 2 else 0 end as fault
      from item i
), fresh as (
    insert into @notifications as n (id, tenant, idempotency_key, request_fingerprint, recipient, recipient_key, channel,
                                     payload, priority, scheduled_at, expires_at, max_attempts, on_ambiguous, trace_context,
                                     created_at)
    select id, tenant, idempotency_key, request_fingerprint, recipient, recipient_key, channel,
           payload::json, priority, scheduled_at, expires_at, max_attempts, on_ambiguous, trace_context, now
      from judged where fault = 0
    on conflict (tenant, idempotency_key) do nothing
    returning n.id, n.tenant, n.channel, n.priority, n.scheduled_at, n.expires_at, n.max_attempts, n.on_ambiguous, n.created_at
), queued as (
    insert into @notification_queue (id, tenant, channel, priority, next_attempt_at, expires_at, max_attempts, on_ambiguous, updated_at)
    select id, tenant, channel, priority, greatest(scheduled_at, created_at), expires_at, max_attempts, on_ambiguous, created_at
      from fresh
)
select id, 0::smallint, created_at, scheduled_at, greatest(scheduled_at, created_at) from fresh
union all
select id, fault::smallint, now, scheduled_at, scheduled_at from judged where fault <> 0`

// Insert stores new jobs in a caller's transaction and answers each at its place, which is below 2^14. jobs must be
// sorted by (tenant, key); ids of one batch are in the order of the places.
func (s *Store) Insert(ctx context.Context, q Querier, jobs []NewJob, places []int) ([]Inserted, error) {
	rows, err := q.Query(ctx, s.sql.insert, insertArgs(jobs, places)...)
	if err != nil {
		return nil, err
	}
	return collectInserted(rows, places)
}

// InsertCommitted is Insert in a transaction of its own, in one round trip. lockWait, unless it is 0, bounds the wait for
// a key that another transaction has inserted and not committed.
func (s *Store) InsertCommitted(ctx context.Context, pool *pgxpool.Pool, jobs []NewJob, places []int, lockWait time.Duration) ([]Inserted, error) {
	var out []Inserted
	err := pipeline(ctx, pool, func(b *pgx.Batch) {
		if lockWait > 0 {
			b.Queue(`select set_config('lock_timeout', $1, true)`, strconv.FormatInt(lockWait.Milliseconds(), 10))
		}
		b.Queue(s.sql.insert, insertArgs(jobs, places)...).Query(func(rows pgx.Rows) (err error) {
			out, err = collectInserted(rows, places)
			return err
		})
	})
	return out, err
}

func insertArgs(jobs []NewJob, places []int) []any {
	n := len(jobs)
	var (
		tails, tenants, keys, recipients, recipientKeys = make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		channels, payloads, fingerprints                = make([]string, n), make([]string, n), make([][]byte, n)
		priorities, maxAttempts, onAmbiguous            = make([]int16, n), make([]int16, n), make([]int16, n)
		sendAt, expiresAt, delays                       = make(timeArray, n), make(timeArray, n), make([]int64, n)
	)
	traces := make(textArray, n)
	random := make([]byte, 6*n)
	_, _ = rand.Read(random) // never fails
	for i := range jobs {
		j := &jobs[i]
		tails[i] = idTail(places[i], random[6*i:6*i+6])
		tenants[i], keys[i], recipients[i], recipientKeys[i] = j.Tenant, j.Key, j.Recipient, j.RecipientKey
		channels[i], payloads[i], fingerprints[i] = j.Channel, string(j.Payload), j.Fingerprint
		priorities[i], maxAttempts[i], traces[i] = j.Priority, j.MaxAttempts, optional(j.TraceContext)
		if j.Park {
			onAmbiguous[i] = 1
		}
		sendAt[i], expiresAt[i], delays[i] = optionalTime(j.SendAt), optionalTime(j.ExpiresAt), micros(j.Delay)
	}
	return []any{
		tails, tenants, keys, fingerprints, recipients, recipientKeys, channels, payloads,
		priorities, maxAttempts, onAmbiguous, sendAt, delays, expiresAt, traces,
	}
}

// idTail is the last 64 bits of an id in hex: the variant, 14 bits of place, 48 random bits.
func idTail(place int, random []byte) string {
	var tail [8]byte
	tail[0], tail[1] = 0x80|byte(place>>8)&0x3f, byte(place)
	copy(tail[2:], random)
	return hex.EncodeToString(tail[:])
}

func placeOf(id uuid.UUID) int { return int(id[8]&0x3f)<<8 | int(id[9]) }

func collectInserted(rows pgx.Rows, places []int) ([]Inserted, error) {
	defer rows.Close()
	out := make([]Inserted, slices.Max(places)+1)
	for rows.Next() {
		var r Inserted
		if err := rows.Scan((*[16]byte)(&r.ID), &r.Fault, &r.CreatedAt, &r.ScheduledAt, &r.NextAttemptAt); err != nil {
			return nil, err
		}
		place := placeOf(r.ID)
		if r.Fault != FaultNone {
			r.ID = uuid.Nil
		}
		out[place] = r
	}
	return out, rows.Err()
}

// A new statement, since one that reads beside the insert has the insert's snapshot and would not see the row that won.
const readBackSQL = `
select i.place - 1, n.id, n.request_fingerprint, n.max_attempts, n.on_ambiguous = 1
  from unnest($1::text[], $2::text[]) with ordinality as i(tenant, idempotency_key, place)
  join @notifications n on n.tenant = i.tenant and n.idempotency_key = i.idempotency_key`

// Holder is the job that holds a key. MaxAttempts and Park are those of its request with the defaults of the client that
// made it, and stay that whatever becomes of the job's budget.
type Holder struct {
	ID          uuid.UUID
	Fingerprint []byte
	MaxAttempts int16
	Park        bool
}

// Same tells whether the holder was made by the request with this fingerprint. An erased job has none left; what matters
// of it is that it is not sent again, so it answers every request under its key.
func (h Holder) Same(fingerprint []byte) bool {
	return len(h.Fingerprint) == 0 || bytes.Equal(h.Fingerprint, fingerprint)
}

// ReadBack finds who holds the keys of jobs. A key without a holder is left out.
func (s *Store) ReadBack(ctx context.Context, q Querier, tenants, keys []string) (map[int]Holder, error) {
	rows, err := q.Query(ctx, s.sql.readBack, tenants, keys)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	holders := make(map[int]Holder, len(keys))
	for rows.Next() {
		var place int
		var h Holder
		if err := rows.Scan(&place, &h.ID, &h.Fingerprint, &h.MaxAttempts, &h.Park); err != nil {
			return nil, err
		}
		holders[place] = h
	}
	return holders, rows.Err()
}
