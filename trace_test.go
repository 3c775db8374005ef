package notifyq_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

type traceKey struct{}

func TestTraceContextOfTheCallerReachesTheProvider(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	var err error
	b.client, err = notifyq.NewClient(b.Pool, notifyq.ClientConfig{
		Schema: b.Schema, Logger: b.logs.logger(),
		TraceContext: func(ctx context.Context) string {
			trace, _ := ctx.Value(traceKey{}).(string)
			return trace
		},
	})
	require.NoError(t, err)
	seen := make(chan [2]string, 10)
	b.run(newCourier(func(_ context.Context, d notifyq.Delivery) error {
		seen <- [2]string{d.Recipient, d.TraceContext}
		return nil
	}))
	want := map[string]string{}
	for recipient, trace := range map[string]string{
		"one": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "none": "", "long": strings.Repeat("x", 513), "broken": "a\r\nb",
	} {
		want[recipient] = trace
		if recipient == "long" || recipient == "broken" {
			want[recipient] = ""
		}
		ctx := context.WithValue(t.Context(), traceKey{}, trace)
		n := b.notification(recipient)
		n.Recipient = recipient
		if recipient == "one" {
			_, err = b.client.Schedule(ctx, n)
		} else {
			err = pgx.BeginFunc(ctx, b.Pool, func(tx pgx.Tx) error {
				_, err := b.client.ScheduleTx(ctx, tx, n)
				return err
			})
		}
		require.NoError(t, err)
	}
	b.awaitCount(notifyq.StatusSent, len(want))
	got := map[string]string{}
	for range want {
		d := <-seen
		got[d[0]] = d[1]
	}
	require.Equal(t, want, got)
}
