package metrics

import (
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/notifyq/notifyq"
)

// statusLabels are the values of the label status, in Prometheus' spelling.
var statusLabels = map[notifyq.Status]string{
	notifyq.StatusPending: "pending", notifyq.StatusProcessing: "processing", notifyq.StatusSent: "sent",
	notifyq.StatusFailed: "failed", notifyq.StatusDeadLettered: "dead_lettered", notifyq.StatusCancelled: "cancelled",
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("notifyq_"+name, help, labels, nil)
}

// gauge and counter are values read at this moment.
func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

func buildInfo(binary, version string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "notifyq_build_info", Help: "What runs here. Always 1.",
		ConstLabels: prometheus.Labels{"binary": binary, "version": version, "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}

// queueCollector shows the last sample.
type queueCollector struct {
	sampler *sampler

	jobs, lag, estimated                          *prometheus.Desc
	events, oldestPending, oldestDue, failing     *prometheus.Desc
	disabledEndpoints, age, duration, failedCount *prometheus.Desc
}

func newQueueCollector(s *sampler) *queueCollector {
	return &queueCollector{
		sampler: s,
		jobs:    desc("jobs", "Jobs by status, over all workers.", "status"),
		lag:     desc("queue_lag_seconds", "How long the oldest due job has waited to be claimed."),
		estimated: desc("stats_estimated",
			"1 if a count of the sample is an estimate or a lower bound, as those of long histories are."),
		events: desc("outbox_events",
			"Events by state: parked ones were given up, held ones wait for a disabled endpoint.", "state"),
		oldestPending:     desc("outbox_oldest_pending_seconds", "Age of the oldest pending event."),
		oldestDue:         desc("outbox_oldest_due_seconds", "How long the oldest due event has waited to be claimed."),
		failing:           desc("outbox_failing_events", "Pending events that failed at least so often.", "at_least"),
		disabledEndpoints: desc("outbox_disabled_endpoints", "Receivers that get nothing until somebody enables them."),
		age:               desc("sample_age_seconds", "Age of the values of jobs, queue and outbox."),
		duration:          desc("sample_duration_seconds", "How long their sample took."),
		failedCount:       desc("sample_failures_total", "Samples that failed."),
	}
}

func (c *queueCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.jobs, c.lag, c.estimated, c.events, c.oldestPending, c.oldestDue, c.failing, c.disabledEndpoints, c.age, c.duration,
		c.failedCount,
	} {
		to <- d
	}
}

func (c *queueCollector) Collect(to chan<- prometheus.Metric) {
	last, failures := c.sampler.current()
	to <- counter(c.failedCount, float64(failures))
	if last == nil {
		return // zeros would be a lie
	}
	to <- gauge(c.age, time.Since(last.at).Seconds())
	to <- gauge(c.duration, last.took.Seconds())
	for status, label := range statusLabels {
		to <- gauge(c.jobs, float64(last.stats.Jobs[status]), label)
	}
	to <- gauge(c.lag, last.stats.QueueLag.Seconds())
	o := last.stats.Outbox
	to <- gauge(c.estimated, truth(last.stats.Estimated || o.Estimated))
	to <- gauge(c.events, float64(o.Pending), "pending")
	to <- gauge(c.events, float64(o.Parked-o.Held), "parked")
	to <- gauge(c.events, float64(o.Held), "held")
	to <- gauge(c.events, float64(o.Published), "published")
	to <- gauge(c.oldestPending, o.OldestPending.Seconds())
	to <- gauge(c.oldestDue, o.OldestDue.Seconds())
	for least, n := range o.Failing {
		to <- gauge(c.failing, float64(n), strconv.Itoa(least))
	}
	to <- gauge(c.disabledEndpoints, float64(o.DisabledEndpoints))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
