package main

import (
	"context"
	"time"
)

// idleNotifyq measures what a worker with nothing to do costs.
func idleNotifyq(ctx context.Context, t task) (figures, error) {
	q, err := openQueue(ctx, t)
	if err != nil {
		return nil, err
	}
	defer q.pool.Close()
	w, err := q.worker(task{Concurrency: 10, BatchSize: 100}, &counting{})
	if err != nil {
		return nil, err
	}
	if _, err := q.pool.Exec(ctx, "alter system set autovacuum = off"); err != nil { // it is not the worker's
		return nil, err
	}
	if _, err := q.pool.Exec(ctx, "select pg_reload_conf()"); err != nil {
		return nil, err
	}
	defer func() {
		_, _ = q.pool.Exec(context.WithoutCancel(ctx), "alter system reset autovacuum")
		_, _ = q.pool.Exec(context.WithoutCancel(ctx), "select pg_reload_conf()")
	}()
	stop := running(ctx, w)
	time.Sleep(3 * time.Second) // until it has started
	if _, err := q.pool.Exec(ctx, "checkpoint"); err != nil {
		return nil, err
	}
	const used = `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint`
	var wal, xid, walAfter, xidAfter int64
	if err := q.pool.QueryRow(ctx, used).Scan(&wal, &xid); err != nil {
		return nil, err
	}
	cpu := cpuTime()
	select {
	case <-time.After(t.Lasting):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := figures{"CPU %": 100 * float64(cpuTime()-cpu) / float64(t.Lasting), "peak MB": peakMemory()}
	if err := q.pool.QueryRow(ctx, used).Scan(&walAfter, &xidAfter); err != nil {
		return nil, err
	}
	out["WAL bytes"], out["transaction ids"] = float64(walAfter-wal), float64(xidAfter-xid)
	return out, stop()
}
