package notifyq

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq/internal/store"
)

// Get reads one job. ErrNotFound if there is none with this id, or another tenant's. Calls that come at the same time
// share a statement, which is sent after they began.
func (c *Client) Get(ctx context.Context, id uuid.UUID) (Job, error) {
	if c.broken != nil {
		return Job{}, c.broken
	}
	job, err := c.reads.Do(ctx, id)
	switch {
	case err != nil:
		return Job{}, databaseError("read", err)
	case c.tenant != nil && job.Tenant != *c.tenant:
		return Job{}, ErrNotFound
	}
	return job, nil
}

func (c *Client) get(ctx context.Context, q store.Querier, id uuid.UUID) (Job, error) {
	if c.broken != nil {
		return Job{}, c.broken
	}
	rows, err := c.store.Jobs(ctx, q, c.tenant, id)
	return only(rows, err)
}

// GetByKey reads the job that holds an idempotency key in the client's tenant; for a client without one, in the empty
// tenant. ErrNotFound if there is none.
func (c *Client) GetByKey(ctx context.Context, key string) (Job, error) {
	if c.broken != nil {
		return Job{}, c.broken
	}
	if err := checkName("IdempotencyKey", key, MaxIdempotencyKeyBytes); err != nil {
		return Job{}, err
	}
	tenant := ""
	if c.tenant != nil {
		tenant = *c.tenant
	}
	rows, err := c.store.JobByKey(ctx, c.pool, tenant, key)
	return only(rows, err)
}

func only(rows []store.Job, err error) (Job, error) {
	switch {
	case err != nil:
		return Job{}, databaseError("read", err)
	case len(rows) == 0:
		return Job{}, ErrNotFound
	}
	return jobFromRow(&rows[0]), nil
}

// Attempts lists the attempts of a job over all its redrive generations, oldest first. Refunded ones are not among
// them. The start of the attempt that ended in SENT is not recorded, and zero.
func (c *Client) Attempts(ctx context.Context, id uuid.UUID) ([]Attempt, error) {
	if _, err := c.Get(ctx, id); err != nil {
		return nil, err
	}
	rows, err := c.store.Attempts(ctx, c.pool, id)
	if err != nil {
		return nil, databaseError("read", err)
	}
	attempts := make([]Attempt, len(rows))
	for i, r := range rows {
		attempts[i] = Attempt{
			RedriveCount: int(r.RedriveCount), Number: int(r.Number), StartedAt: utc(r.StartedAt), EndedAt: utc(r.EndedAt),
			Class: r.Class, Error: r.Error, Worker: r.Worker,
		}
	}
	return attempts, nil
}

// jobFromRow is the one place where stored numbers become words.
func jobFromRow(r *store.Job) Job {
	j := Job{
		ID: r.ID, Status: statusFromNumber(r.Status), Tenant: r.Tenant, IdempotencyKey: r.Key, Recipient: r.Recipient,
		Channel: Channel(r.Channel), Priority: Priority(r.Priority),
		ScheduledAt: utc(r.ScheduledAt), NextAttemptAt: utc(r.NextAttemptAt), ExpiresAt: utc(r.ExpiresAt),
		AttemptCount: int(r.AttemptCount), MaxAttempts: int(r.MaxAttempts),
		LastError: r.LastError, Reason: r.Reason, ProviderID: r.ProviderID, LockedBy: r.LockedBy, LeasedUntil: utc(r.LeasedUntil),
		ErasedAt: utc(r.ErasedAt), RedriveCount: int(r.RedriveCount), LastRedrivenAt: utc(r.LastRedrivenAt),
		ReconciliationGranted: r.Granted, CreatedAt: utc(r.Created), UpdatedAt: utc(r.Updated),
	}
	switch j.Status {
	case StatusSent:
		j.SentAt = utc(r.FinishedAt)
	case StatusFailed:
		j.FailedAt = utc(r.FinishedAt)
	case StatusDeadLettered:
		j.DeadLetteredAt = utc(r.FinishedAt)
	case StatusCancelled:
		j.CancelledAt = utc(r.FinishedAt)
	case StatusPending, StatusProcessing:
	}
	return j
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// dbError is an error of the database with what may be said of it. The original, which can quote values, is there for
// errors.As.
type dbError struct {
	what string
	err  error
}

func (e *dbError) Error() string {
	if errors.Is(e.err, ErrSchema) {
		return "notifyq: " + e.what + ": " + ErrSchema.Error() + ": " + store.Describe(e.err)
	}
	return "notifyq: " + e.what + ": " + store.Describe(e.err)
}

func (e *dbError) Unwrap() error { return e.err }

// databaseError maps what the database said to what a caller may branch on, and leaves what was mapped already.
func databaseError(what string, err error) error {
	for _, known := range []error{ErrInvalid, ErrNotFound, ErrNotCancellable, ErrNotRedrivable, pgx.ErrTxClosed} {
		if errors.Is(err, known) {
			return err
		}
	}
	var mapped *dbError
	if err == nil || errors.As(err, &mapped) {
		return err
	}
	switch store.Code(err) {
	case "3F000", "42P01", "42703", "42883", "42501": // schema, table, column, function, privilege
		return &dbError{what, errors.Join(ErrSchema, err)}
	}
	return &dbError{what, err}
}
