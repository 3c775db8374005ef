package migrate_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/store"
)

// The database says the same of a channel's name as the library, byte by byte.
func TestChannelsOfTheDatabaseAreThoseOfTheLibrary(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	names := map[string]bool{
		"": false, "E": true, "EMAIL": true, "a.b-c_9": true, "z": true, "Z": true,
		strings.Repeat("x", 64): true, strings.Repeat("x", 65): false,
		"1a": false, ".a": false, "_a": false, "-a": false, " a": false, "a ": false, "a b": false, "a\n": false, "\na": false,
		"é": false, "aé": false, "\u212a": false, "a\u017f": false, "[": false, "@": false, "`": false, "{": false,
	}
	for name, want := range names {
		tx, err := db.Pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "insert into "+db.Schema+`.notifications (id, idempotency_key, request_fingerprint, recipient,
			recipient_key, channel, payload, priority, scheduled_at, max_attempts)
			values (gen_random_uuid(), 'k', '', 'r', 'r', $1, '{}', 2, now(), 1)`, name)
		if want {
			require.NoError(t, err, "%q", name)
		} else {
			require.Equal(t, "23514", store.Code(err), "%q: %v", name, err)
		}
		require.NoError(t, tx.Rollback(t.Context()))
	}
}
