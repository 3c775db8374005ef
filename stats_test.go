package notifyq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestStatsCountEveryStatus(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	stats, err := b.client.Stats(t.Context())
	require.NoError(t, err)
	require.Len(t, stats.Jobs, len(everyStatus), "every status is there, also without jobs")
	require.Zero(t, stats.QueueLag)

	jobs := b.zoo(t)
	for _, tenant := range []string{"", "acme"} {
		client := b.client
		if tenant != "" {
			client = client.ForTenant(tenant)
		}
		want := map[notifyq.Status]int64{}
		for _, job := range jobs {
			if tenant == "" || job.Tenant == tenant {
				want[job.Status]++
			}
		}
		stats, err := client.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, stats.Jobs)
		require.False(t, stats.Estimated)
	}
}

func TestQueueLagIsTheWaitOfTheOldestDueJob(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	lag := func(client *notifyq.Client) time.Duration {
		stats, err := client.Stats(t.Context())
		require.NoError(t, err)
		return stats.QueueLag
	}
	add := func(key string, tenant string, channel notifyq.Channel, priority notifyq.Priority, dueSince string) {
		n := email(key)
		n.Tenant, n.Channel, n.Priority = tenant, channel, priority
		id := b.schedule(t, n).ID
		b.exec(t, `update @notification_queue set next_attempt_at = now() - $2::text::interval where id = $1`, id, dueSince)
	}
	add("future", "", notifyq.ChannelEmail, notifyq.PriorityHigh, "-1 hour")
	require.Zero(t, lag(b.client), "what is not due does not wait")
	add("minutes", "acme", notifyq.ChannelEmail, notifyq.PriorityHigh, "10 minutes")
	add("hours", "beta", notifyq.ChannelSMS, notifyq.PriorityLow, "3 hours")
	add("days", "beta", notifyq.ChannelPush, notifyq.PriorityNormal, "2 days")
	add("fax", "beta", "A-FAX", notifyq.PriorityNormal, "1 minute")

	within := func(least time.Duration, got time.Duration) {
		t.Helper()
		require.GreaterOrEqual(t, got, least)
		require.Less(t, got, least+5*time.Minute)
	}
	within(48*time.Hour, lag(b.client))
	within(10*time.Minute, lag(b.client.ForTenant("acme")))
	require.NoError(t, b.client.PauseChannel(t.Context(), notifyq.ChannelPush, notifyq.Operation{}))
	within(3*time.Hour, lag(b.client))
	b.hold(t, value[[16]byte](t, b, `select id from @notifications where idempotency_key = 'hours'`))
	within(10*time.Minute, lag(b.client))
	require.NoError(t, b.client.ResumeChannel(t.Context(), notifyq.ChannelPush, notifyq.Operation{}))
	within(48*time.Hour, lag(b.client))
}
