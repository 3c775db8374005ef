package api

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func TestTraceOfTheRequestIsStoredWithTheJob(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	client, err := notifyq.NewClient(s.db.Pool, notifyq.ClientConfig{Schema: s.db.Schema, TraceContext: TraceContext})
	require.NoError(t, err)
	traced := serveOn(t, s.db, func(c *Config) { c.Client = client })
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for i, c := range []struct{ given, want string }{{trace, trace}, {"", ""}, {"00-SECRET", ""}, {trace + "-x", ""}} {
		job := traced.schedule(t, body("idempotencyKey", strconv.Quote(strconv.Itoa(i))), "Traceparent", c.given)
		var stored string
		require.NoError(t, s.db.Pool.QueryRow(t.Context(),
			"select coalesce(trace_context, '') from "+s.db.Schema+".notifications where id = $1", job["id"]).Scan(&stored))
		require.Equal(t, c.want, stored)
	}
}
