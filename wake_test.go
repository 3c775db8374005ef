package notifyq

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// What makes jobs due wakes the workers that were given the client, once it is committed; nothing else does.
func TestTheClientWakesWorkersForWhatIsDue(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	c, err := NewClient(db.Pool, ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	acme := c.ForTenant("acme")
	woken := 0
	remove := c.wakers.add(func() { woken++ })
	ctx := t.Context()
	n := func(key string, delay time.Duration) Notification {
		return Notification{IdempotencyKey: key, Recipient: "u@example.test", Channel: ChannelEmail, Payload: []byte(`{}`), Delay: delay}
	}
	kill := func() {
		_, err := db.Pool.Exec(ctx, fmt.Sprintf(`with gone as (delete from %[1]s.notification_queue where redrive_count = 0 returning *)
			insert into %[1]s.notification_outcomes (id, tenant, status, finished_at, attempt_count, max_attempts, reason)
			select id, tenant, 4, now(), 0, max_attempts, 'exhausted' from gone`, db.Schema))
		require.NoError(t, err)
	}
	var id uuid.UUID
	for _, step := range []struct {
		name string
		want int
		do   func() error
	}{
		{"due now", 1, func() error {
			scheduled, err := c.Schedule(ctx, n("now", 0))
			id = scheduled.ID
			return err
		}},
		{"a replay", 0, func() error { _, err := c.Schedule(ctx, n("now", 0)); return err }},
		{"due later", 0, func() error { _, err := c.Schedule(ctx, n("later", time.Hour)); return err }},
		{"some due now", 1, func() error {
			_, err := c.ScheduleMany(ctx, []Notification{n("later 2", time.Hour), n("now 2", 0)})
			return err
		}},
		{"a caller's transaction", 0, func() error {
			return pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error { _, err := c.ScheduleTx(ctx, tx, n("tx", 0)); return err })
		}},
		{"Wake", 1, func() error { c.Wake(); return nil }},
		{"Wake of a tenant's client", 1, func() error { acme.Wake(); return nil }},
		{"a pause", 0, func() error { return c.PauseChannel(ctx, ChannelEmail, Operation{}) }},
		{"a resumption", 1, func() error { return c.ResumeChannel(ctx, ChannelEmail, Operation{}) }},
		{"a redrive", 1, func() error { kill(); _, err := c.Redrive(ctx, id, Operation{}); return err }},
		{"a bulk redrive", 1, func() error { _, err := c.RedriveMany(ctx, RedriveParams{}); return err }},
		{"a bulk redrive of nothing", 0, func() error { _, err := c.RedriveMany(ctx, RedriveParams{}); return err }},
		{"reading", 0, func() error { _, err := c.Stats(ctx); return err }},
		{"no worker", 0, func() error { remove(); c.Wake(); return nil }},
	} {
		woken = 0
		require.NoError(t, step.do(), step.name)
		require.Equal(t, step.want, woken, step.name)
	}
}
