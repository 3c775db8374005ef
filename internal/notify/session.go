package notify

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/internal/timing"
)

// farewell bounds what a connection gets to be closed in good order.
const farewell = time.Second

// session is the life of one connection.
func (l *Listener) session(ctx context.Context) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn)
	for _, wake := range l.wake {
		wake.Beat() // what was told before is past hearing
	}
	if err := l.selfTest(ctx, conn); err != nil {
		return err
	}
	l.listens()
	for {
		if err := l.next(ctx, conn); err != nil {
			return err
		}
	}
}

func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Times.Connect)
	defer cancel()
	conn, err := l.cfg.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.cfg.Store.Listen(ctx, conn); err != nil {
		hangUp(ctx, conn)
		return nil, err
	}
	return conn, nil
}

// hangUp closes a connection. Through a pooler it takes the LISTEN back from the connection behind, if it reaches the
// same one again: there it would go on for whoever has that next.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if !conn.IsClosed() {
		_ = store.Unlisten(ctx, conn)
	}
	_ = conn.Close(ctx)
	select {
	case <-conn.PgConn().CleanupDone():
	case <-ctx.Done():
	}
}

// selfTest waits for something that another connection sends, on a connection that is idle, since one behind a pooler
// may hear while it asks.
func (l *Listener) selfTest(ctx context.Context, conn *pgx.Conn) error {
	test := "test " + rand.Text()
	ctx, end := context.WithCancelCause(ctx)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer end(nil)
	sending.Go(func() {
		if err := l.cfg.Send(ctx, test); err != nil {
			end(err)
			return
		}
		timing.Sleep(ctx, l.cfg.Times.Patience)
		end(errDeaf)
	})
	for {
		kind, err := l.hear(ctx, conn)
		switch {
		case kind == test:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
	}
}

// next waits for what is told, or, if that is nothing for a while, for an answer: a connection can die without a sign.
func (l *Listener) next(ctx context.Context, conn *pgx.Conn) error {
	idle, cancel := context.WithTimeout(ctx, l.cfg.Times.Check)
	defer cancel()
	_, err := l.hear(idle, conn)
	if err == nil || ctx.Err() != nil || conn.IsClosed() || !pgconn.Timeout(err) {
		return err
	}
	ask, cancel := context.WithTimeout(ctx, l.cfg.Times.Patience)
	defer cancel()
	return conn.Ping(ask)
}

// hear waits for one message, and wakes the loop that it is for.
func (l *Listener) hear(ctx context.Context, conn *pgx.Conn) (kind string, err error) {
	told, err := conn.WaitForNotification(ctx)
	if err != nil {
		return "", err
	}
	kind, ours := l.cfg.Store.NotifiedKind(told.Payload)
	if !ours {
		return "", nil
	}
	if wake := l.wake[kind]; wake != nil {
		wake.Beat()
	}
	return kind, nil
}
