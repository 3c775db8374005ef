package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// EndpointKey is a receiver of events at an address.
type EndpointKey struct{ Name, Target string }

// Endpoint is what is known of one.
type Endpoint struct {
	EndpointKey
	Failures                            int64
	FailingSince, DisabledAt, EnabledAt time.Time // zero: it does not, it is not, it never was
	Reason                              string
}

const endpointColumns = ` w.name, w.target, w.failures, w.failing_since, w.disabled_at, w.enabled_at, w.reason`

func scanEndpoint(row pgx.CollectableRow) (Endpoint, error) {
	var e Endpoint
	var failing, disabled, enabled pgtype.Timestamptz
	var reason pgtype.Text
	err := row.Scan(&e.Name, &e.Target, &e.Failures, &failing, &disabled, &enabled, &reason)
	e.FailingSince, e.DisabledAt, e.EnabledAt, e.Reason = failing.Time, disabled.Time, enabled.Time, reason.String
	return e, err
}

// A receiver is shown at the address that a relay met last.
const listEndpointsSQL = `
select distinct on (w.name)` + endpointColumns + `
  from @webhook_endpoints w
 order by w.name, w.met_at desc
 limit $1`

// ListEndpoints reads the first receivers, by name.
func (s *Store) ListEndpoints(ctx context.Context, q Querier, limit int) ([]Endpoint, error) {
	rows, err := q.Query(ctx, s.sql.listEndpoints, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanEndpoint)
}

const endpointsSQL = `
select` + endpointColumns + `
  from unnest($1::text[], $2::text[]) as k(name, target)
  join @webhook_endpoints w on w.name = k.name and w.target = k.target`

// Endpoints reads the receivers that are named.
func (s *Store) Endpoints(ctx context.Context, pool *pgxpool.Pool, keys []EndpointKey) ([]Endpoint, error) {
	return s.endpoints(ctx, pool, s.sql.endpoints, keys)
}

// Rows are locked in the order of their keys.
const meetEndpointsSQL = `
insert into @webhook_endpoints as w (name, target)
select k.name, k.target from unnest($1::text[], $2::text[]) as k(name, target) group by k.name, k.target order by k.name, k.target
on conflict (name, target) do update set met_at = statement_timestamp()
returning` + endpointColumns

// MeetEndpoints writes that there are these receivers, and returns what is known of them.
func (s *Store) MeetEndpoints(ctx context.Context, pool *pgxpool.Pool, keys []EndpointKey) ([]Endpoint, error) {
	return s.endpoints(ctx, pool, s.sql.meetEndpoints, keys)
}

func (s *Store) endpoints(ctx context.Context, pool *pgxpool.Pool, sql string, keys []EndpointKey) (found []Endpoint, err error) {
	names, targets := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		names[i], targets[i] = k.Name, k.Target
	}
	err = pipeline(ctx, pool, func(b *pgx.Batch) {
		b.Queue(sql, names, targets).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, scanEndpoint)
			return err
		})
	})
	return found, err
}

// EndpointReport is what a relay saw of a receiver since its last report.
type EndpointReport struct {
	EndpointKey
	Succeeded    bool          // at least once
	Failures     int64         // after the last success
	FailingFor   time.Duration // since the first of them
	Gone         bool          // it asked for no more
	DisableAfter time.Duration // of failing; 0: never
}

// One row, by its key. Disabling is decided here, on the database's clock, by the row that several relays write; a disabled
// receiver stays as it is until somebody enables it.
const reportEndpointSQL = `
update @webhook_endpoints w
   set failures = $4::bigint + case when $3::boolean then 0 else w.failures end,
       failing_since = case when $4::bigint > 0
                            then least(case when not $3::boolean then w.failing_since end, statement_timestamp() - $5::bigint * interval '1 microsecond')
                            when not $3::boolean then w.failing_since end,
       disabled_at = case when w.disabled_at is not null then w.disabled_at
                          when $6::boolean or {failing} then statement_timestamp() end,
       reason = case when w.disabled_at is not null then w.reason
                     when $6::boolean then 'gone'
                     when {failing} then 'failing' end
 where w.name = $1 and w.target = $2
returning` + endpointColumns

// failingTooLong stands for {failing}: it fails now, did so all the time, and has for long enough.
const failingTooLong = `(not $3::boolean and $4::bigint > 0 and $7::bigint > 0
                                and w.failing_since < statement_timestamp() - $7::bigint * interval '1 microsecond')`

// ReportEndpoint writes what was seen and returns what is known now. found is false if there is no such receiver.
func (s *Store) ReportEndpoint(ctx context.Context, pool *pgxpool.Pool, r EndpointReport) (e Endpoint, found bool, err error) {
	var rows []Endpoint
	err = pipeline(ctx, pool, func(b *pgx.Batch) {
		b.Queue(s.sql.reportEndpoint, r.Name, r.Target, r.Succeeded, r.Failures, micros(r.FailingFor), r.Gone, micros(r.DisableAfter)).
			Query(func(got pgx.Rows) (err error) {
				rows, err = pgx.CollectRows(got, scanEndpoint)
				return err
			})
	})
	if err != nil || len(rows) == 0 {
		return Endpoint{}, false, err
	}
	return rows[0], true, nil
}

// What was missed is remembered until it is back, so that enabling can be repeated after an error.
const enableEndpointSQL = `
with enabled as (
    update @webhook_endpoints w
       set missed_since = least(w.missed_since, w.failing_since, w.disabled_at), enabled_at = statement_timestamp(),
           failures = 0, failing_since = null, disabled_at = null, reason = null
      from (select k.name, k.target from @webhook_endpoints k where k.name = $1 order by k.target for update) k
     where w.name = k.name and w.target = k.target
    returning w.name, w.missed_since
), operation as (
    insert into @operations (what, endpoint, actor, reason) select distinct 'enable_endpoint', name, $2, $3 from enabled
)
select count(*), min(missed_since) from enabled`

// EnableEndpoint lets events go to a receiver again. found is false if there is none of that name; since is from when on it
// has missed events, or zero.
func (s *Store) EnableEndpoint(ctx context.Context, q Querier, name string, by By) (since time.Time, found bool, err error) {
	var n int
	var at pgtype.Timestamptz
	err = q.QueryRow(ctx, s.sql.enableEndpoint, name, by.Actor, by.Reason).Scan(&n, &at)
	return at.Time, n > 0, err
}

const nothingMissedSQL = `update @webhook_endpoints set missed_since = null where name = $1 and missed_since = $2`

// NothingMissed notes that what a receiver had missed since then is back.
func (s *Store) NothingMissed(ctx context.Context, q Querier, name string, since time.Time) error {
	_, err := q.Exec(ctx, s.sql.nothingMissed, name, since)
	return err
}

// Events that were held for an address that is no more, or just after their endpoint was enabled.
const heldSQL = `
select n.name
  from unnest($1::text[]) as n(name)
 cross join lateral (
     select from @outbox_events e
      where e.parked_reason = 'disabled' and e.endpoint >= n.name and e.endpoint <= n.name
        and e.parked_at < statement_timestamp() - interval '10 seconds'
      order by e.endpoint limit 1) e`

// Held tells for which receivers events have been held for a while.
func (s *Store) Held(ctx context.Context, pool *pgxpool.Pool, names []string) (found []string, err error) {
	err = pinned(ctx, pool, func(b *pgx.Batch) {
		b.Queue(s.sql.held, names).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
	})
	return found, err
}
