package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Endpoint is what is known of a receiver of events.
type Endpoint struct {
	Name, Target             string
	Failures                 int64
	FailingSince, DisabledAt time.Time // zero: it is not
	Reason                   string
}

const endpointsSQL = `
select w.name, w.target, w.failures, w.failing_since, w.disabled_at, w.reason
  from @webhook_endpoints w
 where $1::text[] is null or w.name = any($1)
 order by w.name
 limit 1000`

// Endpoints reads the named receivers, or all.
func (s *Store) Endpoints(ctx context.Context, q Querier, names []string) ([]Endpoint, error) {
	rows, err := q.Query(ctx, s.sql.endpoints, names)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanEndpoint)
}

func scanEndpoint(row pgx.CollectableRow) (Endpoint, error) {
	var e Endpoint
	var failing, disabled pgtype.Timestamptz
	var reason pgtype.Text
	err := row.Scan(&e.Name, &e.Target, &e.Failures, &failing, &disabled, &reason)
	e.FailingSince, e.DisabledAt, e.Reason = failing.Time, disabled.Time, reason.String
	return e, err
}

// EndpointReport is what a relay saw of a receiver since its last report.
type EndpointReport struct {
	Name, Target string
	Succeeded    bool          // at least once
	Failures     int64         // after the last success
	FailingFor   time.Duration // since the first of them
	Gone         bool          // it asked for no more
	DisableAfter time.Duration // of failing; 0: never
}

// One row, by its key. A receiver with another address than before starts over. Disabling is decided here, on the
// database's clock, by the row that several relays write; a disabled receiver stays as it is until somebody enables it or
// its address changes.
const reportEndpointSQL = `
insert into @webhook_endpoints as w (name, target, failures, failing_since, disabled_at, reason)
values ($1, $2, $4::bigint, case when $4::bigint > 0 then statement_timestamp() - $5::bigint * interval '1 microsecond' end,
        case when $6::boolean then statement_timestamp() end, case when $6::boolean then 'gone' end)
on conflict (name) do update
   set target = excluded.target, updated_at = statement_timestamp(),
       failures = excluded.failures + case when $3::boolean or w.target <> excluded.target then 0 else w.failures end,
       failing_since = case when $3::boolean or w.target <> excluded.target then excluded.failing_since
                            else coalesce(w.failing_since, excluded.failing_since) end,
       disabled_at = case when w.target <> excluded.target then excluded.disabled_at
                          when w.disabled_at is not null then w.disabled_at
                          when $6::boolean or {failing} then statement_timestamp() end,
       reason = case when w.target <> excluded.target then excluded.reason
                     when w.disabled_at is not null then w.reason
                     when $6::boolean then 'gone'
                     when {failing} then 'failing' end
returning w.name, w.target, w.failures, w.failing_since, w.disabled_at, w.reason`

// failingTooLong stands for {failing}: it fails now, did so all the time, and has for long enough.
const failingTooLong = `(not $3::boolean and excluded.failures > 0 and $7::bigint > 0
                                and w.failing_since < statement_timestamp() - $7::bigint * interval '1 microsecond')`

// ReportEndpoint writes what was seen and returns what is known now.
func (s *Store) ReportEndpoint(ctx context.Context, pool *pgxpool.Pool, r EndpointReport) (e Endpoint, err error) {
	err = pipeline(ctx, pool, func(b *pgx.Batch) {
		b.Queue(s.sql.reportEndpoint, r.Name, r.Target, r.Succeeded, r.Failures, micros(r.FailingFor), r.Gone, micros(r.DisableAfter)).
			Query(func(rows pgx.Rows) (err error) {
				e, err = pgx.CollectExactlyOneRow(rows, scanEndpoint)
				return err
			})
	})
	return e, err
}

const enableEndpointSQL = `
with before as materialized (
    select w.name, least(w.failing_since, w.disabled_at) as since from @webhook_endpoints w where w.name = $1 for update
), enabled as (
    update @webhook_endpoints w
       set failures = 0, failing_since = null, disabled_at = null, reason = null, updated_at = statement_timestamp()
      from before where w.name = before.name
), operation as (
    insert into @operations (what, endpoint, actor, reason) select 'enable_endpoint', name, $2, $3 from before
)
select since from before`

// EnableEndpoint lets events go to a receiver again. found is false if there is none of that name; since is when it began
// to fail or was disabled, or zero if neither.
func (s *Store) EnableEndpoint(ctx context.Context, q Querier, name string, by By) (since time.Time, found bool, err error) {
	rows, err := q.Query(ctx, s.sql.enableEndpoint, name, by.Actor, by.Reason)
	if err != nil {
		return time.Time{}, false, err
	}
	found = false
	var at pgtype.Timestamptz
	_, err = pgx.ForEachRow(rows, []any{&at}, func() error { found = true; return nil })
	return at.Time, found, err
}
