package store

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/migrate"
)

// eventPlans explains the statements of the relay as they run: pinned, with parameters that the planner sees, and with
// such that it does not.
type eventPlans struct {
	pool  *pgxpool.Pool
	store *Store
	token uuid.UUID
}

const (
	planEvents = 100_000
	planBatch  = 100
)

func newEventPlans(t *testing.T) *eventPlans {
	t.Helper()
	// A database of its own: snapshots of other tests would keep the vacuum from what was deleted.
	pool, err := pgxpool.New(t.Context(), dbtest.NewDatabase(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	return &eventPlans{pool, New("notifyq", Guards{Cancel: []int16{0}, Redrive: []int16{3, 4}}), uuid.New()}
}

func (p *eventPlans) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := p.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// fill adds events of a service's own: half are due and have failed, a quarter is published, and a quarter is parked, of
// which one in a hundred for the endpoint 'few'.
func (p *eventPlans) fill(t *testing.T) {
	t.Helper()
	p.exec(t, `
		insert into notifyq.outbox_events (id, topic, key, body, failure_count, created_at, next_attempt_at, published_at, parked_at,
		                                   parked_reason, endpoint)
		select gen_random_uuid(), 't', 'k', 'body', i % 8 / 2, now() - interval '2 days', now() - i * interval '1 ms',
		       case when i % 4 = 0 then now() - interval '1 day' end, case when i % 4 = 1 then now() end,
		       case when i % 4 = 1 then 'disabled' end, case when i % 400 = 1 then 'few' when i % 4 = 1 then 'many' end
		  from generate_series(1, $1::int) i`, planEvents)
}

// The ways to plan a prepared statement.
const (
	custom  = "force_custom_plan"
	generic = "force_generic_plan"
	settled = "auto" // what the planner settles on after some executions
)

// explain runs a statement in a pinned transaction that is rolled back, and returns its plan. A statement that is
// explained with parameters is planned for their values in any mode; only an executed one that was prepared is not.
func (p *eventPlans) explain(t *testing.T, mode, sql string, args ...any) (plan string) {
	t.Helper()
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, set := range []string{pinSQL, "set local plan_cache_mode = " + mode} {
		_, err := tx.Exec(t.Context(), set)
		require.NoError(t, err)
	}
	prepared, err := tx.Prepare(t.Context(), "explained", sql)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Conn().Deallocate(t.Context(), "explained")) }()
	literals := make([]string, len(args))
	for i, arg := range args {
		text, err := tx.Conn().TypeMap().Encode(prepared.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
		require.NoError(t, err)
		literals[i] = "null"
		if text != nil {
			literals[i] = "'" + string(text) + "'"
		}
	}
	execute := "explain (analyze, buffers, costs off, timing off, summary off) execute explained(" + strings.Join(literals, ", ") + ")"
	runs := 1
	if mode == settled {
		runs = 8
	}
	for range runs {
		try, err := tx.Begin(t.Context())
		require.NoError(t, err)
		rows, err := try.Query(t.Context(), execute, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.NoError(t, try.Rollback(t.Context()))
		plan = strings.Join(lines, "\n")
	}
	return plan
}

type explained struct {
	sql     string
	args    []any
	indexes []string
}

// statements are those of the relay and of an operator, on the events that p holds claims of and on others.
func (p *eventPlans) statements(claimed []uuid.UUID) map[string]explained {
	claims := claimsOf(p.token, claimed...)
	var failed []EventFailed
	var released []EventReleased
	for _, id := range claimed {
		failed = append(failed, EventFailed{ID: id, Token: p.token, Error: "no", Parked: "exhausted", Endpoint: "many"})
		released = append(released, EventReleased{ID: id, Token: p.token, Disabled: EndpointKey{Name: "many", Target: "x"}})
	}
	ids, tokens := claims.sorted()
	key, walk := []string{"outbox_events_pkey"}, func(index string) []string { return []string{index, "outbox_events_pkey"} }
	parked := []any{optional(""), optional(""), optionalTime(time.Time{}), pgUUID(uuid.Nil), true}
	return map[string]explained{
		"claim": {
			p.store.sql.claimEvents,
			[]any{lowAt(Mark{}), pgUUID(uuid.Nil), planBatch, 1 << 20, pgUUID(uuid.New()), "w", micros(time.Minute)},
			walk("outbox_events_due"),
		},
		"renew":     {p.store.sql.renewEvents, []any{ids, tokens, micros(time.Minute)}, key},
		"published": {p.store.sql.published, []any{ids, tokens}, key},
		"failed":    {p.store.sql.eventFailed, failedArgs(failed), key},
		"released":  {p.store.sql.eventReleased, releasedArgs(released), key},
		"redrive":   {p.store.sql.redriveEvents, redriveOf(parked), walk("outbox_events_parked")},
		"list":      {p.store.sql.parked, []any{pgUUID(uuid.Nil), planBatch}, []string{"outbox_events_parked"}},
		"count":     {p.store.sql.parkedCount, append(parked[:5:5], planBatch), []string{"outbox_events_parked"}},
		"prune":     {p.store.sql.pruneEvents, []any{pgUUID(uuid.Nil), micros(time.Hour), planBatch}, key},
		"prune own": {p.store.sql.pruneOwnEvents, []any{lowAt(Mark{}), micros(time.Hour), planBatch}, walk("outbox_events_published")},
	}
}

func redriveOf(scope []any) []any {
	return append(scope[:5:5], planBatch, micros(time.Second), "actor", "reason")
}

// ofEndpoint are the statements about the parked events of one endpoint, or of some.
func (p *eventPlans) ofEndpoint(name string) map[string]explained {
	scope := []any{optional(name), optional(""), optionalTime(time.Time{}), pgUUID(uuid.Nil), true}
	index := []string{"outbox_events_parked_endpoint"}
	return map[string]explained{
		"list":    {p.store.sql.parkedAt, []any{pgUUID(uuid.Nil), planBatch, name}, index},
		"redrive": {p.store.sql.redriveEventsAt, redriveOf(scope), append(index, "outbox_events_pkey")},
		"count":   {p.store.sql.parkedCountAt, append(scope, planBatch), index},
		"held":    {p.store.sql.held, []any{[]string{name, "unknown"}}, []string{"outbox_events_held"}},
	}
}

var (
	lookup = regexp.MustCompile(`using (\S+) on outbox_events`)
	read   = regexp.MustCompile(` on outbox_events.*\(actual rows=(\d+)\S* loops=(\d+)\)`)
)

// check wants each statement to find its rows by its index, and to read hardly more than it changes.
func (p *eventPlans) check(t *testing.T, stage string, statements map[string]explained) {
	t.Helper()
	for name, s := range statements {
		for _, mode := range []string{custom, settled, generic} {
			t.Run(stage+", "+name+", "+mode, func(t *testing.T) {
				requireLookups(t, p.explain(t, mode, s.sql, s.args...), s.indexes)
			})
		}
	}
}

func requireLookups(t *testing.T, plan string, indexes []string) {
	t.Helper()
	const rows, pages = 2 * planBatch, planBatch * 60 // see plans_test.go
	require.NotContains(t, plan, "Seq Scan on outbox_events")
	require.NotContains(t, plan, "Bitmap")
	used := map[string]bool{}
	for _, found := range lookup.FindAllStringSubmatch(plan, -1) {
		used[found[1]] = true
	}
	for _, found := range read.FindAllStringSubmatch(plan, -1) {
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		loops, err := strconv.Atoi(found[2])
		require.NoError(t, err)
		require.LessOrEqual(t, n*loops, rows, plan)
	}
	for _, index := range indexes {
		require.True(t, used[index], "%s in\n%s", index, plan)
		delete(used, index)
	}
	require.Empty(t, used, plan)
	for _, found := range hits.FindAllStringSubmatch(plan, -1) {
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		require.Less(t, n, pages, plan)
	}
}

func TestPlansAreMadeWithoutTheParametersToo(t *testing.T) {
	t.Parallel()
	p := newEventPlans(t)
	claim := p.statements(nil)["claim"]
	require.NotContains(t, p.explain(t, custom, claim.sql, claim.args...), "ROW($1, $2)")
	require.Contains(t, p.explain(t, generic, claim.sql, claim.args...), "ROW($1, $2)")
}

// drain leaves some parked events at the end of the table, which tell the planner that there is next to nothing, and that
// all of it belongs to one endpoint, and fills it again.
func (p *eventPlans) drain(t *testing.T, left int) {
	t.Helper()
	p.fill(t)
	p.exec(t, `delete from notifyq.outbox_events
		where id not in (select id from notifyq.outbox_events where endpoint = 'many' order by ctid desc limit $1)`, left)
	p.exec(t, `vacuum analyze notifyq.outbox_events`)
	p.fill(t)
}

func TestStatementsLookEventsUpInAnOutboxThatWasDrained(t *testing.T) {
	t.Parallel()
	for _, left := range []int{0, 1} {
		t.Run(strconv.Itoa(left)+" left", func(t *testing.T) {
			t.Parallel()
			p := newEventPlans(t)
			p.check(t, "empty and never analyzed", p.statements(nil))
			p.drain(t, left)
			events, err := p.store.ClaimEvents(t.Context(), p.pool, Lease{"w", p.token, time.Hour}, Mark{}, planBatch, 1<<20)
			require.NoError(t, err)
			require.Len(t, events, planBatch)
			p.check(t, "drained and filled again", p.statements(idsOf(events)))
			p.exec(t, `vacuum analyze notifyq.outbox_events`)
			p.check(t, "analyzed", p.statements(idsOf(events)))
		})
	}
}

// An endpoint with few parked events must not cost a walk over those of all others.
func TestStatementsOfOneEndpointPassByAllOthers(t *testing.T) {
	t.Parallel()
	for _, left := range []int{1, 20} {
		t.Run(strconv.Itoa(left)+" left", func(t *testing.T) {
			t.Parallel()
			p := newEventPlans(t)
			p.check(t, "empty and never analyzed", p.ofEndpoint("few"))
			p.drain(t, left)
			p.check(t, "drained and filled again", p.ofEndpoint("few"))
			p.exec(t, `vacuum analyze notifyq.outbox_events`)
			p.check(t, "analyzed", p.ofEndpoint("few"))
		})
	}
}

func TestTheSampleOfTheOutboxWalksItsIndexes(t *testing.T) {
	t.Parallel()
	p := newEventPlans(t)
	check := func(stage string) {
		for _, mode := range []string{custom, settled, generic} {
			t.Run(stage+", "+mode, func(t *testing.T) {
				plan := p.explain(t, mode, p.store.sql.outbox, EventCap, []int32{1, 3, 10})
				for _, index := range []string{"due", "parked", "touched", "failing"} {
					require.Contains(t, plan, "using outbox_events_"+index+" on outbox_events")
				}
				require.NotContains(t, plan, "Seq Scan on outbox_events")
				require.NotContains(t, plan, "Bitmap")
				require.NotContains(t, plan, "Rows Removed by Filter", "whatever it reads it counts")
			})
		}
	}
	check("empty and never analyzed")
	p.drain(t, 20)
	check("drained and filled again")
	p.exec(t, `vacuum analyze notifyq.outbox_events`)
	check("analyzed")
}
