package store

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/migrate"
)

// burst is a queue that was drained, vacuumed and filled again before the next ANALYZE: the planner thinks it holds
// nothing, or as much as was left.
type burst struct {
	pool  *pgxpool.Pool
	store *Store
}

const burstJobs = 20_000

func newBurst(t *testing.T, left int) *burst {
	t.Helper()
	// A database of its own: snapshots of other tests would keep the vacuum from what was deleted.
	pool, err := pgxpool.New(t.Context(), dbtest.NewDatabase(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = migrate.Up(t.Context(), pool, migrate.Options{})
	require.NoError(t, err)
	b := &burst{pool, New("notifyq", Guards{Cancel: []int16{0}, Redrive: []int16{3, 4}})}
	b.fill(t)
	for _, table := range []string{"notification_queue", "notifications"} {
		b.exec(t, "delete from notifyq."+table+" where id not in (select id from notifyq."+table+" order by id desc limit $1)", left)
	}
	b.exec(t, "vacuum analyze notifyq.notification_queue")
	b.exec(t, "vacuum analyze notifyq.notifications")
	b.fill(t)
	return b
}

func (b *burst) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func (b *burst) fill(t *testing.T) {
	t.Helper()
	b.exec(t, `
		with asked as (
		    insert into notifyq.notifications (id, tenant, idempotency_key, request_fingerprint, recipient, recipient_key, channel,
		                                       payload, priority, scheduled_at, expires_at, max_attempts)
		    select gen_random_uuid(), 'a', gen_random_uuid()::text, '\x00', 'u', 'u', 'EMAIL', '{}', 2, now(), now() + interval '1 h', 4
		      from generate_series(1, $1::int)
		    returning *)
		insert into notifyq.notification_queue (id, tenant, channel, priority, next_attempt_at, expires_at, max_attempts, updated_at)
		select id, tenant, channel, priority, scheduled_at, expires_at, max_attempts, now() from asked`, burstJobs)
}

var hits = regexp.MustCompile(`shared hit=(\d+)`)

// pages counts the pages that a pinned statement reads, in a transaction that is rolled back.
func (b *burst) pages(t *testing.T, mode, sql string, args ...any) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, set := range []string{pinSQL, "set local plan_cache_mode = " + mode} {
		_, err := tx.Exec(ctx, set)
		require.NoError(t, err)
	}
	rows, err := tx.Query(ctx, "explain (analyze, buffers, costs off, timing off, summary off) "+sql, args...)
	require.NoError(t, err)
	var plan []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		plan = append(plan, line)
	}
	require.NoError(t, rows.Err(), "%s", sql)
	text := strings.Join(plan, "\n")
	require.NotContains(t, text, "Seq Scan on notif", text)
	most := 0
	for _, found := range hits.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		most = max(most, n)
	}
	return most
}

// A burst after a drain must not cost a walk over the queue for each row: a claim of 1,000 took 39 s that way.
func TestStatementsLookRowsUpInAQueueThatWasDrained(t *testing.T) {
	t.Parallel()
	const n, most = 100, 100 * 60 // pages: some dozens for each row that is found, moved and indexed
	for _, left := range []int{0, 1, 20} {
		t.Run(strconv.Itoa(left)+" left", func(t *testing.T) {
			t.Parallel()
			b := newBurst(t, left)
			token := uuid.New()
			claimArgs := append(laneArgs([]Lane{{"EMAIL", n, []Probe{{2, Mark{}, n}}}}), pgUUID(token), "w", micros(time.Minute))
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				require.Less(t, b.pages(t, mode, b.store.sql.claim, claimArgs...), most, "claim, %s", mode)
			}
			jobs, err := b.store.Claim(t.Context(), b.pool, Lease{"w", token, time.Minute}, Lane{"EMAIL", n, []Probe{{2, Mark{}, n}}})
			require.NoError(t, err)
			require.Len(t, jobs, n)
			b.requireFencedLookups(t, jobs, token, most)
			b.exec(t, "update notifyq.notification_queue set leased_until = now() - interval '1 s' where status = 1")
			b.exec(t, "update notifyq.notification_queue set expires_at = now() - interval '1 s' where id in (select id from notifyq.notification_queue where status = 0 limit 100)")
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				require.Less(t, b.pages(t, mode, b.store.sql.recover, n, true), most, "recover, %s", mode)
				require.Less(t, b.pages(t, mode, b.store.sql.expire, n, true), most, "expire, %s", mode)
			}
		})
	}
}

// requireFencedLookups checks what ends, prolongs and hands back claims.
func (b *burst) requireFencedLookups(t *testing.T, jobs []Claimed, token uuid.UUID, most int) {
	t.Helper()
	var claims Claims
	batch := &Batch{Worker: "w", Events: true}
	var send []Deferral
	for _, j := range jobs {
		claims.Add(j.ID, token)
		batch.Sent = append(batch.Sent, Sent{ID: j.ID, Token: token})
		batch.Ended = append(batch.Ended, Ended{ID: j.ID, Token: token, Status: 4, Reason: "exhausted", Class: "transient"})
		batch.Retried = append(batch.Retried, Retried{ID: j.ID, Token: token, Class: "transient"})
		batch.Released = append(batch.Released, Released{ID: j.ID, Token: token, Error: "401"})
		send = append(send, Deferral{ID: j.ID, Token: token, Due: time.Now().Add(time.Hour)})
	}
	ids, tokens := claims.sorted()
	fence := []any{ids, tokens}
	lease := append(fence[:2:2], micros(time.Minute))
	for name, s := range map[string]struct {
		sql  string
		args []any
	}{
		"renew":   {b.store.sql.renew, lease},
		"start":   {b.store.sql.start, lease},
		"sent":    {b.store.sql.sentByID, sentArgs(batch.Sent, batch.Events)},
		"ended":   {b.store.sql.ended, endedArgs(batch)},
		"retry":   {b.store.sql.retry, retryArgs(batch)},
		"release": {b.store.sql.release, releaseArgs(batch.Released)},
		"defer":   {b.store.sql.deferred, deferArgs(send)},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			require.Less(t, b.pages(t, mode, s.sql, s.args...), most, "%s, %s", name, mode)
		}
	}
}
