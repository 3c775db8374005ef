package api

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// miss makes a receiver that is disabled and has missed this many events.
func (s *server) miss(t *testing.T, name string, events int) {
	t.Helper()
	for _, sql := range []string{
		`insert into ` + s.db.Schema + `.webhook_endpoints (name, target, failures, failing_since, disabled_at, reason)
			values ($1, '', $2, now() - interval '1 hour', now() - interval '1 hour', 'failing')`,
		`insert into ` + s.db.Schema + `.outbox_events (id, topic, key, body, failure_count, parked_at, parked_reason, endpoint)
			select gen_random_uuid(), 'topic', 'key', 'body', 3, now(), 'disabled', $1 from generate_series(1, $2::int)`,
	} {
		_, err := s.db.Pool.Exec(t.Context(), sql, name, events)
		require.NoError(t, err)
	}
}

// missing counts what a receiver still misses.
func (s *server) missing(t *testing.T, name string) (count int) {
	t.Helper()
	require.NoError(t, s.db.Pool.QueryRow(t.Context(),
		"select count(*) from "+s.db.Schema+".outbox_events where parked_at is not null and endpoint = $1", name).Scan(&count))
	return count
}

// All at once would not fit into the time of a request, and what was done would not be told.
func TestReceiverWithALargeBacklogIsEnabledInSeveralRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.miss(t, "shop", maxEnabled+10)
	a := s.post(t, "/webhook-endpoints/shop/enable", "")
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.JSONEq(t, `{"name":"shop","retried":10000,"more":true}`, a.body)
	require.Equal(t, 10, s.missing(t, "shop"))
	require.JSONEq(t, `{"name":"shop","retried":10,"more":false}`, s.post(t, "/webhook-endpoints/shop/enable", "").body)
	require.Zero(t, s.missing(t, "shop"))
}
