package notifyq

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq/internal/store"
)

// Cancel ends a PENDING job: it will never be delivered, and no event is written. A job that is CANCELLED already is
// returned unchanged; any other is returned with ErrNotCancellable. It races safely with claiming: exactly one wins.
func (c *Client) Cancel(ctx context.Context, id uuid.UUID, op Operation) (job Job, err error) {
	err = c.inTx(ctx, func(q store.Querier) error {
		job, err = c.cancel(ctx, q, id, op)
		return err
	})
	err = databaseError("cancel", err)
	c.tell(err, "job.cancelled", job, op)
	return job, err
}

// CancelTx is Cancel in the caller's transaction. It holds the job's row until that ends.
func (c *Client) CancelTx(ctx context.Context, tx pgx.Tx, id uuid.UUID, op Operation) (Job, error) {
	if c.broken != nil {
		return Job{}, c.broken
	}
	return c.cancel(ctx, tx, id, op)
}

func (c *Client) cancel(ctx context.Context, q store.Querier, id uuid.UUID, op Operation) (Job, error) {
	if err := checkOperation(op); err != nil {
		return Job{}, err
	}
	// A claim that ends between the two statements leaves a job that could not be cancelled and now can be.
	const tries = 5
	for try := 1; ; try++ {
		done, err := c.store.Cancel(ctx, q, id, c.tenant, store.By{Actor: op.Actor, Reason: op.Reason})
		if err != nil {
			return Job{}, databaseError("cancel", err)
		}
		job, err := c.get(ctx, q, id)
		switch {
		case err != nil || done || job.Status == StatusCancelled:
			return job, err
		case job.Status != StatusPending || try == tries:
			return job, ErrNotCancellable
		}
	}
}

// Redrive sends a FAILED or DEAD_LETTERED job back to the queue, due now, with a fresh budget of attempts and the same
// delivery key; its last error stays until the next attempt. Any other job, and one that has expired or was erased, is
// returned with ErrNotRedrivable.
func (c *Client) Redrive(ctx context.Context, id uuid.UUID, op Operation) (job Job, err error) {
	if err := checkOperation(op); err != nil {
		return Job{}, err
	}
	err = c.inTx(ctx, func(q store.Querier) error {
		done, err := c.store.Redrive(ctx, q, id, c.tenant, store.By{Actor: op.Actor, Reason: op.Reason})
		if err != nil {
			return databaseError("redrive", err)
		}
		job, err = c.get(ctx, q, id)
		if err == nil && !done {
			err = ErrNotRedrivable
		}
		return err
	})
	err = databaseError("redrive", err)
	c.tell(err, "job.redriven", job, op)
	if err == nil {
		c.wakers.wake()
	}
	return job, err
}

// RedriveParams choose the jobs of a bulk redrive. Its zero value means the 100 oldest DEAD_LETTERED jobs, due now.
type RedriveParams struct {
	// Status is StatusDeadLettered, which is the default, or StatusFailed.
	Status Status
	// Recipient and Tenant narrow the choice where they are not empty.
	Recipient string
	Tenant    string
	// Since leaves out what ended before it: what died before an outage began.
	Since time.Time
	// Limit is how many at most: default 100, at most 1,000. Call again until Remaining is 0.
	Limit int
	// PerSecond spaces the due times, so that a large dead-letter queue does not fall upon the provider at once. A
	// further paced call goes on where the one before ends. Zero makes all due now; at most 1,000,000.
	PerSecond float64
	Operation Operation
}

// Redriven is what a bulk redrive did.
type Redriven struct {
	Retried   int
	Remaining int // that the same parameters would still choose; counted up to 100,000
}

const maxRedrive = 1000

// RedriveMany redrives ended jobs, oldest first. Calls at the same time share the jobs; none is redriven twice.
func (c *Client) RedriveMany(ctx context.Context, p RedriveParams) (Redriven, error) {
	bulk, err := c.bulk(p)
	if err != nil {
		return Redriven{}, err
	}
	var done Redriven
	err = c.inTx(ctx, func(q store.Querier) (err error) {
		done.Retried, done.Remaining, err = c.store.RedriveMany(ctx, q, bulk, store.By{Actor: p.Operation.Actor, Reason: p.Operation.Reason})
		return err
	})
	if err != nil {
		return Redriven{}, databaseError("redrive", err)
	}
	c.log.Info("jobs.redriven", "status", cmp.Or(p.Status, StatusDeadLettered), "retried", done.Retried, "remaining", done.Remaining,
		"byRecipient", p.Recipient != "", "actor", p.Operation.Actor)
	if done.Retried > 0 {
		c.wakers.wake()
	}
	return done, nil
}

func (c *Client) bulk(p RedriveParams) (store.Bulk, error) {
	p.Status, p.Limit = cmp.Or(p.Status, StatusDeadLettered), cmp.Or(p.Limit, 100)
	b := store.Bulk{Tenant: c.tenant, Since: p.Since, Limit: p.Limit}
	switch {
	case c.broken != nil:
		return b, c.broken
	case p.Status != StatusDeadLettered && p.Status != StatusFailed:
		return b, invalid("Status", "must be DEAD_LETTERED or FAILED")
	case p.Limit < 1 || p.Limit > maxRedrive:
		return b, invalid("Limit", "must be between 1 and 1,000")
	}
	var err error
	if b.Every, err = pace(p.PerSecond); err != nil {
		return b, err
	}
	if err := checkTime("Since", p.Since); err != nil {
		return b, err
	}
	if err := checkOperation(p.Operation); err != nil {
		return b, err
	}
	b.Status, _ = p.Status.number()
	tenant, err := c.narrow(p.Tenant)
	if err != nil {
		return b, err
	}
	b.Tenant = tenant
	if p.Recipient != "" {
		if err := checkName("Recipient", p.Recipient, MaxRecipientBytes); err != nil {
			return b, err
		}
		key := c.cfg.RecipientKey("", p.Recipient)
		b.RecipientKey = &key
	}
	return b, nil
}

// narrow is the tenant that a call is limited to: the client's own, or the one that the call names, or none.
func (c *Client) narrow(tenant string) (*string, error) {
	switch {
	case tenant == "":
		return c.tenant, nil
	case c.tenant != nil && *c.tenant != tenant:
		return nil, invalid("Tenant", "must be empty or the client's own")
	}
	return &tenant, checkText("Tenant", tenant, MaxTenantBytes)
}

// PauseChannel keeps workers from claiming jobs of a channel until ResumeChannel; what is claimed already goes on. It
// holds for all tenants, so a client made by ForTenant may not.
func (c *Client) PauseChannel(ctx context.Context, channel Channel, op Operation) error {
	return c.setPaused(ctx, channel, true, op)
}

// ResumeChannel undoes PauseChannel. Resuming a channel that is not paused changes nothing.
func (c *Client) ResumeChannel(ctx context.Context, channel Channel, op Operation) error {
	err := c.setPaused(ctx, channel, false, op)
	if err == nil {
		c.wakers.wake()
	}
	return err
}

func (c *Client) setPaused(ctx context.Context, channel Channel, paused bool, op Operation) error {
	if c.tenant != nil {
		return invalid("Tenant", "must not be set: a channel is paused for all tenants")
	}
	if err := checkChannel("Channel", channel); err != nil {
		return err
	}
	if err := checkOperation(op); err != nil {
		return err
	}
	err := c.inTx(ctx, func(q store.Querier) error {
		return c.store.SetPaused(ctx, q, string(channel), paused, store.By{Actor: op.Actor, Reason: op.Reason})
	})
	if err != nil {
		return databaseError("pause", err)
	}
	event := "channel.resumed"
	if paused {
		event = "channel.paused"
	}
	c.log.Info(event, "channel", channel, "actor", op.Actor)
	return nil
}

// Erased is what EraseRecipient did.
type Erased struct {
	Cancelled int // live jobs that were cancelled
	Erased    int // jobs that lost their recipient, payload and error texts, the cancelled ones among them
	// InFlight are jobs that are left, since a worker holds them or held them a moment ago. They end within their lease;
	// call again then.
	InFlight int
}

// eraseBatch bounds one transaction of an erasure.
const eraseBatch = 500

// EraseRecipient removes what is personal of a recipient's jobs: waiting ones are cancelled, and every finished one
// loses recipient, payload, error texts and the provider's id, and can't be redriven. What happened to them, their keys
// and the events, which name no recipient, stay. It goes by the RecipientKey, in bounded transactions, and can be called
// again after an error.
func (c *Client) EraseRecipient(ctx context.Context, recipient string) (Erased, error) {
	var total Erased
	if c.broken != nil {
		return total, c.broken
	}
	if err := checkName("Recipient", recipient, MaxRecipientBytes); err != nil {
		return total, err
	}
	key := c.cfg.RecipientKey("", recipient)
	for {
		var cancelled, erased int
		err := c.inTx(ctx, func(q store.Querier) (err error) {
			cancelled, erased, err = c.store.EraseBatch(ctx, q, key, c.tenant, eraseBatch)
			return err
		})
		if err != nil {
			return total, databaseError("erase", err)
		}
		total.Cancelled, total.Erased = total.Cancelled+cancelled, total.Erased+erased
		if cancelled == 0 && erased == 0 {
			break
		}
	}
	err := c.inTx(ctx, func(q store.Querier) (err error) {
		total.InFlight, err = c.store.EraseEnd(ctx, q, key, c.tenant, total.Erased)
		return err
	})
	if err != nil {
		return total, databaseError("erase", err)
	}
	c.log.Info("recipient.erased", "cancelled", total.Cancelled, "erased", total.Erased, "inFlight", total.InFlight)
	return total, nil
}

// inTx runs do in a READ COMMITTED transaction and repeats it on a conflict with another one.
func (c *Client) inTx(ctx context.Context, do func(q store.Querier) error) error {
	if c.broken != nil {
		return c.broken
	}
	return again(ctx, func() error { return store.InTx(ctx, c.pool, do) })
}

// tell logs an operator's action on one job.
func (c *Client) tell(err error, event string, job Job, op Operation) {
	switch {
	case err == nil:
		c.log.Info(event, "jobId", job.ID, "actor", op.Actor)
	case errors.Is(err, ErrNotCancellable), errors.Is(err, ErrNotRedrivable):
		c.log.Info(event+"_refused", "jobId", job.ID, "status", job.Status, "actor", op.Actor)
	}
}
