package store

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/migrate"
)

// planTables are tables in a state in which statements are explained.
type planTables struct {
	pool  *pgxpool.Pool
	store *Store
	token uuid.UUID
	// What is claimed by token.
	jobs   []Claimed
	events []uuid.UUID
	filled int // by how many rows
	// Where the claim of jobs and that of events begin.
	low, lowEvent Mark
	little        bool // there is next to nothing, or so the planner thinks
}

const (
	drainedRows = 20_000
	deadLive    = 2_000
)

func newPlanTables(t *testing.T) *planTables {
	t.Helper()
	// A database of its own: snapshots of other tests would keep the vacuum from what was deleted, and one that is held
	// here would keep others'.
	pool, err := pgxpool.New(t.Context(), dbtest.NewDatabase(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	p := &planTables{pool: pool, store: New("notifyq", Guards{Cancel: []int16{0}, Redrive: []int16{3, 4}}), token: uuid.New()}
	for _, table := range planTableNames() {
		p.exec(t, "alter table @"+table+" set (autovacuum_enabled = off)") // what the planner knows is said here
	}
	return p
}

func planTableNames() []string {
	return []string{
		"notifications", "notification_queue", "notification_outcomes", "notification_attempts", "rate_limit_reservations",
		"outbox_events", "operations", "channel_states", "webhook_endpoints",
	}
}

func (p *planTables) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := p.pool.Exec(t.Context(), strings.ReplaceAll(sql, "@", "notifyq."), args...)
	require.NoError(t, err)
}

func (p *planTables) analyze(t *testing.T) {
	t.Helper()
	p.exec(t, "analyze")
}

// planID makes the id of row i, from a month ago on, in order.
const planID = `(lpad(to_hex((extract(epoch from current_date - 30) * 1000)::bigint + i / 10), 12, '0') || '7' || lpad(to_hex(i % 4096), 3, '0')
	|| '8' || right(md5(i::text), 15))::uuid`

// Rows $1 to $2 of as many jobs. The even ones are live and the odd ones ended. One in 50 is of tenant 'rare', and as many
// have recipient 'hot'.
func fillTables() map[string]string {
	const (
		tenant  = ` case when i % 100 < 2 then 'rare' when i % 100 < 40 then 'many' else '' end`
		channel = ` (array['EMAIL', 'SMS', 'PUSH'])[1 + i / 2 % 3]`
		ended   = ` case when i % 20 < 17 then 2 else 3 + i / 20 % 3 end`
	)
	return map[string]string{
		"notifications": `insert into @notifications (id, tenant, idempotency_key, request_fingerprint, recipient, recipient_key, channel, payload,
			priority, scheduled_at, expires_at, max_attempts)
			select ` + planID + `,` + tenant + `, 'k' || i, '\x00', 'u', case when i % 100 in (2, 3) then 'hot' else 'u' || i / 8 end,` + channel + `, '{}',
			       1 + i / 6 % 3, now() - interval '1 h', case when i % 40 = 0 then now() + interval '1 h' end, 4
			  from generate_series($1::int, $2::int) i`,
		"queue": `insert into @notification_queue (id, tenant, channel, priority, next_attempt_at, expires_at, max_attempts, updated_at)
			select ` + planID + `,` + tenant + `,` + channel + `, 1 + i / 6 % 3, now() - interval '1 h' + i * interval '1 us',
			       case when i % 40 = 0 then now() + interval '1 h' end, 4, now()
			  from generate_series($1::int, $2::int, 2) i`,
		"outcomes": `insert into @notification_outcomes (id, tenant, status, finished_at, first_attempt_at, attempt_count, max_attempts, reason)
			select ` + planID + `,` + tenant + `,` + ended + `, now() - interval '20 days', now(), 1, 4, 'x'
			  from generate_series($1::int + 1, $2::int, 2) i`,
		// Of a service's own, one in ten: pending, of which half have failed, or parked, few for the endpoint 'few', or published.
		"outbox": `insert into @outbox_events (id, job_id, status, redrive_count, topic, key, body, failure_count, created_at, next_attempt_at,
			                                  published_at, parked_at, parked_reason, endpoint)
			select case when own then ` + planID + ` else @event_id(` + planID + `, 2::smallint, 0) end,
			       case when not own then ` + planID + ` end, case when not own then 2 end, case when not own then 0 end,
			       case when own then 't' end, case when own then 'k' end, 'body', case when part = 1 then i % 8 / 2 else 0 end,
			       now() - interval '20 days', now() - interval '1 h' + i * interval '1 us', case when part > 2 then now() - interval '10 days' end,
			       case when part = 2 then now() end, case when part = 2 then 'disabled' end,
			       case when part <> 2 then null when i % 1000 < 20 then 'few' else 'many' end
			  from (select i, i % 20 < 2 as own, i / 20 % 6 as part from generate_series($1::int + 1, $2::int, 2) i) t`,
		"reservations": `insert into @rate_limit_reservations (job_id, limit_key, channel, reserved_at, booked)
			select gen_random_uuid(), case when i % 10 = 0 then $3::uuid else md5((i % 3000)::text)::uuid end, 'EMAIL',
			       now() + (i % 1000 - 800) * interval '1 s', i % 1000 > 800
			  from generate_series($1::int / 20, $2::int / 20) i`,
		"attempts": `insert into @notification_attempts (id, redrive_count, number, started_at, ended_at, class, worker)
			select ` + planID + `, 0, 1, now(), now(), 'transient', 'w' from generate_series($1::int + 1, $2::int, 20) i`,
	}
}

// fill adds twice as many jobs, so that rows are live and as many ended, and as many events. Each table is filled by a
// connection of its own.
func (p *planTables) fill(t *testing.T, rows int) {
	t.Helper()
	from := p.filled
	p.filled += 2 * rows
	all, ctx := errgroup.WithContext(t.Context())
	for name, sql := range fillTables() {
		args := []any{from, p.filled - 1}
		if name == "reservations" {
			args = append(args, pgUUID(hotKey))
		}
		all.Go(func() error {
			_, err := p.pool.Exec(ctx, strings.ReplaceAll(sql, "@", "notifyq."), args...)
			return err
		})
	}
	require.NoError(t, all.Wait())
}

// fillEmpty is fill for many rows: it makes the indexes that are no constraints when the rows are there, in half the time.
func (p *planTables) fillEmpty(t *testing.T, rows int) {
	t.Helper()
	found, err := p.pool.Query(t.Context(), `select indexdef from pg_indexes
		where schemaname = 'notifyq' and indexname not in (select conname from pg_constraint)`)
	require.NoError(t, err)
	indexes, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(t, err)
	for _, create := range indexes {
		p.exec(t, "drop index @"+strings.Fields(create)[2])
	}
	p.fill(t, rows)
	all, ctx := errgroup.WithContext(t.Context())
	for _, create := range indexes {
		all.Go(func() error {
			_, err := p.pool.Exec(ctx, create)
			return err
		})
	}
	require.NoError(t, all.Wait())
}

// drain leaves the last rows of each table, and of the outbox such as are parked, and no trace of the others.
func (p *planTables) drain(t *testing.T, left int) {
	t.Helper()
	p.exec(t, "delete from @outbox_events where id not in (select id from @outbox_events where endpoint = 'many' order by ctid desc limit $1)", left)
	for _, table := range []string{"notification_queue", "notification_outcomes"} {
		p.exec(t, "delete from @"+table+" where id not in (select id from @"+table+" order by ctid desc limit $1)", left)
	}
	p.exec(t, "delete from @notifications where id not in (select id from @notification_queue union all select id from @notification_outcomes)")
	p.exec(t, "truncate @notification_attempts, @rate_limit_reservations")
	p.exec(t, "vacuum analyze")
}

// hold keeps a snapshot to the end of the test.
func (p *planTables) hold(t *testing.T) {
	t.Helper()
	tx, err := p.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	var n int
	require.NoError(t, tx.QueryRow(t.Context(), "select count(*) from notifyq.notification_queue").Scan(&n))
}

// bury fills the queue, of which a tenth is claimed, and the outbox, a third as much, and deletes everything. Claims begin
// behind that.
func (p *planTables) bury(t *testing.T, rows int) {
	t.Helper()
	fill := fillTables()
	p.filled = 2 * rows
	p.exec(t, fill["queue"], 0, p.filled-1)
	p.exec(t, fill["outbox"], 0, p.filled/3-1)
	p.exec(t, `update @notification_queue set status = 1, claim_token = id, locked_by = 'w', locked_at = now(), leased_until = now(),
		attempt_count = 1, first_attempt_at = now() where right(id::text, 1) = '0'`)
	p.low, p.lowEvent = p.last(t, "notification_queue"), p.last(t, "outbox_events")
	p.exec(t, "delete from @notification_queue")
	p.exec(t, "delete from @outbox_events")
}

// last is the end of a table, in the order of claims.
func (p *planTables) last(t *testing.T, table string) (m Mark) {
	t.Helper()
	sql := "select next_attempt_at, id from notifyq." + table + " order by next_attempt_at desc, id desc limit 1"
	require.NoError(t, p.pool.QueryRow(t.Context(), sql).Scan(&m.At, &m.ID))
	return m
}

// claim takes jobs, whose claims are over at once for those who look at the time, and events.
func (p *planTables) claim(t *testing.T) {
	t.Helper()
	lease := Lease{"w", p.token, time.Hour}
	var err error
	p.jobs, err = p.store.Claim(t.Context(), p.pool, lease, p.lane())
	require.NoError(t, err)
	require.Len(t, p.jobs, planBatch)
	events, err := p.store.ClaimEvents(t.Context(), p.pool, lease, p.lowEvent, planBatch, 1<<20)
	require.NoError(t, err)
	require.Len(t, events, planBatch)
	p.events = idsOf(events)
	p.exec(t, "update @notification_queue set leased_until = now() - interval '1 s' where status = 1")
	p.exec(t, `update @notification_queue set expires_at = now() - interval '1 s' where id in (
		select id from @notification_queue where status = 0 and expires_at is not null order by id desc limit $1)`, planBatch)
	p.place(t)
}

// place finds out where the rows of claims stand now.
func (p *planTables) place(t *testing.T) {
	t.Helper()
	for i := range p.jobs {
		row := p.pool.QueryRow(t.Context(), "select ctid from notifyq.notification_queue where id = $1", p.jobs[i].ID)
		require.NoError(t, row.Scan(&p.jobs[i].Place))
	}
}

// makeUpClaims is for tables that have nothing to claim.
func (p *planTables) makeUpClaims() {
	for i := range planBatch {
		p.jobs = append(p.jobs, Claimed{ID: uuid.New(), Place: pgtype.TID{BlockNumber: uint32(i), OffsetNumber: 1, Valid: true}})
		p.events = append(p.events, uuid.New())
	}
}

func (p *planTables) lane() Lane {
	lane := Lane{Channel: "EMAIL", Limit: planBatch}
	for priority := int16(3); priority > 0; priority-- {
		lane.Probes = append(lane.Probes, Probe{priority, p.low, planBatch})
	}
	return lane
}

// claims are the jobs that p holds.
func (p *planTables) claims() Claims {
	var c Claims
	for _, j := range p.jobs {
		c.Add(j.ID, p.token)
	}
	return c
}

func (p *planTables) ids() (ids []uuid.UUID) {
	for _, j := range p.jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// hotKey has many reservations.
var hotKey = uuid.Max

func key(i int) string { return "k" + strconv.Itoa(i) }
