package notifyq_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// statementCounter counts statements.
type statementCounter struct{ n atomic.Int64 }

func (c *statementCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (*statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestReadsAtOnceShareStatementsAndEachKeepsToItsTenant(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	statements := &statementCounter{}
	cfg := db.Pool.Config().Copy()
	cfg.MaxConns, cfg.ConnConfig.Tracer = 1, statements
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	client, err := notifyq.NewClient(pool, notifyq.ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	tenants := []*notifyq.Client{client.ForTenant("a"), client.ForTenant("b")}
	ids := make([]uuid.UUID, len(tenants))
	for i, tenant := range tenants {
		scheduled, err := tenant.Schedule(t.Context(), notifyq.Notification{
			IdempotencyKey: "k", Recipient: "u@example.test", Channel: notifyq.ChannelEmail, Payload: []byte(`{}`),
		})
		require.NoError(t, err)
		ids[i] = scheduled.ID
	}
	only, err := pool.Acquire(t.Context()) // so that all calls wait
	require.NoError(t, err)
	statements.n.Store(0)
	var begun, done sync.WaitGroup
	for range 50 {
		for i, tenant := range tenants {
			begun.Add(1)
			done.Go(func() {
				begun.Done()
				job, err := tenant.Get(t.Context(), ids[i])
				require.NoError(t, err)
				require.Equal(t, ids[i], job.ID)
				_, err = tenant.Get(t.Context(), ids[1-i])
				require.ErrorIs(t, err, notifyq.ErrNotFound, "it is the other tenant's")
				job, err = client.Get(t.Context(), ids[1-i])
				require.NoError(t, err)
				require.Equal(t, ids[1-i], job.ID)
				_, err = client.Get(t.Context(), uuid.New())
				require.ErrorIs(t, err, notifyq.ErrNotFound)
			})
		}
	}
	begun.Wait()
	only.Release()
	done.Wait()
	require.Less(t, statements.n.Load(), int64(200), "of 400 reads")
}
