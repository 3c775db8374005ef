package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Job is one job as it stands, without its payload.
type Job struct {
	ID                                                     uuid.UUID
	Status                                                 int16
	Tenant, Key, Recipient, Channel                        string
	Priority, AttemptCount, MaxAttempts                    int16
	RedriveCount                                           int32
	Granted                                                bool
	LastError, Reason, ProviderID, LockedBy                string
	ScheduledAt, NextAttemptAt, ExpiresAt, LeasedUntil     time.Time
	FinishedAt, LastRedrivenAt, ErasedAt, Created, Updated time.Time
}

// jobColumns reads a job from its three tables. A job that is being moved between two of them is seen in one, since a
// transition is one statement.
const jobColumns = `
       n.id, coalesce(o.status, q.status, 0), n.tenant, n.idempotency_key, n.recipient, n.channel, n.priority,
       coalesce(o.attempt_count, q.attempt_count, 0), coalesce(o.max_attempts, q.max_attempts, n.max_attempts),
       coalesce(o.redrive_count, q.redrive_count, 0), coalesce(o.reconciliation_granted, q.reconciliation_granted, false),
       coalesce(o.last_error, q.last_error, ''), coalesce(o.reason, ''), coalesce(o.provider_id, ''), coalesce(q.locked_by, ''),
       n.scheduled_at, q.next_attempt_at, n.expires_at, q.leased_until, o.finished_at,
       coalesce(o.last_redriven_at, q.last_redriven_at), n.erased_at, n.created_at, coalesce(o.finished_at, q.updated_at, n.created_at)`

// No index serves IS NOT DISTINCT FROM: that of tenants would be walked for all jobs of one.
const jobsSQL = `
select` + jobColumns + `
  from @notifications n
  left join @notification_queue q on q.id = n.id
  left join @notification_outcomes o on o.id = n.id
 where n.id = any($1::uuid[]) and ($2::text is null or n.tenant is not distinct from $2)`

const jobByKeySQL = `
select` + jobColumns + `
  from @notifications n
  left join @notification_queue q on q.id = n.id
  left join @notification_outcomes o on o.id = n.id
 where n.tenant = $1 and n.idempotency_key = $2`

// Jobs reads jobs by id, in no order; a nil tenant means every tenant's.
func (s *Store) Jobs(ctx context.Context, q Querier, tenant *string, ids ...uuid.UUID) ([]Job, error) {
	rows, err := q.Query(ctx, s.sql.jobs, uuids(ids), tenant)
	return collectJobs(rows, err)
}

// JobByKey reads the job that holds a key; no rows if none does.
func (s *Store) JobByKey(ctx context.Context, q Querier, tenant, key string) ([]Job, error) {
	rows, err := q.Query(ctx, s.sql.jobByKey, tenant, key)
	return collectJobs(rows, err)
}

func collectJobs(rows pgx.Rows, err error) ([]Job, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Job, error) {
		var j Job
		err := row.Scan(j.targets()...)
		return j, err
	})
}

// targets are the places of jobColumns.
func (j *Job) targets() []any {
	return []any{
		&j.ID, &j.Status, &j.Tenant, &j.Key, &j.Recipient, &j.Channel, &j.Priority,
		&j.AttemptCount, &j.MaxAttempts, &j.RedriveCount, &j.Granted,
		&j.LastError, &j.Reason, &j.ProviderID, &j.LockedBy,
		&j.ScheduledAt,
		zeroable{&j.NextAttemptAt},
		zeroable{&j.ExpiresAt},
		zeroable{&j.LeasedUntil},
		zeroable{&j.FinishedAt},
		zeroable{&j.LastRedrivenAt},
		zeroable{&j.ErasedAt},
		&j.Created, &j.Updated,
	}
}

// zeroable scans NULL as the zero time.
type zeroable struct{ t *time.Time }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (z zeroable) ScanTimestamptz(v pgtype.Timestamptz) error {
	*z.t = time.Time{}
	if v.Valid {
		*z.t = v.Time
	}
	return nil
}

// Attempt is one recorded attempt; the last attempt of a SENT job is made up from its outcome.
type Attempt struct {
	RedriveCount         int32
	Number               int16
	StartedAt, EndedAt   time.Time
	Class, Error, Worker string
}

const attemptsSQL = `
select a.redrive_count, a.number, a.started_at, a.ended_at, a.class, coalesce(a.error, ''), a.worker
  from @notification_attempts a where a.id = $1
union all
select o.redrive_count, o.attempt_count, null, o.finished_at, 'sent', '', ''
  from @notification_outcomes o where o.id = $1 and o.status = 2
 order by 1, 2`

// Attempts reads the attempts of a job, oldest first.
func (s *Store) Attempts(ctx context.Context, q Querier, id uuid.UUID) ([]Attempt, error) {
	rows, err := q.Query(ctx, s.sql.attempts, pgUUID(id))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Attempt, error) {
		var a Attempt
		err := row.Scan(&a.RedriveCount, &a.Number, zeroable{&a.StartedAt}, &a.EndedAt, &a.Class, &a.Error, &a.Worker)
		return a, err
	})
}
