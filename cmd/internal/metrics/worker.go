package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/notifyq/notifyq"
)

// workerCollector shows what this process' worker has done, and what its relay has.
type workerCollector struct {
	stats func() (notifyq.WorkerStats, bool)

	claimed, outcomes, recovered, jobs, polled, draining *prometheus.Desc
	relayClaimed, relayEvents, relaySending, relayPolled *prometheus.Desc
}

func newWorkerCollector(stats func() (notifyq.WorkerStats, bool)) *workerCollector {
	return &workerCollector{
		stats:   stats,
		claimed: desc("worker_claimed_total", "Jobs that this worker claimed."),
		outcomes: desc("worker_outcomes_total",
			"What became of jobs that this worker claimed; lease_lost ones were told too late.", "outcome"),
		recovered: desc("worker_recovered_total", "Expired claims of other workers that this worker gave back."),
		jobs: desc("worker_jobs",
			"Jobs that this worker holds: unrecorded ones have an outcome that is not written yet.", "state"),
		polled:       desc("worker_poll_age_seconds", "How long ago this worker last looked for due jobs."),
		draining:     desc("worker_draining", "1 if this worker has been told to stop."),
		relayClaimed: desc("relay_claimed_total", "Events that this worker's relay claimed."),
		relayEvents: desc("relay_outcomes_total",
			"What became of events that this worker's relay claimed; parked ones are among the failed.", "outcome"),
		relaySending: desc("relay_sending", "Events on their way."),
		relayPolled:  desc("relay_poll_age_seconds", "How long ago this worker's relay last looked for due events."),
	}
}

func (c *workerCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.claimed, c.outcomes, c.recovered, c.jobs, c.polled, c.draining, c.relayClaimed, c.relayEvents, c.relaySending,
		c.relayPolled,
	} {
		to <- d
	}
}

func (c *workerCollector) Collect(to chan<- prometheus.Metric) {
	s, ok := c.stats()
	if !ok {
		return
	}
	to <- counter(c.claimed, float64(s.Claimed))
	for outcome, n := range map[string]int64{
		"sent": s.Sent, "retried": s.Retried, "failed": s.Failed, "dead_lettered": s.DeadLettered, "released": s.Released,
		"deferred": s.Deferred, "lease_lost": s.LeaseLost,
	} {
		to <- counter(c.outcomes, float64(n), outcome)
	}
	to <- counter(c.recovered, float64(s.Recovered))
	to <- gauge(c.jobs, float64(s.Waiting), "waiting")
	to <- gauge(c.jobs, float64(s.Running), "running")
	to <- gauge(c.jobs, float64(s.Unrecorded), "unrecorded")
	to <- gauge(c.draining, truth(s.Draining))
	if !s.PolledAt.IsZero() {
		to <- gauge(c.polled, time.Since(s.PolledAt).Seconds())
	}
	r := s.Relay
	to <- counter(c.relayClaimed, float64(r.Claimed))
	for outcome, n := range map[string]int64{
		"published": r.Published, "failed": r.Failed, "parked": r.Parked, "released": r.Released, "lease_lost": r.LeaseLost,
	} {
		to <- counter(c.relayEvents, float64(n), outcome)
	}
	to <- gauge(c.relaySending, float64(r.Sending))
	if !r.PolledAt.IsZero() {
		to <- gauge(c.relayPolled, time.Since(r.PolledAt).Seconds())
	}
}
