package notifyq_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestATenantSchedulesOnlyForItself(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	acme, none := b.client.ForTenant("acme"), b.client.ForTenant("")
	for client, tenant := range map[*notifyq.Client]string{acme: "acme", none: ""} {
		for _, given := range []string{"", tenant} {
			n := email("same key")
			n.Tenant = given
			scheduled, err := client.Schedule(t.Context(), n)
			require.NoError(t, err)
			require.Equal(t, tenant, scheduled.Job.Tenant)
		}
		n := email("k")
		n.Tenant = "beta"
		_, err := client.Schedule(t.Context(), n)
		requireInvalid(t, err, "Tenant")
		_, err = client.List(t.Context(), notifyq.ListParams{Tenant: "beta"})
		requireInvalid(t, err, "Tenant")
		_, err = client.RedriveMany(t.Context(), notifyq.RedriveParams{Tenant: "beta"})
		requireInvalid(t, err, "Tenant")
		job, err := client.GetByKey(t.Context(), "same key")
		require.NoError(t, err)
		require.Equal(t, tenant, job.Tenant)
	}
	n := email("same key")
	n.Tenant = "beta"
	require.False(t, b.schedule(t, n).Replayed, "keys are the tenants' own")
	require.Equal(t, 3, b.count(t, "@notifications"))
}

func TestAnotherTenantsJobsDoNotExist(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	theirs := email("theirs")
	theirs.Tenant = "beta"
	pending := b.schedule(t, theirs).ID
	theirs.IdempotencyKey = "dead"
	dead := b.schedule(t, theirs).ID
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, dead)

	for _, tenant := range []string{"acme", "", "bet", "beta "} {
		client := b.client.ForTenant(tenant)
		_, err := client.Get(t.Context(), pending)
		require.ErrorIs(t, err, notifyq.ErrNotFound)
		_, err = client.GetByKey(t.Context(), "theirs")
		require.ErrorIs(t, err, notifyq.ErrNotFound)
		_, err = client.Attempts(t.Context(), dead)
		require.ErrorIs(t, err, notifyq.ErrNotFound)
		job, err := client.Cancel(t.Context(), pending, notifyq.Operation{})
		require.ErrorIs(t, err, notifyq.ErrNotFound)
		require.Zero(t, job)
		b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
			_, err = client.CancelTx(t.Context(), tx, pending, notifyq.Operation{})
			require.ErrorIs(t, err, notifyq.ErrNotFound)
		})
		job, err = client.Redrive(t.Context(), dead, notifyq.Operation{})
		require.ErrorIs(t, err, notifyq.ErrNotFound)
		require.Zero(t, job)
		done, err := client.RedriveMany(t.Context(), notifyq.RedriveParams{})
		require.NoError(t, err)
		require.Zero(t, done)
		for _, status := range append([]notifyq.Status{""}, everyStatus...) {
			for _, recipient := range []string{"", "u@example.test"} {
				page, err := client.List(t.Context(), notifyq.ListParams{Status: status, Recipient: recipient})
				require.NoError(t, err)
				require.Empty(t, page.Jobs)
			}
		}
		erased, err := client.EraseRecipient(t.Context(), "u@example.test")
		require.NoError(t, err)
		require.Zero(t, erased)
		stats, err := client.Stats(t.Context())
		require.NoError(t, err)
		for status, n := range stats.Jobs {
			require.Zero(t, n, status)
		}
		require.Zero(t, stats.QueueLag)
	}
	require.Equal(t, notifyq.StatusPending, b.get(t, pending).Status)
	require.Equal(t, notifyq.StatusDeadLettered, b.get(t, dead).Status)

	beta := b.client.ForTenant("beta")
	done, err := beta.RedriveMany(t.Context(), notifyq.RedriveParams{Tenant: "beta"})
	require.NoError(t, err)
	require.Equal(t, notifyq.Redriven{Retried: 1}, done)
	_, err = beta.Cancel(t.Context(), pending, notifyq.Operation{})
	require.NoError(t, err)
	erased, err := beta.EraseRecipient(t.Context(), "u@example.test")
	require.NoError(t, err)
	require.Equal(t, notifyq.Erased{Cancelled: 1, Erased: 2}, erased)
}

func TestATenantMayNotPauseAChannel(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for _, tenant := range []string{"acme", ""} {
		client := b.client.ForTenant(tenant)
		requireInvalid(t, client.PauseChannel(t.Context(), notifyq.ChannelEmail, notifyq.Operation{}), "Tenant")
		requireInvalid(t, client.ResumeChannel(t.Context(), notifyq.ChannelEmail, notifyq.Operation{}), "Tenant")
	}
	require.Zero(t, b.count(t, "@channel_states"))
}

func TestAWrongTenantBreaksEveryCall(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.schedule(t, email("k")).ID
	for _, client := range []*notifyq.Client{
		b.client.ForTenant("a\nb"), b.client.ForTenant("\xff"), b.client.ForTenant(strings.Repeat("t", 65)),
		b.client.ForTenant("acme").ForTenant("beta"), b.client.ForTenant("acme").ForTenant(""), b.client.ForTenant("").ForTenant("acme"),
		b.client.ForTenant("acme").ForTenant("beta").ForTenant("beta"), b.client.ForTenant("a\nb").ForTenant("a"),
	} {
		calls := everyCall(client, id)
		calls["ScheduleTx"] = func(ctx context.Context) (err error) {
			b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) { _, err = client.ScheduleTx(ctx, tx, email("tx")) })
			return err
		}
		calls["CancelTx"] = func(ctx context.Context) (err error) {
			b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) { _, err = client.CancelTx(ctx, tx, id, notifyq.Operation{}) })
			return err
		}
		calls["PublishTx"] = func(ctx context.Context) (err error) {
			b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
				_, err = client.PublishTx(ctx, tx, notifyq.Event{Topic: "t", Body: []byte("b")})
			})
			return err
		}
		for name, call := range calls {
			err := call(t.Context())
			require.ErrorIs(t, err, notifyq.ErrInvalid, name)
			requireInvalid(t, err, "Tenant")
		}
	}
	require.Equal(t, 1, b.count(t, "@notification_queue"))
	_, err := b.client.ForTenant("acme").ForTenant("acme").Schedule(t.Context(), email("k"))
	require.NoError(t, err)
}
