package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// CountCap is how far a count goes before it becomes an estimate or a lower bound; TenantCap is how many of a tenant's
// latest jobs are looked at for those that were sent.
const (
	CountCap  = 1_000_000
	TenantCap = 100_000
)

// Stats are counts by status and the wait of the oldest due job.
type Stats struct {
	ByStatus  map[int16]int64
	Estimated bool
	Lag       time.Duration
}

// No count reads more than $2 entries, or $3 of a tenant's history. What is live and what failed is counted where there is
// nothing else. SENT is nearly all of history: of all tenants it is counted while it is small and estimated by the
// planner's figure after that; of one it is counted among the tenant's latest jobs, since no index holds it. The clauses
// on $1 that know nothing of a row are decided once.
const statsSQL = `
with looked as (
    select (select count(*) from (select from @notification_queue limit $2) t) >= $2 as at_all_live,
           (select count(*) from (select from @notifications where $1 = '' limit $3) t) >= $3 as at_all_asked
), live as (
    select count(*) filter (where status = 0) as pending, count(*) filter (where status = 1) as processing
      from (select q.status, q.tenant from @notification_queue q limit $2) t
     where $1::text is null or t.tenant = $1
), ended as (
    select s.status, (select count(*) from (select from @notification_outcomes o
                       where o.status = s.status and o.status <> 2 and ($1::text is null or o.tenant = $1) limit $2) t) as total
      from unnest(array[3, 4, 5]::smallint[]) as s(status)
), history as (
    select greatest(c.reltuples, 0)::bigint as rows from pg_catalog.pg_class c where c.oid = '@notification_outcomes'::regclass
), latest as materialized (
    (select n.id from @notifications n where $1 <> '' and n.tenant = $1 and n.tenant <> '' order by n.id desc limit $3)
    union all
    (select n.id from (select n.id, n.tenant from @notifications n where $1 = '' order by n.id desc limit $3) n where n.tenant = '')
)
select 0::smallint, pending, at_all_live from live, looked
union all select 1::smallint, processing, at_all_live from live, looked
union all select status, total, total >= $2 from ended
union all
select 2::smallint,
       case when $1::text is not null then (select count(*) from latest l cross join lateral (
                     select from @notification_outcomes o where o.id = l.id and o.status = 2 offset 0) o)
            when h.rows < $2 then c.counted
            else greatest(h.rows - (select sum(total)::bigint from ended), 0) end,
       case when $1::text is not null then (select count(*) from latest) >= $3 or at_all_asked else h.rows >= $2 or c.counted >= $2 end
  from looked
 cross join history h
 cross join lateral (
     select count(*) as counted
       from (select from @notification_outcomes o where $1::text is null and h.rows < $2 and o.status = 2 limit $2) t) c`

// One index descent for each channel that has waiting jobs (found by skipping from one to the next) and priority.
const lagSQL = `
with recursive channel as (
    (select q.channel from @notification_queue q where q.status = 0 order by q.channel limit 1)
    union all
    select (select q.channel from @notification_queue q where q.status = 0 and q.channel > c.channel order by q.channel limit 1)
      from channel c where c.channel is not null
)
select coalesce((extract(epoch from max(statement_timestamp() - d.next_attempt_at)) * 1000000)::bigint, 0)
  from channel c
 cross join unnest(array[1, 2, 3]::smallint[]) as p(priority)
 cross join lateral (
     select q.next_attempt_at
       from @notification_queue q
      where q.status = 0 and q.channel = c.channel and q.priority = p.priority and q.next_attempt_at <= statement_timestamp()
        and ($1::text is null or q.tenant = $1)
      order by q.next_attempt_at limit 1) d
 where c.channel is not null
   and not exists (select from @channel_states s where s.channel = c.channel and s.paused_at is not null)`

// Stats counts, for one tenant or, if nil, for all.
func (s *Store) Stats(ctx context.Context, q Querier, tenant *string) (Stats, error) {
	out := Stats{ByStatus: make(map[int16]int64, 6)}
	rows, err := q.Query(ctx, s.sql.stats, tenant, CountCap+1, TenantCap+1)
	if err != nil {
		return out, err
	}
	var status int16
	var n int64
	var capped bool
	_, err = pgx.ForEachRow(rows, []any{&status, &n, &capped}, func() error {
		out.ByStatus[status] = n
		out.Estimated = out.Estimated || capped
		return nil
	})
	if err != nil {
		return out, err
	}
	var lagMicros int64
	if err := q.QueryRow(ctx, s.sql.lag, tenant).Scan(&lagMicros); err != nil {
		return out, err
	}
	out.Lag = time.Duration(lagMicros) * time.Microsecond
	return out, nil
}

const dueSoonSQL = `
select count(*)
  from @notification_queue q
 where q.channel = any($1) and (q.status = 1 or q.next_attempt_at <= statement_timestamp() + $2::bigint * interval '1 microsecond')
   and not exists (select from @channel_states c where c.channel = q.channel and c.paused_at is not null)`

// DueSoon counts the jobs of some channels that are claimed, or due within d. It reads the whole queue: it is for tests.
func (s *Store) DueSoon(ctx context.Context, q Querier, channels []string, d time.Duration) (int, error) {
	var n int
	err := q.QueryRow(ctx, s.sql.dueSoon, channels, micros(d)).Scan(&n)
	return n, err
}
