package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Newcomer is a job whose recipient may have nothing in its windows.
type Newcomer struct {
	JobID, Key uuid.UUID
	Channel    string
}

// Whoever has neither an admission nor a booking in the longest window, nor one to come, may go, whatever the rules are. The
// locks are taken by the statement before, so the snapshot of this one shows what their last holders wrote. OFFSET 0 keeps
// the question one for each recipient: as a join it read the whole index once where the planner thought that it was small.
const admitNewSQL = `
insert into @rate_limit_reservations as r (job_id, limit_key, channel, reserved_at, booked)
select c.job_id, c.limit_key, c.channel, statement_timestamp() + $5::bigint * interval '1 microsecond', false
  from unnest($1::uuid[], $2::uuid[], $3::text[]) as c(job_id, limit_key, channel)
 where not exists (
     select from @rate_limit_reservations o
      where o.limit_key = c.limit_key and o.reserved_at > statement_timestamp() - $4::bigint * interval '1 microsecond'
     offset 0)
on conflict (job_id) do update
   set limit_key = excluded.limit_key, channel = excluded.channel, reserved_at = excluded.reserved_at, booked = false
returning r.job_id`

// AdmitNew admits those jobs whose recipients have nothing within window, and returns them. Each stands for lead from now on.
// No two may have one key. It is an Admit of one round trip for what is the rule where most recipients get little.
func (s *Store) AdmitNew(ctx context.Context, pool *pgxpool.Pool, locks []int64, jobs []Newcomer, window, lead time.Duration) ([]uuid.UUID, error) {
	ids, keys, channels := make(uuidArray, len(jobs)), make(uuidArray, len(jobs)), make([]string, len(jobs))
	for i, j := range jobs {
		ids[i], keys[i], channels[i] = pgUUID(j.JobID), pgUUID(j.Key), j.Channel
	}
	admitted := make([]uuid.UUID, 0, len(jobs))
	err := pinned(ctx, pool, func(b *pgx.Batch) {
		b.Queue(impatientSQL)
		b.Queue(s.sql.lockKeys, locks)
		b.Queue(s.sql.admitNew, ids, keys, channels, micros(window), micros(lead)).Query(collectIDs(&admitted))
	})
	return admitted, err
}
