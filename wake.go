package notifyq

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq/internal/notify"
)

// Wake makes workers and relays look for what is due now instead of at their next poll: for callers that have just
// committed a ScheduleTx or PublishTx. It returns at once. Those of this process that were given this client are woken
// directly, those of other processes by a NOTIFY, which many calls share: it goes out in a statement of its own on the
// client's pool. If it fails they poll. What the client commits by itself needs no Wake.
func (c *Client) Wake() {
	c.wakers.wake()
	c.relays.wake()
}

// WakeTx is Wake at the commit of the caller's transaction, as a part of it: nobody is woken if it is rolled back, and
// nothing is lost if the process ends just after the commit. A worker or relay with PollOnly does not notice.
//
// It is for rare transactions. The commit of each takes a lock that all transactions with a NOTIFY share, whatever their
// database, and holds it until it is on disk, and on standbys that it waits for: they commit one by one. Wake does not.
func (c *Client) WakeTx(ctx context.Context, tx pgx.Tx) error {
	if c.broken != nil {
		return c.broken
	}
	return databaseError("wake", c.store.NotifyTx(ctx, tx))
}

// wakers are the loops to wake for one kind of work: those of this process, and then those of others.
type wakers struct {
	others *notify.Pulse

	mu    sync.Mutex
	funcs map[int]func()
	next  int
}

func (c *Client) newWakers(kind string) *wakers {
	return &wakers{
		funcs: make(map[int]func()),
		others: notify.NewNotifier(kind, c.log, func(ctx context.Context, kind string) error {
			return c.store.Notify(ctx, c.pool, kind)
		}),
	}
}

func (w *wakers) add(f func()) (remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.funcs[id] = f
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.funcs, id)
	}
}

func (w *wakers) wake() {
	w.mu.Lock()
	for _, f := range w.funcs {
		f()
	}
	w.mu.Unlock()
	w.others.Beat()
}
