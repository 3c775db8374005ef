package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// meter measures a stretch of work: its time, what it wrote and committed, and what this process used.
type meter struct {
	pool    *pgxpool.Pool
	holder  pgx.Tx // the held snapshot
	began   time.Time
	wal     int64
	commits int64
	cpu     time.Duration
	server  map[int]time.Duration // by backend
}

// settle brings the database to where every contender starts from, whatever its filling left: statistics and visibility
// are up to date, and no checkpoint is due.
func settle(ctx context.Context, pool *pgxpool.Pool, t task, table string) (*meter, error) {
	m := &meter{pool: pool}
	for _, sql := range []string{"vacuum analyze", "checkpoint"} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	if !t.Held {
		return m, nil
	}
	var err error
	if m.holder, err = pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}); err != nil {
		return nil, err
	}
	_, err = m.holder.Exec(ctx, "select count(*) from "+table)
	return m, err
}

const meterSQL = `select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,
       (select xact_commit from pg_stat_database where datname = current_database())`

func (m *meter) start(ctx context.Context) {
	_ = m.pool.QueryRow(ctx, meterSQL).Scan(&m.wal, &m.commits)
	m.server = m.backends(ctx)
	m.cpu = cpuTime()
	m.began = time.Now()
}

// backends is the CPU time that each of the database's connections has used, where the server runs on this machine.
func (m *meter) backends(ctx context.Context) map[int]time.Duration {
	used := make(map[int]time.Duration)
	rows, err := m.pool.Query(ctx, "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()")
	if err != nil {
		return used
	}
	pids, _ := pgx.CollectRows(rows, pgx.RowTo[int32])
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 12 {
			user, _ := strconv.Atoi(fields[11])
			system, _ := strconv.Atoi(fields[12])
			used[int(pid)] = time.Duration(user+system) * (time.Second / 100) // clock ticks, which Linux fixes at 100 a second
		}
	}
	return used
}

// stop adds to out what so many jobs took.
func (m *meter) stop(ctx context.Context, jobs int, out figures) error {
	took := time.Since(m.began)
	cpu := cpuTime() - m.cpu
	var server time.Duration
	for pid, used := range m.backends(ctx) {
		server += used - m.server[pid]
	}
	if m.holder != nil {
		defer func() { _ = m.holder.Rollback(ctx) }()
	}
	time.Sleep(1100 * time.Millisecond) // backends report what they committed once a second
	var wal, commits int64
	if err := m.pool.QueryRow(ctx, meterSQL).Scan(&wal, &commits); err != nil {
		return err
	}
	n := float64(jobs)
	out["jobs/s"] = n / took.Seconds()
	out["WAL bytes/job"] = float64(wal-m.wal) / n
	out["commits/job"] = float64(commits-m.commits) / n
	out["client CPU µs/job"] = float64(cpu.Microseconds()) / n
	out["server CPU µs/job"] = float64(server.Microseconds()) / n
	out["client peak MB"] = peakMemory()
	return nil
}

// emptied returns when done and no row is left.
func emptied(ctx context.Context, pool *pgxpool.Pool, left string, done func() bool) error {
	for {
		if done() {
			var more bool
			if err := pool.QueryRow(ctx, left).Scan(&more); err != nil || !more {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory is the most that this process had resident, in MB.
func peakMemory() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if kB, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(kB), " kB"), 64)
			return n / 1024
		}
	}
	return 0
}

// percentile of sorted durations, in ms.
func percentile(sorted []time.Duration, of float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(int(of*float64(len(sorted))), len(sorted)-1)].Microseconds()) / 1000
}
