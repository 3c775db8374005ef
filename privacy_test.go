package notifyq_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// What is personal is planted wherever a caller can put it, and each call is made so that it works, is refused, and
// fails in the database.
func TestNoErrorAndNoLogHoldsWhatIsPersonal(t *testing.T) { // C118
	t.Parallel()
	b := newBundle(t)
	var errs []error
	saw := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	personal := func(key string) notifyq.Notification {
		return notifyq.Notification{
			IdempotencyKey: "canary-key-" + key, Recipient: "canary-recipient@example.test", Channel: notifyq.ChannelEmail,
			Payload: []byte(`{"text":"canary-payload"}`),
		}
	}
	ctx := t.Context()
	try := func(id notifyq.Job) {
		n := personal("k")
		_, err := b.client.Schedule(ctx, n)
		saw(err)
		n.Recipient += "2"
		_, err = b.client.Schedule(ctx, n)
		saw(err)
		for _, change := range []func(n *notifyq.Notification){
			func(n *notifyq.Notification) { n.IdempotencyKey += "\x00" },
			func(n *notifyq.Notification) { n.Recipient += "\n" },
			func(n *notifyq.Notification) { n.Payload = []byte(`{"canary":1,"canary":2}`) },
			func(n *notifyq.Notification) { n.Payload = []byte(`canary`) },
			func(n *notifyq.Notification) { n.SendAt = time.Now().Add(2 * notifyq.Horizon) },
			func(n *notifyq.Notification) { n.ExpiresAt = time.Now().Add(-time.Hour) },
		} {
			n := personal("other")
			change(&n)
			answers, err := b.client.ScheduleMany(ctx, []notifyq.Notification{n})
			saw(err)
			if err == nil {
				saw(answers[0].Err)
			}
		}
		_, err = b.client.GetByKey(ctx, "canary-key-unknown")
		saw(err)
		_, err = b.client.List(ctx, notifyq.ListParams{Recipient: "canary-recipient@example.test", Cursor: "canary"})
		saw(err)
		_, err = b.client.Cancel(ctx, id.ID, notifyq.Operation{})
		saw(err)
		_, err = b.client.Cancel(ctx, id.ID, notifyq.Operation{})
		saw(err)
		_, err = b.client.Redrive(ctx, id.ID, notifyq.Operation{})
		saw(err)
		_, err = b.client.RedriveMany(ctx, notifyq.RedriveParams{Recipient: "canary-recipient@example.test"})
		saw(err)
		err = pgx.BeginFunc(ctx, b.db.Pool, func(tx pgx.Tx) error {
			_, err := b.client.ScheduleTx(ctx, tx, personal("tx"))
			return err
		})
		saw(err)
		_, err = b.client.EraseRecipient(ctx, "canary-recipient@example.test")
		saw(err)
	}
	try(b.schedule(t, personal("first")).Job)
	require.GreaterOrEqual(t, len(errs), 9)

	// A constraint whose DETAIL quotes the whole row.
	job := b.schedule(t, personal("last")).Job
	b.exec(t, `alter table @notifications add constraint broken check (false) not valid`)
	b.exec(t, `alter table @notification_outcomes add constraint broken check (false) not valid`)
	before := len(errs)
	try(job)
	require.ErrorContains(t, errs[before], "database error 23514 (constraint broken)")

	for _, err := range errs {
		require.NotContains(t, err.Error(), "canary")
	}
	logs := b.logs.String()
	require.NotContains(t, logs, "canary")
	for _, event := range []string{"job.cancelled", "job.redriven_refused", "jobs.redriven", "recipient.erased"} {
		require.True(t, strings.Contains(logs, event), event)
	}
	b.exec(t, `alter table @notifications drop constraint broken`)
	b.exec(t, `alter table @notification_outcomes drop constraint broken`)
}
