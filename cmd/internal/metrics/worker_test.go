package metrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestWorkerIsShown(t *testing.T) {
	t.Parallel()
	there := false
	m := newMetrics(t, Config{Source: &source{}, Worker: func() (notifyq.WorkerStats, bool) {
		return notifyq.WorkerStats{
			Claimed: 1, Sent: 2, Retried: 3, Failed: 4, DeadLettered: 5, Released: 6, Deferred: 7, LeaseLost: 8, Recovered: 9,
			Waiting: 10, Running: 11, Unrecorded: 12, Draining: true,
			Relay: notifyq.RelayStats{Claimed: 13, Published: 14, Failed: 15, Parked: 16, Released: 17, LeaseLost: 18, Sending: 19},
		}, there
	}})
	require.NotContains(t, get(m, "").Body.String(), "notifyq_worker")
	there = true
	text := get(m, "").Body.String()
	for _, line := range []string{
		"notifyq_worker_claimed_total 1", `notifyq_worker_outcomes_total{outcome="sent"} 2`,
		`notifyq_worker_outcomes_total{outcome="retried"} 3`, `notifyq_worker_outcomes_total{outcome="failed"} 4`,
		`notifyq_worker_outcomes_total{outcome="dead_lettered"} 5`, `notifyq_worker_outcomes_total{outcome="released"} 6`,
		`notifyq_worker_outcomes_total{outcome="deferred"} 7`, `notifyq_worker_outcomes_total{outcome="lease_lost"} 8`,
		"notifyq_worker_recovered_total 9", `notifyq_worker_jobs{state="waiting"} 10`, `notifyq_worker_jobs{state="running"} 11`,
		`notifyq_worker_jobs{state="unrecorded"} 12`, "notifyq_worker_draining 1", "notifyq_relay_claimed_total 13",
		`notifyq_relay_outcomes_total{outcome="published"} 14`, `notifyq_relay_outcomes_total{outcome="failed"} 15`,
		`notifyq_relay_outcomes_total{outcome="parked"} 16`, `notifyq_relay_outcomes_total{outcome="released"} 17`,
		`notifyq_relay_outcomes_total{outcome="lease_lost"} 18`, "notifyq_relay_sending 19",
	} {
		require.Contains(t, text, line+"\n")
	}
	require.NotContains(t, text, "notifyq_worker_poll_age_seconds", "it has not polled")
}
