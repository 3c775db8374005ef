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

// Mark is a place in the order of due jobs.
type Mark struct {
	At time.Time // zero: the beginning
	ID uuid.UUID
}

// After tells whether m stands behind o.
func (m Mark) After(o Mark) bool {
	if !m.At.Equal(o.At) {
		return m.At.After(o.At)
	}
	return string(m.ID[:]) > string(o.ID[:])
}

// Lane asks for up to Limit due jobs of one channel, by its probes in their order.
type Lane struct {
	Channel string
	Limit   int
	Probes  []Probe
}

// Probe looks for up to Limit due jobs of one priority behind a mark.
type Probe struct {
	Priority int16
	Low      Mark
	Limit    int
}

// Lease is what a claim is made under.
type Lease struct {
	Worker string
	Token  uuid.UUID
	For    time.Duration
}

// Claimed is one job that now belongs to the claiming worker.
type Claimed struct {
	ID                                       uuid.UUID
	Tenant, Channel, Recipient, RecipientKey string
	Payload                                  []byte
	TraceContext                             string
	Priority, AttemptCount, MaxAttempts      int16
	RedriveCount                             int32
	Park                                     bool
	NextAttemptAt, FirstAttemptAt            time.Time
	ExpiresIn                                time.Duration // 0: never
	Place                                    Place
}

// Place is where the queue's row stands, until it is changed or the table rewritten: a hint that saves a descent of the
// index where it still holds.
type Place = pgtype.TID

// Each probe walks notification_queue_due from its mark and stops at its limit; a lane stops probing when it has enough,
// so an idle channel costs three index descents. The row comparison with (next_attempt_at, id) is part of the index
// condition: without the mark a snapshot held by anybody makes each claim walk every entry that was consumed since (324 ms
// a claim at 519,000 of them). The literal 'status = 0' proves the partial index; the condition on the locked row is
// checked again on its newest version, so a job that was taken meanwhile is not taken twice.
//
// MATERIALIZED keeps the planner from running the LIMIT more than once, and OFFSET 0 from asking for each row whether its
// channel is paused. The rows are found again where they were locked (ctid), all by one scan, which saves a descent of the
// index each; one that was changed between the snapshot and the lock is not found so, and left for the next claim from the
// beginning.
// '= any(array[…])' is a lookup that no other join order can serve: see pinSQL. Rows come back in no order: the caller
// sorts.
const claimSQL = `
with due as materialized (
    select d.place
      from (select l.channel, l.cap, l.place
              from unnest($1::text[], $2::int[]) with ordinality as l(channel, cap, place)
             where not exists (select from @channel_states c where c.channel = l.channel and c.paused_at is not null)
            offset 0) l
     cross join lateral (
         select d.place
           from unnest($3::int[], $4::smallint[], $5::timestamptz[], $6::uuid[], $7::int[]) as p(lane, priority, low_at, low_id, cap)
          cross join lateral (
              select q.ctid as place
                from @notification_queue q
               where q.status = 0 and q.channel = l.channel and q.priority = p.priority
                 and (q.next_attempt_at, q.id) > (p.low_at, p.low_id) and q.next_attempt_at <= statement_timestamp()
                 and q.attempt_count < q.max_attempts
                 and (q.expires_at is null or q.expires_at > statement_timestamp())
               order by q.next_attempt_at, q.id
               limit p.cap
                 for update skip locked) d
          where p.lane = l.place
          limit l.cap) d
)
update @notification_queue q
   set status = 1, attempt_count = q.attempt_count + 1, claim_token = $8, locked_by = $9,
       locked_at = statement_timestamp(), leased_until = statement_timestamp() + $10::bigint * interval '1 microsecond',
       first_attempt_at = coalesce(q.first_attempt_at, statement_timestamp()), updated_at = statement_timestamp()
  from @notifications n
 where q.ctid = any(array(select place from due)) and n.id = any(array[q.id])
returning q.id, n.tenant, n.channel, n.recipient, n.recipient_key, n.payload, n.priority, q.attempt_count, q.max_attempts,
          q.redrive_count, n.on_ambiguous = 1, q.next_attempt_at, q.first_attempt_at, n.trace_context,
          coalesce((extract(epoch from q.expires_at - statement_timestamp()) * 1000000)::bigint, 0), q.ctid`

// Claim takes due jobs for each lane.
func (s *Store) Claim(ctx context.Context, pool *pgxpool.Pool, lease Lease, lanes ...Lane) ([]Claimed, error) {
	total := 0
	for _, l := range lanes {
		total += l.Limit
	}
	var jobs []Claimed
	err := pinned(ctx, pool, func(b *pgx.Batch) {
		args := append(laneArgs(lanes), pgUUID(lease.Token), lease.Worker, micros(lease.For))
		b.Queue(s.sql.claim, args...).Query(func(rows pgx.Rows) (err error) {
			jobs, err = collectClaimed(rows, total)
			return err
		})
	})
	return jobs, err
}

func laneArgs(lanes []Lane) []any {
	var (
		channels             []string
		caps, places, limits []int32
		priorities           []int16
		ats                  timeArray
		lowID                uuidArray
	)
	for i, l := range lanes {
		channels, caps = append(channels, l.Channel), append(caps, int32(l.Limit))
		for _, p := range l.Probes {
			places, priorities, limits = append(places, int32(i+1)), append(priorities, p.Priority), append(limits, int32(p.Limit))
			ats, lowID = append(ats, lowAt(p.Low)), append(lowID, pgUUID(p.Low.ID))
		}
	}
	return []any{channels, caps, places, priorities, ats, lowID, limits}
}

func collectClaimed(rows pgx.Rows, limit int) ([]Claimed, error) {
	defer rows.Close()
	var jobs []Claimed
	for rows.Next() {
		if jobs == nil {
			jobs = make([]Claimed, 0, limit)
		}
		jobs = append(jobs, Claimed{})
		j := &jobs[len(jobs)-1]
		var expiresInMicros int64
		var trace pgtype.Text
		if err := rows.Scan((*[16]byte)(&j.ID), &j.Tenant, &j.Channel, &j.Recipient, &j.RecipientKey, &j.Payload, &j.Priority,
			&j.AttemptCount, &j.MaxAttempts, &j.RedriveCount, &j.Park, &j.NextAttemptAt, &j.FirstAttemptAt,
			&trace, &expiresInMicros, &j.Place); err != nil {
			return nil, err
		}
		j.TraceContext = trace.String
		j.ExpiresIn = time.Duration(expiresInMicros) * time.Microsecond
	}
	return jobs, rows.Err()
}

// Rows are taken with SKIP LOCKED: a row that recovery or another statement of this worker holds is left for the next
// round rather than waited for, so renewing can't deadlock with recording. A skipped row is not a lost one; losing shows
// by the token.
const renewSQL = `
with mine as materialized (
    select q.id
      from unnest($1::uuid[], $2::uuid[]) as m(id, token)
     cross join lateral (
         select q.id from @notification_queue q where q.id = m.id and q.claim_token = m.token for update skip locked) q
)
update @notification_queue q
   set leased_until = statement_timestamp() + $3::bigint * interval '1 microsecond'
  from mine where q.id = any(array[mine.id])
returning q.id, q.claim_token`

// Renew prolongs leases by d from now and returns the claims for which that worked.
func (s *Store) Renew(ctx context.Context, pool *pgxpool.Pool, claims Claims, d time.Duration) (Claims, error) {
	return s.fenced(ctx, pool, s.sql.renew, claims, micros(d))
}

// The mark that a call is about to be made, for jobs that must not be repeated when their outcome is unknown.
const startSQL = `
with mine as materialized (
    select q.id
      from unnest($1::uuid[], $2::uuid[]) as m(id, token)
     cross join lateral (
         select q.id from @notification_queue q where q.id = m.id and q.claim_token = m.token for update skip locked) q
)
update @notification_queue q
   set started_at = statement_timestamp(), leased_until = statement_timestamp() + $3::bigint * interval '1 microsecond'
  from mine where q.id = any(array[mine.id])
returning q.id, q.claim_token`

// Start writes started_at and renews the lease by d.
func (s *Store) Start(ctx context.Context, pool *pgxpool.Pool, claims Claims, d time.Duration) (Claims, error) {
	return s.fenced(ctx, pool, s.sql.start, claims, micros(d))
}

// Claims are jobs with the tokens they are held by, in parallel.
type Claims struct {
	IDs    []uuid.UUID
	Tokens []uuid.UUID
}

// Claim is a row as its holder knows it. The id alone would not do: after an outage longer than its lease, a process may
// hold an old and a new claim of one row.
type Claim struct{ ID, Token uuid.UUID }

// Add appends one claim.
func (c *Claims) Add(id, token uuid.UUID) {
	c.IDs, c.Tokens = append(c.IDs, id), append(c.Tokens, token)
}

// Len is the number of claims.
func (c *Claims) Len() int { return len(c.IDs) }

// sorted gives the parameters in the order in which a statement without SKIP LOCKED may take its locks.
func (c *Claims) sorted() (ids, tokens uuidArray) {
	order := make([]int, len(c.IDs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(c.IDs[a][:], c.IDs[b][:]) })
	for _, i := range order {
		ids, tokens = append(ids, pgUUID(c.IDs[i])), append(tokens, pgUUID(c.Tokens[i]))
	}
	return ids, tokens
}

// fenced runs a statement whose first two parameters are claims and which returns those it changed.
func (s *Store) fenced(ctx context.Context, pool *pgxpool.Pool, sql string, claims Claims, args ...any) (Claims, error) {
	var done Claims
	err := pinned(ctx, pool, func(b *pgx.Batch) {
		ids, tokens := claims.sorted()
		b.Queue(sql, append([]any{ids, tokens}, args...)...).Query(func(rows pgx.Rows) error {
			var id, token pgtype.UUID
			_, err := pgx.ForEachRow(rows, []any{&id, &token}, func() error {
				done.Add(id.Bytes, token.Bytes)
				return nil
			})
			return err
		})
	})
	return done, err
}

func collectIDs(into *[]uuid.UUID) func(rows pgx.Rows) error {
	return func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			var id uuid.UUID
			if err := rows.Scan((*[16]byte)(&id)); err != nil { // by its Scan method it would go through text
				return err
			}
			*into = append(*into, id)
		}
		return rows.Err()
	}
}
