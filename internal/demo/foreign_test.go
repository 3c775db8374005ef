package demo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
	"github.com/notifyq/notifyq/internal/demo"
)

func TestUnfinishedWorkOfNoDemoIsForeign(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	foreign := func(schema string) bool {
		t.Helper()
		found, err := demo.Foreign(t.Context(), db.Pool, schema)
		require.NoError(t, err)
		return found
	}
	exec := func(sql string) {
		t.Helper()
		_, err := db.Pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.False(t, foreign(db.Schema), "nothing to do")
	require.False(t, foreign("no_such_schema"))
	client, err := notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	job, err := client.Schedule(t.Context(), notifyq.Notification{
		IdempotencyKey: "k", Recipient: "ann@example.com", Channel: notifyq.ChannelEmail, Payload: []byte(`1`),
	})
	require.NoError(t, err)
	require.True(t, foreign(db.Schema), "a job")
	_, err = client.Cancel(t.Context(), job.ID, notifyq.Operation{})
	require.NoError(t, err)
	require.False(t, foreign(db.Schema), "it ended")
	exec("insert into " + db.Schema + ".outbox_events (id, topic, key, body) values (gen_random_uuid(), 't', 'k', 'b')")
	require.True(t, foreign(db.Schema), "an event")
	newReceiver(t, db)
	require.False(t, foreign(db.Schema), "that of a demo")
}
