package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// planned is a statement, and what has to be so about its plan.
type planned struct {
	sql  string
	args []any
	// free is left to the planner: it also runs in callers' transactions, where nothing is pinned. Reading all of a small table is
	// right then, and to a planner that knows of next to nothing a lookup by primary key costs more than all of the table:
	// there is no text that could help.
	free bool
	// reads are the indexes by which it reads tables, and nothing else does. There may be others to choose from.
	reads []string
	// bounds are what the conditions of indexes must have: where a walk begins or ends.
	bounds map[string]string
	walk   string // instead of both, for a list: the index
	sorts  int    // of what comes out of tables
	most   int    // rows that a scan looks at; 0: twice the batch
	walks  bool   // it reads what a held snapshot keeps, too
}

const (
	planBatch = 100
	// Some dozens for each row that is found, moved and indexed. A walk over the table for each takes 10 times as many.
	planPages = planBatch * 60

	placeScan = "Tid Scan on notification_queue"
)

// The ways to plan a statement: for the values of its parameters, and without them. PostgreSQL takes one of both.
func planModes() []string { return []string{"force_custom_plan", "force_generic_plan"} }

// check explains statements as they run, one after another: they lock what they change until they are rolled back.
func (p *planTables) check(t *testing.T, stage string, statements map[string]planned) {
	t.Helper()
	for name, s := range statements {
		for _, mode := range planModes() {
			t.Run(stage+"/"+name+"/"+mode, func(t *testing.T) { p.checkOne(t, s, mode) })
		}
	}
}

func (p *planTables) checkOne(t *testing.T, s planned, mode string) {
	t.Helper()
	plan := p.explain(t, s, mode)
	if p.little && s.free {
		return
	}
	p.requireIndexes(t, s, plan)
	for _, n := range plan.Scans() {
		require.LessOrEqual(t, n.Looked(), max(s.most, 2*planBatch), "%s in\n%s", n.By(), plan)
	}
	if !s.walks {
		require.Less(t, plan.Pages(), max(planPages, 8*s.most), "%s", plan)
	}
}

func (p *planTables) requireIndexes(t *testing.T, s planned, plan dbtest.Plan) {
	t.Helper()
	require.Equal(t, s.sorts, plan.Sorts(), "sorts in\n%s", plan)
	if s.walk != "" {
		requireWalk(t, plan, s.walk)
		return
	}
	require.Equal(t, slices.Sorted(slices.Values(s.reads)), plan.Reads(), "%s", plan)
	for index, bound := range s.bounds {
		requireBound(t, plan, index, bound)
	}
}

// requireWalk wants a list to walk one index from its cursor on, and to look everything else up, by whatever index.
func requireWalk(t *testing.T, plan dbtest.Plan, index string) {
	t.Helper()
	walks := 0
	for _, n := range plan.Scans() {
		require.NotEmpty(t, n.Index, "%s", plan)
		require.NotContains(t, n.Type, "Bitmap", "%s", plan)
		if !strings.HasPrefix(n.Alias, "x") {
			require.Contains(t, n.Bound(), "id = ", "%s", plan)
			continue
		}
		walks++
		require.Equal(t, index, n.Index, "%s", plan)
		require.Regexp(t, `\bid\)? < `, n.Bound(), "%s", plan)
	}
	require.Equal(t, 2, walks, "%s", plan)
}

func requireBound(t *testing.T, plan dbtest.Plan, index, bound string) {
	t.Helper()
	for _, n := range plan.Scans() {
		if n.By() == index && strings.Contains(n.Bound(), bound) {
			return
		}
	}
	t.Errorf("no %q in the condition of %s in\n%s", bound, index, plan)
}

// explain runs a statement in a transaction that is rolled back.
func (p *planTables) explain(t *testing.T, s planned, mode string) dbtest.Plan {
	t.Helper()
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "set local plan_cache_mode = "+mode)
	require.NoError(t, err)
	if !s.free {
		_, err = tx.Exec(t.Context(), pinSQL)
		require.NoError(t, err)
	}
	plan, err := dbtest.ExplainAnalyze(t.Context(), tx.Conn(), s.sql, s.args...)
	require.NoError(t, err)
	return plan
}

// all are the statements that run again and again, whatever the tables hold.
func (p *planTables) all() map[string]map[string]planned {
	return map[string]map[string]planned{
		"claims": p.claimPlans(), "recording": p.recordPlans(), "limits": p.limitPlans(), "schedule": p.schedulePlans(),
		"reads": p.readPlans(), "list": p.listPlans(), "operators": p.operatorPlans(), "housekeeping": p.housekeepingPlans(),
		"events": p.eventPlans(), "endpoint": p.endpointPlans("few"), "samples": p.samplePlans(),
	}
}

func (p *planTables) checkAll(t *testing.T, stage string) {
	t.Helper()
	for name, statements := range p.all() {
		p.check(t, stage+"/"+name, statements)
	}
}

func TestPlansOnEmptyTables(t *testing.T) {
	t.Parallel()
	p := newPlanTables(t)
	p.little = true
	p.makeUpClaims()
	p.checkAll(t, "never analyzed")
	p.analyze(t)
	p.checkAll(t, "analyzed")
}

func TestPlansOnFullTables(t *testing.T) {
	t.Parallel()
	p := newPlanTables(t)
	rows := 1_000_000
	if testing.Short() {
		rows, p.little = 20_000, true
	}
	p.fillEmpty(t, rows)
	p.analyze(t)
	p.claim(t)
	p.checkAll(t, "analyzed")
}

// A burst after a drain must not cost a walk over the queue for each row: a claim of 1,000 took 39 s that way. The planner
// thinks that there is nothing, or what was left, and that it belongs to one endpoint.
func TestPlansOnTablesThatWereDrained(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]int{"nothing left": 0, "one left": 1, "20 left": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlanTables(t)
			p.fill(t, drainedRows)
			p.drain(t, left)
			p.fill(t, drainedRows)
			p.claim(t)
			p.little = true
			p.checkAll(t, "filled again")
			p.analyze(t)
			p.checkAll(t, "analyzed")
		})
	}
}

// Rows that are gone stay in the way as long as anybody may still see them.
func TestPlansUnderAHeldSnapshot(t *testing.T) {
	t.Parallel()
	p := newPlanTables(t)
	dead := 300_000
	if testing.Short() {
		dead = 20_000
	}
	p.analyze(t)
	p.hold(t)
	p.bury(t, dead)
	p.fill(t, deadLive)
	p.claim(t)
	p.little = true
	p.checkAll(t, "statistics of nothing")
	p.analyze(t)
	p.checkAll(t, "analyzed")
}

// Controls: what would make these tests blind.
func TestPlansAreMadeWithoutTheParametersToo(t *testing.T) {
	t.Parallel()
	p := newPlanTables(t)
	p.makeUpClaims()
	claim := p.eventPlans()["claim"]
	custom, generic := p.explain(t, claim, "force_custom_plan"), p.explain(t, claim, "force_generic_plan")
	require.NotContains(t, custom.String(), "ROW($1, $2)")
	require.Contains(t, generic.String(), "ROW($1, $2)")
}

var anID = uuid.MustParse("0190f3a0-0000-7000-8000-000000000000")
