package notifyq_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
)

func TestSmoke(t *testing.T) {
	db := dbtest.New(t)
	ctx := context.Background()
	c, err := notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	var ns []notifyq.Notification
	for i := range 2000 {
		ns = append(ns, notifyq.Notification{IdempotencyKey: fmt.Sprint(i), Recipient: "u@example.test", Channel: "EMAIL", Payload: []byte(`{"a":1}`)})
	}
	out, err := c.ScheduleMany(ctx, ns)
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
	again, err := c.Schedule(ctx, ns[5])
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, out[5].ID, again.ID)
	var n atomic.Int64
	done := make(chan struct{})
	w, err := notifyq.NewWorker(db.Pool, notifyq.WorkerConfig{Schema: db.Schema, Client: c, RecordEvents: true, PollInterval: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Providers: map[notifyq.Channel]notifyq.ProviderConfig{"EMAIL": {Provider: notifyq.ProviderFunc(func(ctx context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
			if n.Add(1) == 2000 {
				close(done)
			}
			return notifyq.Receipt{ProviderID: "x"}, nil
		})}}})
	require.NoError(t, err)
	wctx, stop := context.WithCancel(ctx)
	errs := make(chan error)
	go func() { errs <- w.Run(wctx) }()
	<-done
	stop()
	require.NoError(t, <-errs)
	st, err := c.Stats(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 2000, st.Jobs[notifyq.StatusSent])
	page, err := c.List(ctx, notifyq.ListParams{Limit: 10, Status: "SENT"})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 10)
	require.Equal(t, out[1999].ID, page.Jobs[0].ID)
	db.CheckInvariants(t)
}
