package notifyq_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/migrate"
)

// planTracer explains each query of the outbox just before it runs, on its connection, and so with all that was set there.
type planTracer struct {
	mu    sync.Mutex
	plans []dbtest.Plan
	errs  []error
}

type planKey struct{}

func (p *planTracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if ctx.Value(planKey{}) == nil && strings.Contains(data.SQL, "outbox_events") {
		plan, err := dbtest.Explain(context.WithValue(ctx, planKey{}, true), conn, data.SQL, data.Args...)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.plans = append(p.plans, plan); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	return ctx
}

func (p *planTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (p *planTracer) all(t *testing.T) []dbtest.Plan {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(t, p.errs)
	require.NotEmpty(t, p.plans)
	return p.plans
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

// What operators ask for is found by its index, however much there is of everything else, and however little the planner
// knows of it.
func TestOperatorsWalkTheIndexesOfTheOutbox(t *testing.T) {
	t.Parallel()
	url := drainedOutbox(t)
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
					require.Subset(t, plan.Reads(), s.indexes, "%s", plan)
					require.NotContains(t, plan.Reads(), "Seq Scan on outbox_events", "%s", plan)
					require.Zero(t, plan.Sorts(), "%s", plan)
				}
			})
		}
	}
}
