package main

import (
	"slices"
	"strconv"
	"time"
)

// measurement is one question: contenders that do the same work, and what their ratios should be.
type measurement struct {
	name       string // for -only
	what       string
	figure     string // the one that is compared
	least      bool   // the smaller, the better
	contenders []contender
	targets    []target
	// relative sets the pace of the tasks by notifyq's median of an earlier measurement.
	relative string
	share    float64
}

type contender struct {
	name string
	task task
}

// target is a ratio of the first contender's figure, or of the one named of, to that of another; or, with a figure, a bound
// on a figure of the first.
type target struct {
	of, to  string
	atLeast float64
	figure  string
	atMost  float64
}

// options are what the command was asked for.
type options struct {
	quick    bool
	rounds   int
	only     string
	json     string
	graphile bool
}

// n is how many, or how many in a smoke test.
func (o options) n(full, quick int) int {
	if o.quick {
		return quick
	}
	return full
}

func (o options) lasting(full, quick time.Duration) time.Duration {
	if o.quick {
		return quick
	}
	return full
}

func names(all []measurement) []string {
	var out []string
	for _, m := range all {
		out = append(out, m.name)
	}
	return out
}

// measurements are all there are, in their order.
func measurements(o options) []measurement {
	return slices.Concat(drains(o), bigDrains(o), schedules(o), lives(o))
}

// drainer makes contenders that drain so many jobs.
func drainer(jobs int) func(name, do string, change func(*task)) contender {
	return func(name, do string, change func(*task)) contender {
		t := task{Do: do, Jobs: jobs}
		if change != nil {
			change(&t)
		}
		return contender{name, t}
	}
}

// drains compare with the peers.
func drains(o options) []measurement {
	drain := drainer(o.n(200_000, 2_000))
	return []measurement{
		{
			name: "drain", what: "drain of no-op jobs, event row written", figure: "jobs/s",
			contenders: []contender{
				drain("notifyq", "notifyq drain", nil),
				drain("river", "river drain", nil),
				drain("graphile-worker", "graphile drain", nil),
				drain("SQL floor", "floor drain", func(t *task) { t.Clients = 2 }),
			},
			targets: []target{
				{to: "river", atLeast: 3},
				{to: "graphile-worker", atLeast: 1.3},
				{to: "SQL floor", atLeast: 0.75},
				{figure: "WAL bytes/job", atMost: 1500},
				{figure: "commits/job", atMost: 0.02},
			},
		},
		{
			name: "defaults", what: "the same at default settings, and at 200 at once", figure: "jobs/s",
			contenders: []contender{
				drain("notifyq, 10 at once, 100 held", "notifyq drain", func(t *task) { t.Concurrency, t.BatchSize = 10, 100 }),
				drain("notifyq, 200 at once, 1,000 held", "notifyq drain", func(t *task) { t.Concurrency, t.BatchSize = 200, 1000 }),
			},
		},
		{
			name: "limited", what: "drain with a limit per recipient, distinct recipients", figure: "jobs/s",
			contenders: []contender{
				drain("notifyq", "notifyq drain", func(t *task) { t.Limited = true }),
				drain("river, without a limit", "river drain", nil),
			},
			targets: []target{{to: "river, without a limit", atLeast: 2.2}},
		},
		{
			name: "payload", what: "drain with 2 KB payloads", figure: "jobs/s",
			contenders: []contender{
				drain("notifyq", "notifyq drain", func(t *task) { t.PayloadBytes = 2048 }),
				drain("river", "river drain", func(t *task) { t.PayloadBytes = 2048 }),
			},
			targets: []target{{to: "river", atLeast: 2.5}},
		},
	}
}

// bigDrains compare notifyq with itself.
func bigDrains(o options) []measurement {
	drain := drainer(o.n(200_000, 2_000))
	many, history := o.n(1_000_000, 4_000), o.n(5_000_000, 5_000)
	return []measurement{
		{
			name: "held", what: "drain while another transaction's snapshot is held open", figure: "jobs/s",
			contenders: []contender{
				drain("notifyq, held", "notifyq drain", func(t *task) { t.Jobs, t.Held = many, true }),
				drain("notifyq", "notifyq drain", func(t *task) { t.Jobs = many }),
			},
			targets: []target{{to: "notifyq", atLeast: 0.9}, {of: "notifyq", figure: "client peak MB", atMost: 80}},
		},
		{
			name: "history", what: "drain with a long history, and with a long future", figure: "jobs/s",
			contenders: []contender{
				drain("notifyq, much finished", "notifyq drain", func(t *task) { t.Finished = history }),
				drain("notifyq, much due tomorrow", "notifyq drain", func(t *task) { t.Tomorrow = history }),
				drain("notifyq, empty tables", "notifyq drain", nil),
			},
			targets: []target{
				{to: "notifyq, empty tables", atLeast: 0.9},
				{of: "notifyq, much due tomorrow", to: "notifyq, empty tables", atLeast: 0.9},
			},
		},
		{
			name: "processes", what: "drain by several processes on one database", figure: "jobs/s",
			contenders: []contender{
				drain("1", "notifyq drain", func(t *task) { t.Jobs, t.Workers = many, 1 }),
				drain("4", "notifyq drain", func(t *task) { t.Jobs, t.Workers = many, 4 }),
				drain("16", "notifyq drain", func(t *task) { t.Jobs, t.Workers = many, 16 }),
			},
			targets: []target{
				{to: "4", atLeast: 0.85},
				{to: "16", atLeast: 0.85},
				{of: "4", to: "1", atLeast: 0.85},
				{of: "4", to: "16", atLeast: 0.85},
				{of: "16", to: "1", atLeast: 0.85},
				{of: "16", to: "4", atLeast: 0.85},
			},
		},
	}
}

// schedules measure how fast jobs come in.
func schedules(o options) []measurement {
	var all []measurement
	for _, clients := range []int{16, 64} {
		one := func(name, do string) contender {
			return contender{name, task{Do: do, Jobs: o.n(20_000, 500), Clients: clients}}
		}
		all = append(all, measurement{
			name: "schedule" + strconv.Itoa(clients), what: "one Schedule a call, from as many goroutines", figure: "scheduled/s",
			contenders: []contender{one("notifyq", "notifyq schedule"), one("river", "river schedule")},
			targets:    []target{{to: "river", atLeast: 3}},
		})
	}
	drain := drainer(o.n(200_000, 2_000))
	return append(all, []measurement{
		{
			name: "bulk", what: "ScheduleMany beside River's COPY insert", figure: "scheduled/s",
			contenders: []contender{
				drain("notifyq", "notifyq schedule", nil),
				drain("river", "river schedule", nil),
			},
			targets: []target{{to: "river", atLeast: 1}},
		},
	}...)
}

// lives measure what runs for a while.
func lives(o options) []measurement {
	return []measurement{
		{
			name: "latency", what: "from the call of Schedule to the provider, 100 a second", figure: "p99 ms", least: true,
			contenders: []contender{
				{"notifyq", task{Do: "notifyq latency", Jobs: o.n(1500, 50), PerSecond: 100}},
				{"river", task{Do: "river latency", Jobs: o.n(1500, 50), PerSecond: 100}},
			},
			targets: []target{{to: "river", atLeast: 2}},
		},
		{
			name: "sustained", what: "scheduled and delivered at once at 70 % of the drain rate", figure: "p99 ms", least: true,
			relative: "drain", share: 0.7,
			contenders: []contender{{"notifyq", task{Do: "notifyq sustained", PerSecond: 5000, Lasting: o.lasting(5*time.Minute, 3*time.Second)}}},
			targets:    []target{{figure: "p99 ms", atMost: 250}, {figure: "left", atMost: 5000}},
		},
		{
			name: "idle", what: "an idle worker, a minute", figure: "CPU %", least: true,
			contenders: []contender{{"notifyq", task{Do: "notifyq idle", Lasting: o.lasting(time.Minute, 3*time.Second)}}},
			targets:    []target{{figure: "CPU %", atMost: 1}, {figure: "WAL bytes", atMost: 0}, {figure: "transaction ids", atMost: 0}},
		},
		{
			name: "http", what: "the API over HTTP, 64 connections; this program and the database on the same cores", figure: "POST/s",
			contenders: []contender{{"notifyq-api", task{Do: "notifyq http", Clients: 64, Jobs: o.n(1_000_000, 3000), Lasting: o.lasting(10*time.Second, time.Second)}}},
			targets:    []target{{figure: "POST p99 ms", atMost: 50}},
		},
	}
}
