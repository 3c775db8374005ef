package metrics

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// poolCollector shows the process' connections. A worker's own are not among them.
type poolCollector struct {
	pool *pgxpool.Pool

	connections, most, acquired, waited, wait, cancelled *prometheus.Desc
}

func newPoolCollector(pool *pgxpool.Pool) *poolCollector {
	return &poolCollector{
		pool:        pool,
		connections: desc("db_pool_connections", "Connections of the pool.", "state"),
		most:        desc("db_pool_max_connections", "What DATABASE_POOL_MAX allows."),
		acquired:    desc("db_pool_acquires_total", "Connections that were taken from the pool."),
		waited:      desc("db_pool_waits_total", "Those that had to be waited for, since none was idle."),
		wait:        desc("db_pool_wait_seconds_total", "How long they were waited for."),
		cancelled:   desc("db_pool_cancelled_acquires_total", "Those that were given up before there was one."),
	}
}

func (c *poolCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.connections, c.most, c.acquired, c.waited, c.wait, c.cancelled} {
		to <- d
	}
}

func (c *poolCollector) Collect(to chan<- prometheus.Metric) {
	s := c.pool.Stat()
	to <- gauge(c.connections, float64(s.AcquiredConns()), "acquired")
	to <- gauge(c.connections, float64(s.IdleConns()), "idle")
	to <- gauge(c.connections, float64(s.ConstructingConns()), "connecting")
	to <- gauge(c.most, float64(s.MaxConns()))
	to <- counter(c.acquired, float64(s.AcquireCount()))
	to <- counter(c.waited, float64(s.EmptyAcquireCount()))
	to <- counter(c.wait, s.EmptyAcquireWaitTime().Seconds())
	to <- counter(c.cancelled, float64(s.CanceledAcquireCount()))
}
