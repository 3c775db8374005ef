package migrate

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// ternLock is the one key that every tern in a database locks, in a statement that waits for ever. Holding it
	// already, in the same session, it does not wait.
	ternLock = 9628173550095224

	firstPoll = 25 * time.Millisecond
	lastPoll  = time.Second
	// noticeEvery is how often waiting is logged.
	noticeEvery = 5 * time.Second
)

// lockKey is the schema's own lock, taken before anything exists that could be locked.
func lockKey(schemaName string) int64 {
	h := fnv.New64a()
	h.Write([]byte("notifyq:" + schemaName))
	return int64(h.Sum64())
}

// lock takes the schema's lock and then tern's, which is shared with the host's own migrations. All migrators take them
// in this order, and no one waits for one in a statement. They end with the session.
func lock(ctx context.Context, conn *pgx.Conn, opts Options) error {
	deadline := time.Now().Add(opts.LockTimeout)
	if err := poll(ctx, conn, opts, lockKey(opts.Schema), deadline); err != nil {
		return fmt.Errorf("%w of schema %s", err, opts.Schema)
	}
	if err := poll(ctx, conn, opts, ternLock, deadline); err != nil {
		return fmt.Errorf("%w by tern in this database, of another schema or of the host; Up can't run inside one", err)
	}
	return nil
}

// poll asks for a lock until it has it.
func poll(ctx context.Context, conn *pgx.Conn, opts Options, key int64, deadline time.Time) error {
	pause, notice := firstPoll, time.Now()
	for {
		var taken bool
		if err := conn.QueryRow(ctx, "select pg_catalog.pg_try_advisory_lock($1)", key).Scan(&taken); err != nil {
			return fmt.Errorf("take the lock: %w", err)
		}
		now := time.Now()
		switch {
		case taken:
			return nil
		case now.After(deadline):
			return fmt.Errorf("%w: backend %d holds the lock for longer than LockTimeout (%s)", ErrLocked,
				holder(ctx, conn, key), opts.LockTimeout)
		case now.After(notice):
			opts.Logger.InfoContext(ctx, "waiting for another migration", "schema", opts.Schema,
				"backend", holder(ctx, conn, key), "secondsLeft", int(deadline.Sub(now).Seconds()))
			notice = now.Add(noticeEvery)
		}
		// Jitter, so that those who wait don't ask in step.
		if err := sleep(ctx, min(pause/2+rand.N(pause), deadline.Sub(now)+time.Millisecond)); err != nil {
			return err
		}
		pause = min(2*pause, lastPoll)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// holder is the backend that has a lock, for people. 0 if it has just let it go.
func holder(ctx context.Context, conn *pgx.Conn, key int64) (pid int) {
	const sql = `
		select l.pid from pg_catalog.pg_locks l
		  join pg_catalog.pg_database d on d.oid = l.database and d.datname = pg_catalog.current_database()
		 where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
		   and (l.classid::bigint << 32) | l.objid::bigint = $1`
	if err := conn.QueryRow(ctx, sql, key).Scan(&pid); err != nil {
		return 0
	}
	return pid
}
