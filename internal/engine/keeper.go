package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/store"
)

// keeper renews the leases of jobs that wait for a slot or for their outcome to be recorded. A running delivery needs no
// renewal: it started with a lease that outlasts it.
type keeper struct {
	e    *Engine
	kick chan struct{} // one slot: outcomes can't be written
}

func newKeeper(e *Engine) *keeper { return &keeper{e: e, kick: make(chan struct{}, 1)} }

// hurry has the leases of all unrecorded jobs renewed now: some of them had little left when their calls returned.
func (k *keeper) hurry() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// renewBatch bounds one renewal.
const renewBatch = 500

func (k *keeper) loop(ctx context.Context) {
	ticker := time.NewTicker(min(max(k.e.cfg.Lease/8, 20*time.Millisecond), 10*time.Second))
	defer ticker.Stop()
	for {
		hurried := false
		select {
		case <-ctx.Done():
			return
		case <-k.kick:
			hurried = true
		case <-ticker.C:
		}
		now := time.Now()
		due := k.e.board.pick(func(j *Job) bool {
			return (j.state == waiting || j.state == ended) && (j.leaseLeft(now) < j.leaseFor/2 || (hurried && j.state == ended))
		})
		for len(due) > 0 && ctx.Err() == nil {
			n := min(renewBatch, len(due))
			if _, err := k.renew(ctx, due[:n], k.e.cfg.Store.Renew); err != nil {
				k.e.log.Warn("worker.renew_failed", "jobs", len(due), "error", store.Describe(err))
				break
			}
			due = due[n:]
		}
	}
}

type renewal func(ctx context.Context, pool *pgxpool.Pool, claims store.Claims, d time.Duration) (store.Claims, error)

// renew prolongs the leases of jobs through one of the store's statements and tells for which that worked.
func (k *keeper) renew(ctx context.Context, jobs []*Job, statement renewal) (map[*Job]bool, error) {
	held := make(map[store.Claim]*Job, len(jobs))
	var claims store.Claims
	for _, j := range jobs {
		j.moved.Store(true)
		held[store.Claim{ID: j.ID, Token: j.Token}] = j
		claims.Add(j.ID, j.Token)
	}
	ctx, cancel := k.e.call(ctx)
	defer cancel()
	sent := time.Now()
	done, err := statement(ctx, k.e.cfg.Pool, claims, k.e.cfg.Lease)
	if err != nil {
		return nil, err
	}
	renewed := make([]*Job, 0, done.Len())
	ok := make(map[*Job]bool, done.Len())
	for i := range done.Len() {
		j := held[store.Claim{ID: done.IDs[i], Token: done.Tokens[i]}]
		renewed = append(renewed, j)
		ok[j] = true
	}
	k.e.board.renewed(renewed, sent, k.e.cfg.Lease)
	return ok, nil
}
