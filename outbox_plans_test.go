package notifyq_test

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/migrate"
)

// planTracer explains each query of the outbox just before it runs, on its connection, and so with all that was set there.
// The statement is prepared for that: one that is explained with its parameters is planned for their values in any mode.
type planTracer struct {
	mu    sync.Mutex
	plans []string
	errs  []error
}

type planKey struct{}

func (p *planTracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if ctx.Value(planKey{}) == nil && strings.Contains(data.SQL, "outbox_events") {
		plan, err := explainOn(context.WithValue(ctx, planKey{}, true), conn, data.SQL, data.Args)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.plans = append(p.plans, plan); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	return ctx
}

func (p *planTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (p *planTracer) all(t *testing.T) []string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(t, p.errs)
	require.NotEmpty(t, p.plans)
	return p.plans
}

// explainOn returns the plan of a prepared statement.
func explainOn(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, error) {
	prepared, err := conn.Prepare(ctx, "explained", sql)
	if err != nil {
		return "", err
	}
	literals := make([]string, len(args))
	for i, arg := range args {
		text, err := conn.TypeMap().Encode(prepared.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
		if err != nil {
			return "", err
		}
		literals[i] = "null"
		if text != nil {
			literals[i] = "'" + string(text) + "'"
		}
	}
	execute := "explain (costs off) execute explained(" + strings.Join(literals, ", ") + ")"
	rows, err := conn.Query(ctx, execute, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return "", err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", err
	}
	return strings.Join(lines, "\n"), conn.Deallocate(ctx, "explained")
}

// drainedOutbox is an outbox that was drained, vacuumed and filled again before the next ANALYZE: half of it is pending, a
// quarter published, and a quarter parked, of which one in a hundred for the endpoint 'few'. What was left tells the
// planner that there is next to nothing, and that all of it belongs to one endpoint.
func drainedOutbox(t *testing.T) (url string) {
	t.Helper()
	url = dbtest.NewDatabase(t)
	pool := openPool(t, url, nil)
	_, err := migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	fill := func() {
		exec(`insert into notifyq.outbox_events (id, topic, key, body, failure_count, published_at, parked_at, parked_reason, endpoint)
			select gen_random_uuid(), 't', 'k', 'body', i % 8 / 2, case when i % 4 = 0 then now() end, case when i % 4 = 1 then now() end,
			       case when i % 4 = 1 then 'disabled' end, case when i % 400 = 1 then 'few' when i % 4 = 1 then 'many' end
			  from generate_series(1, 100000) i`)
	}
	fill()
	exec(`delete from notifyq.outbox_events where id not in (select id from notifyq.outbox_events where endpoint = 'many' order by ctid desc limit 20)`)
	exec(`vacuum analyze notifyq.outbox_events`)
	fill()
	return url
}

var sortedTable = regexp.MustCompile(`Sort\n +Sort Key: .*\n +->  .*Scan.* on outbox_events`)

// What operators ask for is found by its index, however much there is of everything else, and however little the planner
// knows of it.
func TestOperatorsWalkTheIndexesOfTheOutbox(t *testing.T) {
	t.Parallel()
	url := drainedOutbox(t)
	list := func(endpoint string) func(c *notifyq.Client) error {
		return func(c *notifyq.Client) error {
			_, err := c.ListParked(t.Context(), notifyq.ParkedParams{Endpoint: endpoint})
			return err
		}
	}
	redrive := func(endpoint string) func(c *notifyq.Client) error {
		return func(c *notifyq.Client) error {
			_, err := c.RedriveEvents(t.Context(), notifyq.RedriveEventsParams{Endpoint: endpoint, Limit: 1})
			return err
		}
	}
	parked, parkedAt := []string{"outbox_events_parked"}, []string{"outbox_events_parked_endpoint"}
	for name, s := range map[string]struct {
		call    func(c *notifyq.Client) error
		indexes []string
	}{
		"list":                       {list(""), parked},
		"list of an endpoint":        {list("few"), parkedAt},
		"list of a busy endpoint":    {list("many"), nil}, // which may as well be that of all
		"redrive":                    {redrive(""), parked},
		"redrive of an endpoint":     {redrive("few"), parkedAt},
		"redrive of a busy endpoint": {redrive("many"), nil},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				tracer := &planTracer{}
				pool := openPool(t, url, func(cfg *pgxpool.Config) {
					cfg.ConnConfig.Tracer, cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = tracer, mode
				})
				client, err := notifyq.NewClient(pool, notifyq.ClientConfig{Logger: (&logBook{}).logger()})
				require.NoError(t, err)
				require.NoError(t, s.call(client))
				for _, plan := range tracer.all(t) {
					for _, index := range s.indexes {
						require.Contains(t, plan, "using "+index+" on outbox_events")
					}
					require.NotContains(t, plan, "Seq Scan on outbox_events")
					require.NotRegexp(t, sortedTable, plan)
				}
			})
		}
	}
}
