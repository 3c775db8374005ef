package notifyq

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/store"
)

// ClientConfig has working defaults in its zero value.
type ClientConfig struct {
	// Schema holds notifyq's tables. Default "notifyq"; [a-z_][a-z0-9_]*, at most 63 bytes.
	Schema string
	// Logger gets the operator events (job.cancelled, job.redriven and the like). Default slog.Default().
	Logger *slog.Logger
	// MaxAttempts is the budget of a notification that names none. Default 4; 1 to 1,000. It may be changed at any time:
	// the same request again is the same job as before, with the budget that it got then.
	MaxAttempts int
	// OnAmbiguous is the policy of a notification that names none. Default AmbiguousRetry. It may be changed likewise.
	OnAmbiguous AmbiguousPolicy
	// RecipientKey makes what rate limits, lists and erasure go by of a recipient, so that two spellings of one address
	// can count as one. Default: the recipient as given. It is called with an empty channel where none is known.
	RecipientKey func(channel Channel, recipient string) string
	// TraceContext reads what a trace goes on by, a W3C traceparent, from the context of a Schedule. It is stored with the
	// job and handed to the provider as Delivery.TraceContext. At most 512 bytes without control characters; anything else
	// is left out. Default none.
	TraceContext func(ctx context.Context) string
}

// Client schedules notifications and reads and operates on jobs. It is safe for concurrent use, holds no connection of
// its own and needs no closing.
type Client struct {
	pool    *pgxpool.Pool
	store   *store.Store
	cfg     ClientConfig
	log     *slog.Logger
	tenant  *string // nil: every tenant's
	broken  error   // of ForTenant: returned by every call
	wakers  *wakers // for due jobs
	relays  *wakers // for due events
	commits *commits
	reads   *reads
}

// NewClient checks the configuration; it does not touch the database. The pool stays the caller's.
func NewClient(pool *pgxpool.Pool, cfg ClientConfig) (*Client, error) {
	if pool == nil {
		return nil, invalid("pool", "must not be nil")
	}
	cfg.Schema = cmp.Or(cfg.Schema, DefaultSchema)
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, DefaultMaxAttempts)
	cfg.OnAmbiguous = cmp.Or(cfg.OnAmbiguous, AmbiguousRetry)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.RecipientKey == nil {
		cfg.RecipientKey = func(_ Channel, recipient string) string { return recipient }
	}
	switch {
	case !schema.ValidName(cfg.Schema):
		return nil, invalid("Schema", schemaRule)
	case cfg.MaxAttempts < 1 || cfg.MaxAttempts > MaxAttemptsLimit:
		return nil, invalid("MaxAttempts", fmt.Sprintf("must be between 1 and %d", MaxAttemptsLimit))
	case cfg.OnAmbiguous != AmbiguousRetry && cfg.OnAmbiguous != AmbiguousPark:
		return nil, invalid("OnAmbiguous", `must be "retry" or "park"`)
	}
	c := &Client{pool: pool, store: newStore(cfg.Schema), cfg: cfg, log: cfg.Logger}
	c.wakers, c.relays = c.newWakers(store.KindJobs), c.newWakers(store.KindEvents)
	c.commits, c.reads = newCommits(c), newReads(c)
	return c, nil
}

const schemaRule = "must match [a-z_][a-z0-9_]*, be at most 63 bytes and not begin with pg_"

func newStore(name string) *store.Store {
	return store.New(name, store.Guards{
		Cancel:  sourcesOf(operatorTransitions, StatusCancelled),
		Redrive: sourcesOf(operatorTransitions, StatusPending),
	})
}

// ForTenant is the client limited to one tenant: what it schedules belongs to it, and another tenant's jobs do not exist
// for it. At most 64 bytes without control characters; with another name, every call of the returned client fails with
// ErrInvalid, as it does if c is limited to another tenant already. The empty name is the tenant of jobs that name none.
func (c *Client) ForTenant(tenant string) *Client {
	limited := *c
	limited.tenant = &tenant
	switch {
	case c.broken != nil: // and stays so
	case c.tenant != nil && *c.tenant != tenant:
		limited.broken = invalid("Tenant", "must be the client's own")
	default:
		limited.broken = checkText("Tenant", tenant, MaxTenantBytes)
	}
	return &limited
}

// Schedule stores one notification and returns once it is committed, in a transaction of its own or one that it shares
// with other calls of the moment. It returns an *InvalidError or ErrKeyReused if nothing was stored because of the
// request, and any other error if the database did not answer: then the same call may be repeated safely.
func (c *Client) Schedule(ctx context.Context, n Notification) (Scheduled, error) {
	if c.broken != nil {
		return Scheduled{}, c.broken
	}
	job, err := c.newJob(n)
	if err != nil {
		return Scheduled{Err: err}, err
	}
	job.TraceContext = c.traceContext(ctx)
	return c.schedule(ctx, job)
}

// ScheduleTx stores one notification in the caller's transaction: it exists if and only if that commits. A key that is
// taken leaves a READ COMMITTED transaction usable. At REPEATABLE READ and above PostgreSQL may end the transaction with
// SQLSTATE 40001, which comes back as such. The lock on a new key is held until the transaction ends.
//
// Workers do not see the job before the commit, and find it by polling after it. Wake after the commit, or WakeTx before
// it, shortens that.
func (c *Client) ScheduleTx(ctx context.Context, tx pgx.Tx, n Notification) (Scheduled, error) {
	return one(c.ScheduleManyTx(ctx, tx, []Notification{n}))
}

func one(many []Scheduled, err error) (Scheduled, error) {
	if err != nil {
		return Scheduled{}, err
	}
	return many[0], many[0].Err
}

// ScheduleMany stores up to 10,000 notifications in one transaction and answers each at its place. An item that is
// invalid, or whose key was used for another request, has its Err set, and the others are stored all the same.
func (c *Client) ScheduleMany(ctx context.Context, ns []Notification) ([]Scheduled, error) {
	batch, err := c.prepare(ctx, ns)
	if err != nil {
		return nil, err
	}
	if err := batch.commit(ctx, 0); err != nil {
		return nil, databaseError("schedule", err)
	}
	if batch.due {
		c.wakers.wake()
	}
	return batch.answers, nil
}

// commit stores the batch in a transaction of its own. lockWait bounds the wait for keys that others hold; 0 does not.
func (b *batch) commit(ctx context.Context, lockWait time.Duration) error {
	return b.store(ctx, b.c.pool, func(jobs []store.NewJob, places []int) (out []store.Inserted, err error) {
		err = again(ctx, func() error {
			out, err = b.c.store.InsertCommitted(ctx, b.c.pool, jobs, places, lockWait)
			return err
		})
		return out, err
	})
}

// ScheduleManyTx is ScheduleMany in the caller's transaction; see ScheduleTx.
func (c *Client) ScheduleManyTx(ctx context.Context, tx pgx.Tx, ns []Notification) ([]Scheduled, error) {
	batch, err := c.prepare(ctx, ns)
	if err != nil {
		return nil, err
	}
	err = batch.store(ctx, tx, func(jobs []store.NewJob, places []int) ([]store.Inserted, error) {
		return c.store.Insert(ctx, tx, jobs, places)
	})
	if err != nil {
		return nil, databaseError("schedule", err)
	}
	return batch.answers, nil
}

// again repeats do on a conflict with another transaction, a few times.
func again(ctx context.Context, do func() error) error {
	const tries = 5
	var err error
	for range tries {
		if err = do(); err == nil || !store.MayRepeat(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// batch is a ScheduleMany in progress.
type batch struct {
	c       *Client
	answers []Scheduled
	jobs    []store.NewJob // the valid ones
	places  []int          // where each stands in answers
	due     bool           // some are due now
}

func (c *Client) prepare(ctx context.Context, ns []Notification) (*batch, error) {
	switch {
	case c.broken != nil:
		return nil, c.broken
	case len(ns) > MaxBatch:
		return nil, invalid("Notifications", fmt.Sprintf("must be at most %d", MaxBatch))
	}
	payloads := 0
	for i := range ns {
		payloads += len(ns[i].Payload)
	}
	if payloads > MaxBatchPayloadBytes {
		return nil, invalid("Notifications", fmt.Sprintf("must have at most %d bytes of payload together", MaxBatchPayloadBytes))
	}
	b := &batch{c: c, answers: make([]Scheduled, len(ns)), jobs: make([]store.NewJob, 0, len(ns)), places: make([]int, 0, len(ns))}
	trace := c.traceContext(ctx)
	for i := range ns {
		job, err := c.newJob(ns[i])
		if err != nil {
			b.answers[i].Err = err
			continue
		}
		job.TraceContext = trace
		b.jobs, b.places = append(b.jobs, job), append(b.places, i)
	}
	return b, nil
}

// traceContext is what is stored of the caller's trace.
func (c *Client) traceContext(ctx context.Context) string {
	const maxBytes = 512
	if c.cfg.TraceContext == nil {
		return ""
	}
	trace := c.cfg.TraceContext(ctx)
	if checkText("TraceContext", trace, maxBytes) != nil {
		return ""
	}
	return trace
}

// newJob checks n and fills in its defaults.
func (c *Client) newJob(n Notification) (store.NewJob, error) {
	attemptsLeftOut, parkLeftOut := n.MaxAttempts == 0, n.OnAmbiguous == ""
	n.Priority = cmp.Or(n.Priority, PriorityNormal)
	n.MaxAttempts = cmp.Or(n.MaxAttempts, c.cfg.MaxAttempts)
	n.OnAmbiguous = cmp.Or(n.OnAmbiguous, c.cfg.OnAmbiguous)
	if c.tenant != nil {
		if n.Tenant != "" && n.Tenant != *c.tenant {
			return store.NewJob{}, invalid("Tenant", "must be empty or the client's own")
		}
		n.Tenant = *c.tenant
	}
	if err := n.check(); err != nil {
		return store.NewJob{}, err
	}
	n.SendAt, n.ExpiresAt = wholeMicros(n.SendAt), wholeMicros(n.ExpiresAt)
	key := c.cfg.RecipientKey(n.Channel, n.Recipient)
	if err := checkName("RecipientKey", key, MaxRecipientBytes); err != nil {
		return store.NewJob{}, err
	}
	return store.NewJob{
		Tenant: n.Tenant, Key: n.IdempotencyKey, Recipient: n.Recipient, RecipientKey: key, Channel: string(n.Channel),
		Fingerprint: n.fingerprint(), Payload: n.Payload, Priority: int16(n.Priority), MaxAttempts: int16(n.MaxAttempts),
		Park: n.OnAmbiguous == AmbiguousPark, SendAt: n.SendAt, Delay: n.Delay, ExpiresAt: n.ExpiresAt,
		AttemptsLeftOut: attemptsLeftOut, ParkLeftOut: parkLeftOut,
	}, nil
}

// wholeMicros rounds up to what PostgreSQL stores: rounding down could send before the time asked for, and what comes
// back must be what was stored.
func wholeMicros(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	whole := t.Truncate(time.Microsecond)
	if whole.Before(t) {
		whole = whole.Add(time.Microsecond)
	}
	return whole.UTC()
}

type inserter func(jobs []store.NewJob, places []int) ([]store.Inserted, error)

// store inserts what is valid and reads back who holds the keys of what was not inserted. A holder that was cleaned up
// between the two leaves its key free, so that item is inserted again.
func (b *batch) store(ctx context.Context, q store.Querier, insert inserter) error {
	const rounds = 5
	for range rounds {
		if len(b.jobs) == 0 {
			return nil
		}
		b.sort()
		inserted, err := insert(b.jobs, b.places)
		if err != nil {
			return err
		}
		rest := b.take(inserted)
		if len(rest) == 0 {
			return nil
		}
		if err := b.replay(ctx, q, rest, inserted); err != nil {
			return err
		}
	}
	return fmt.Errorf("keys were taken and freed again %d times", rounds)
}

// sort brings jobs into the order of their keys, in which every batch takes its locks.
func (b *batch) sort() {
	order := make([]int, len(b.jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(b.jobs[i].Tenant, b.jobs[j].Tenant), cmp.Compare(b.jobs[i].Key, b.jobs[j].Key), cmp.Compare(i, j))
	})
	jobs, places := make([]store.NewJob, len(order)), make([]int, len(order))
	for to, from := range order {
		jobs[to], places[to] = b.jobs[from], b.places[from]
	}
	b.jobs, b.places = jobs, places
}

// take answers what was inserted and returns the indices of the rest.
func (b *batch) take(inserted []store.Inserted) (rest []int) {
	for i, place := range b.places {
		in := inserted[place]
		if in.ID == uuid.Nil {
			rest = append(rest, i)
			continue
		}
		b.answers[place] = Scheduled{ID: in.ID, Job: freshJob(&b.jobs[i], in)}
		b.due = b.due || !in.NextAttemptAt.After(in.CreatedAt)
	}
	return rest
}

func freshJob(n *store.NewJob, in store.Inserted) Job {
	return Job{
		ID: in.ID, Status: StatusPending, Tenant: n.Tenant, IdempotencyKey: n.Key, Recipient: n.Recipient,
		Channel: Channel(n.Channel), Priority: Priority(n.Priority), MaxAttempts: int(n.MaxAttempts),
		ScheduledAt: in.ScheduledAt.UTC(), NextAttemptAt: in.NextAttemptAt.UTC(), ExpiresAt: n.ExpiresAt,
		CreatedAt: in.CreatedAt.UTC(), UpdatedAt: in.CreatedAt.UTC(),
	}
}

// replay answers those of rest whose keys are held, or that only the database's clock could find wrong, and keeps the
// others for another round. A replay comes before a fault: a request that was accepted stays accepted when its times
// have gone by.
func (b *batch) replay(ctx context.Context, q store.Querier, rest []int, inserted []store.Inserted) error {
	tenants, keys := make([]string, len(rest)), make([]string, len(rest))
	for n, i := range rest {
		tenants[n], keys[n] = b.jobs[i].Tenant, b.jobs[i].Key
	}
	holders, err := b.c.store.ReadBack(ctx, q, tenants, keys)
	if err != nil {
		return err
	}
	var again []int
	var replayed []int
	for n, i := range rest {
		answer := &b.answers[b.places[i]]
		holder, held := holders[n]
		switch {
		case held && !sameRequest(&holder, &b.jobs[i]):
			answer.Err = ErrKeyReused
		case held:
			answer.ID, answer.Replayed = holder.ID, true
			replayed = append(replayed, b.places[i])
		case inserted[b.places[i]].Fault == store.FaultHorizon:
			answer.Err = invalid("SendAt", "must be at most 365 days ahead")
		case inserted[b.places[i]].Fault == store.FaultExpiry:
			answer.Err = invalid("ExpiresAt", "must be after the due time")
		default:
			again = append(again, i)
		}
	}
	b.keep(again)
	return b.readJobs(ctx, q, replayed)
}

// keep leaves only the jobs at the given indices.
func (b *batch) keep(indices []int) {
	jobs, places := make([]store.NewJob, 0, len(indices)), make([]int, 0, len(indices))
	for _, i := range indices {
		jobs, places = append(jobs, b.jobs[i]), append(places, b.places[i])
	}
	b.jobs, b.places = jobs, places
}

// readJobs fills in the present state of replayed items.
func (b *batch) readJobs(ctx context.Context, q store.Querier, places []int) error {
	if len(places) == 0 {
		return nil
	}
	ids := make([]uuid.UUID, len(places))
	for i, p := range places {
		ids[i] = b.answers[p].ID
	}
	rows, err := b.c.store.Jobs(ctx, q, nil, ids...)
	if err != nil {
		return err
	}
	byID := make(map[uuid.UUID]Job, len(rows))
	for i := range rows {
		byID[rows[i].ID] = jobFromRow(&rows[i])
	}
	for _, p := range places {
		b.answers[p].Job = byID[b.answers[p].ID]
	}
	return nil
}
