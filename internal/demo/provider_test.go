package demo_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/demo"
	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/migrate"
)

func newProvider(t *testing.T, db *dbtest.DB, rate float64) *demo.Provider {
	p, err := demo.NewProvider(db.Pool, demo.ProviderConfig{Schema: db.Schema, FailureRate: rate})
	require.NoError(t, err)
	return p
}

func delivery(recipient string) notifyq.Delivery {
	return notifyq.Delivery{
		Key: uuid.New(), Attempt: 1, Recipient: recipient, Channel: notifyq.ChannelEmail, Payload: []byte(`"canary"`),
	}
}

func TestKeyIsDeliveredOnceByAllWorkersTogether(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	first, second := newProvider(t, db, 0), newProvider(t, db, 0) // without a Setup: the first call makes the table
	d := delivery("a@example.com")
	receipt, err := first.Deliver(t.Context(), d)
	require.NoError(t, err)
	require.NotEmpty(t, receipt.ProviderID)

	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			again, err := second.Deliver(t.Context(), d)
			if err != nil || again != receipt {
				t.Errorf("the same key was answered %v, %v", again, err)
			}
		})
	}
	group.Wait()
	other, err := second.Deliver(t.Context(), delivery("a@example.com"))
	require.NoError(t, err)
	require.NotEqual(t, receipt, other)
	stats, err := first.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, demo.ProviderStats{Deliveries: 2, Repeats: 20}, stats)
}

func TestInvalidRecipientIsRefusedForGood(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	p := newProvider(t, db, 0)
	require.NoError(t, p.Setup(t.Context()))
	for recipient, refused := range map[string]bool{
		"invalid@example.com": true, "invalid": true, "Invalid@example.com": false, "not-invalid@example.com": false,
	} {
		_, err := p.Deliver(t.Context(), delivery(recipient))
		require.Equal(t, refused, notifyq.IsPermanent(err), recipient)
		require.Equal(t, refused, err != nil)
	}
	stats, err := p.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, demo.ProviderStats{Deliveries: 2}, stats)
}

func TestFailureRateFailsBeforeAcceptance(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	p := newProvider(t, db, 0.25)
	require.NoError(t, p.Setup(t.Context()))
	for dice, fails := range map[float64]bool{0: true, 0.2499: true, 0.25: false, 0.99: false} {
		p.Roll(func() float64 { return dice })
		_, err := p.Deliver(t.Context(), delivery("a@example.com"))
		require.Equal(t, fails, err != nil, dice)
		if fails {
			require.True(t, notifyq.IsTransient(err))
		}
	}
	stats, err := p.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, demo.ProviderStats{Deliveries: 2}, stats)
	always := newProvider(t, db, 1)
	_, err = always.Deliver(t.Context(), delivery("a@example.com"))
	require.Error(t, err)
}

func TestMockWithoutDatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	var logs bytes.Buffer
	p, err := demo.NewProvider(db.Pool, demo.ProviderConfig{
		Schema: db.Schema, Logger: slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, err)
	_, err = p.Deliver(t.Context(), delivery("canary@example.com"))
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Deliver(ended, delivery("canary@example.com"))
	require.True(t, notifyq.IsTransient(err))
	db.Pool.Close()
	_, err = p.Deliver(t.Context(), delivery("canary@example.com"))
	require.True(t, notifyq.IsTransient(err))
	require.NotContains(t, err.Error(), "canary")
	require.Error(t, p.Setup(t.Context()))
	_, err = p.Stats(t.Context())
	require.Error(t, err)
	require.Contains(t, logs.String(), "demo.delivered")
	require.NotContains(t, logs.String(), "canary")
}

// A role with rights on notifyq's tables only can't make the mock's. That is for an operator to mend, and must not use up
// attempts; where the table has been made by another role, it is enough.
func TestRoleThatMayNotCreateTheMocksTable(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	role := "r_" + db.Schema
	grants, err := migrate.Grants(db.Schema, role)
	require.NoError(t, err)
	_, err = db.Pool.Exec(t.Context(), "create role "+role+"; "+grants)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.Pool.Exec(context.WithoutCancel(t.Context()), "drop owned by "+role+"; drop role "+role)
		require.NoError(t, err)
	})
	cfg := db.Pool.Config()
	cfg.ConnConfig.RuntimeParams["role"] = role
	limited, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer limited.Close()
	p, err := demo.NewProvider(limited, demo.ProviderConfig{Schema: db.Schema})
	require.NoError(t, err)
	_, err = p.Deliver(t.Context(), delivery("a@example.com"))
	require.True(t, notifyq.IsMisconfigured(err), "%v", err)

	require.NoError(t, newProvider(t, db, 0).Setup(t.Context()))
	_, err = db.Pool.Exec(t.Context(), "grant select, insert, update on "+db.Schema+".demo_deliveries to "+role)
	require.NoError(t, err)
	_, err = p.Deliver(t.Context(), delivery("a@example.com"))
	require.NoError(t, err)
}

func TestMockSettings(t *testing.T) {
	t.Parallel()
	_, err := demo.NewProvider(nil, demo.ProviderConfig{Schema: "a b"})
	require.ErrorIs(t, err, schema.ErrUnfit)
	for _, rate := range []float64{-0.1, 1.1} {
		_, err = demo.NewProvider(nil, demo.ProviderConfig{Schema: "notifyq", FailureRate: rate})
		require.Error(t, err)
	}
}
