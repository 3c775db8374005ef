package dbtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Plan is how PostgreSQL runs a statement.
type Plan struct{ root PlanNode }

// PlanNode is a part of a plan. Rows, Loops and pages are 0 where the statement was not run.
type PlanNode struct {
	Type     string     `json:"Node Type"`
	Role     string     `json:"Parent Relationship"`
	CTE      string     `json:"Subplan Name"`
	Relation string     `json:"Relation Name"`
	Alias    string     `json:"Alias"`
	Index    string     `json:"Index Name"`
	Cond     string     `json:"Index Cond"`
	TIDCond  string     `json:"TID Cond"`
	Rows     float64    `json:"Actual Rows"` // a loop
	Removed  float64    `json:"Rows Removed by Filter"`
	Loops    float64    `json:"Actual Loops"`
	Hit      int        `json:"Shared Hit Blocks"`
	Read     int        `json:"Shared Read Blocks"`
	Parts    []PlanNode `json:"Plans"`
}

// Explain plans a statement on a connection, with all that is set there. It is prepared for that: one that is explained with
// its parameters is planned for their values whatever plan_cache_mode says.
func Explain(ctx context.Context, conn *pgx.Conn, sql string, args ...any) (Plan, error) {
	return explain(ctx, conn, "costs off", sql, args)
}

// ExplainAnalyze is Explain for a statement that it runs.
func ExplainAnalyze(ctx context.Context, conn *pgx.Conn, sql string, args ...any) (Plan, error) {
	return explain(ctx, conn, "analyze, buffers, costs off, timing off, summary off", sql, args)
}

func explain(ctx context.Context, conn *pgx.Conn, options, sql string, args []any) (p Plan, err error) {
	const name = "explained"
	prepared, err := conn.Prepare(ctx, name, sql)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, conn.Deallocate(ctx, name)) }()
	values, err := literals(conn.TypeMap(), prepared.ParamOIDs, args)
	if err != nil {
		return p, err
	}
	execute := "explain (" + options + ", format json) execute " + name + values
	var text string
	if err = conn.QueryRow(ctx, execute, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		return p, err
	}
	var roots []struct{ Plan PlanNode }
	if err = json.Unmarshal([]byte(text), &roots); err != nil {
		return p, err
	}
	return Plan{roots[0].Plan}, nil
}

// literals are the parameters of EXECUTE. They must have no quotes in them.
func literals(types *pgtype.Map, oids []uint32, args []any) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	all := make([]string, len(args))
	for i, arg := range args {
		text, err := types.Encode(oids[i], pgtype.TextFormatCode, arg, []byte{}) // nil would stand for an empty text, too
		if err != nil {
			return "", fmt.Errorf("parameter %d: %w", i+1, err)
		}
		all[i] = "null"
		if text != nil {
			all[i] = "'" + string(text) + "'"
		}
	}
	return "(" + strings.Join(all, ", ") + ")", nil
}

// String is the plan in short, a part a line.
func (p Plan) String() string {
	var b strings.Builder
	p.root.write(&b, 0)
	return b.String()
}

// Scans are the nodes that read tables.
func (p Plan) Scans() (scans []PlanNode) {
	p.root.each(func(n *PlanNode) {
		if n.scans() {
			scans = append(scans, *n)
		}
	})
	return scans
}

// Reads names what tables are read by, in order and each once: an index, or the kind of scan and the table.
func (p Plan) Reads() (reads []string) {
	for _, n := range p.Scans() {
		reads = append(reads, n.By())
	}
	slices.Sort(reads)
	return slices.Compact(reads)
}

// Sorts counts the sorts of what comes out of a table. What a statement made itself is in its memory already.
func (p Plan) Sorts() (sorts int) {
	p.root.each(func(n *PlanNode) {
		if strings.HasSuffix(n.Type, "Sort") && n.feeds() {
			sorts++
		}
	})
	return sorts
}

// Pages counts what was looked at.
func (p Plan) Pages() (most int) {
	p.root.each(func(n *PlanNode) { most = max(most, n.Hit+n.Read) })
	return most
}

// By names the index that a scan goes by, or its kind and table.
func (n *PlanNode) By() string {
	if n.Index != "" {
		return n.Index
	}
	return n.Type + " on " + n.Relation
}

// Bound is the condition that says where a scan begins and ends.
func (n *PlanNode) Bound() string { return n.Cond + n.TIDCond }

// Looked counts the rows that a scan looked at in all its loops.
func (n *PlanNode) Looked() int { return int((n.Rows + n.Removed) * n.Loops) }

func (n *PlanNode) scans() bool { return n.Relation != "" && strings.HasSuffix(n.Type, "Scan") }

func (n *PlanNode) each(do func(n *PlanNode)) {
	do(n)
	for i := range n.Parts {
		n.Parts[i].each(do)
	}
}

// feeds tells whether rows come from a table, and not from a part that is run for itself.
func (n *PlanNode) feeds() bool {
	if n.scans() {
		return true
	}
	return slices.ContainsFunc(n.Parts, func(part PlanNode) bool {
		return part.Role != "InitPlan" && part.Role != "SubPlan" && part.feeds()
	})
}

func (n *PlanNode) write(b *strings.Builder, depth int) {
	b.WriteString(strings.Repeat("  ", depth))
	if n.CTE != "" {
		b.WriteString(n.CTE + ": ")
	}
	b.WriteString(n.Type)
	if n.Relation != "" {
		fmt.Fprintf(b, " %s of %s %s", n.Index, n.Relation, n.Alias)
	}
	if cond := n.Bound(); cond != "" {
		b.WriteString(" by " + cond)
	}
	fmt.Fprintf(b, " (%g + %g rows, %g loops, %d pages)\n", n.Rows, n.Removed, n.Loops, n.Hit+n.Read)
	for i := range n.Parts {
		n.Parts[i].write(b, depth+1)
	}
}
