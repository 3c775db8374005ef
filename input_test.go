package notifyq_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// doors are all the ways in; a rule that holds at one of them holds at all (C81).
func (b *bundle) doors(t *testing.T) map[string]func(n notifyq.Notification) error {
	return map[string]func(n notifyq.Notification) error{
		"Schedule": func(n notifyq.Notification) error {
			_, err := b.client.Schedule(t.Context(), n)
			return err
		},
		"ScheduleMany": func(n notifyq.Notification) error {
			answers, err := b.client.ScheduleMany(t.Context(), []notifyq.Notification{email("valid"), n})
			require.NoError(t, err)
			require.NoError(t, answers[0].Err)
			return answers[1].Err
		},
		"ScheduleTx": func(n notifyq.Notification) (err error) {
			b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) { _, err = b.client.ScheduleTx(t.Context(), tx, n) })
			return err
		},
		"ScheduleManyTx": func(n notifyq.Notification) (err error) {
			b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
				answers, many := b.client.ScheduleManyTx(t.Context(), tx, []notifyq.Notification{email("valid"), n})
				require.NoError(t, many)
				require.NoError(t, answers[0].Err)
				err = answers[1].Err
			})
			return err
		},
	}
}

func TestInvalidInputIsRefusedAtEveryDoor(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	type change = func(n *notifyq.Notification)
	key := func(v string) change { return func(n *notifyq.Notification) { n.IdempotencyKey = v } }
	recipient := func(v string) change { return func(n *notifyq.Notification) { n.Recipient = v } }
	channel := func(v notifyq.Channel) change { return func(n *notifyq.Notification) { n.Channel = v } }
	payload := func(v string) change { return func(n *notifyq.Notification) { n.Payload = []byte(v) } }
	delay := func(v time.Duration) change { return func(n *notifyq.Notification) { n.Delay = v } }
	sendAt := func(v time.Time) change { return func(n *notifyq.Notification) { n.SendAt = v } }
	expiresAt := func(v time.Time) change { return func(n *notifyq.Notification) { n.ExpiresAt = v } }
	const canary = "canary-7f3a"
	deep := func(n int, open, shut string) string { return strings.Repeat(open, n) + strings.Repeat(shut, n) }
	for field, changes := range map[string][]change{
		"IdempotencyKey": {
			key(""), key(" "), key("\t"), key("\n"), key("\u00a0"), key("\u200b"), key("\u200b \u2060"), key("\ufeff"), // C12
			key(canary + "\x00"), key("\x00"), key(canary + "\x7f"), key(canary + "\u0085"), // C02
			key(canary + "\xff"), key(canary + "\xfe"), key("\xed\xa0\x80"), key("\xc0\x80"), // C04, C05
			key(canary + "\r\nX-Evil: 1"), key(canary + "\nlevel=error msg=forged"), key(canary + "\u2028x"), // C16
			key(strings.Repeat("k", 256)), key(strings.Repeat("é", 128)),
		},
		"Recipient": {
			recipient(""), recipient("   "), recipient("\u200b"),
			recipient("u\x00@example.test"), recipient(canary + "\xff"), recipient("\xed\xa0\x80@example.test"),
			recipient("u@example.test\r\nBcc: v@example.test"), recipient("u@example.test>\r\nDATA\r\n"), // C16
			recipient("u@example.test\u0085x"), recipient("u@example.test\u2028x"), recipient("+15550100\n+15550199"),
			recipient("\u202emoc.elpmaxe@u"), recipient("u\u2066@example.test"), // C17
			recipient(strings.Repeat("r", 321)),
		},
		"Channel": {
			channel(""), channel(" "), channel("1"), channel("_x"), channel("E MAIL"), channel("EMAIL\x00"), channel("É"),
			channel("EMAIL\n"), channel("a/b"), channel("a'b"), channel(notifyq.Channel(strings.Repeat("c", 65))),
		},
		"Payload": {
			payload(""), payload(" "), payload("{"), payload(`{"a":1}{"b":2}`), payload(`{}]`), payload(`{} garbage`), payload("{}\x00"), // C13
			payload("\xef\xbb\xbf{}"), payload("{\x00}\x00"), payload(`nul`), payload(`'x'`), payload(`{a:1}`), payload(`[1,]`), // C14
			payload(`{"a":[{"b":"x\u0000y"}]}`), payload(`{"a":"\\\u0000"}`), payload(`{"k\u0000":1}`), payload("{\"a\":\"\x00\"}"), // C01, C02
			payload(`{"s":"\ud800"}`), payload(`{"s":"\udc00\ud800"}`), payload(`{"s":"\ud83d"}`), payload(`{"\ud800":1}`), // C04
			payload("{\"t\":\"\xc3\x28\"}"), payload("{\"t\":\"\xed\xa0\x80\"}"), payload("{\"t\":\"\xf5\x80\x80\x80\"}"), // C05
			payload(`{"amount":1,"amount":2}`), payload(`{"o":{"x":1,"\u0078":2}}`), // C06
			payload(`1e400`), payload(`[-1e309]`), payload(`01`), payload(`1.`), payload(`+1`), payload(`NaN`), payload(`Infinity`),
			payload(deep(65, "[", "]")), payload(deep(10_001, "[", "]")), payload(deep(32_000, "[", "]")), payload(deep(5000, `{"a":`, "}")), // C10
			payload(`"` + strings.Repeat("x", notifyq.MaxPayloadBytes-1) + `"`), // C15
			payload(`{` + strings.Repeat(" ", notifyq.MaxPayloadBytes) + `}`),
		},
		"Tenant": {
			func(n *notifyq.Notification) { n.Tenant = canary + "\n" },
			func(n *notifyq.Notification) { n.Tenant = strings.Repeat("t", 65) },
			func(n *notifyq.Notification) { n.Tenant = "\xff" },
		},
		"Priority": {
			func(n *notifyq.Notification) { n.Priority = 4 },
			func(n *notifyq.Notification) { n.Priority = -1 },
			func(n *notifyq.Notification) { n.Priority = 1<<16 + 1 },
		},
		"MaxAttempts": {
			func(n *notifyq.Notification) { n.MaxAttempts = -1 },
			func(n *notifyq.Notification) { n.MaxAttempts = 1001 },
			func(n *notifyq.Notification) { n.MaxAttempts = 1<<16 + 1 },
		},
		"OnAmbiguous": {
			func(n *notifyq.Notification) { n.OnAmbiguous = "RETRY" },
			func(n *notifyq.Notification) { n.OnAmbiguous = canary },
		},
		"Delay": { // C28, C29
			delay(-1), delay(-time.Hour), delay(-1 << 63), delay(1<<63 - 1), delay(notifyq.Horizon + 1),
			delay(2147483648 * time.Second), delay(9223372036 * time.Second),
			func(n *notifyq.Notification) { n.Delay, n.SendAt = time.Second, time.Now().Add(time.Hour) }, // C30
			func(n *notifyq.Notification) { n.Delay, n.SendAt = -time.Second, time.Now() },
		},
		"SendAt": { // C24
			sendAt(time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC)), sendAt(time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC)),
			sendAt(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)), sendAt(time.Date(300000, 1, 1, 0, 0, 0, 0, time.UTC)),
			sendAt(time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -14*3600))),
			sendAt(time.Date(9999, 12, 31, 23, 59, 59, 999_999_900, time.UTC)),
			sendAt(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)),
		},
		"ExpiresAt": {
			expiresAt(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)),
			expiresAt(time.Date(9999, 12, 31, 23, 59, 59, 999_999_900, time.UTC)), // it would be stored as of the year 10000
			expiresAt(time.Unix(0, 0)),
		},
	} {
		t.Run(field, func(t *testing.T) {
			for i, change := range changes {
				n := email("key")
				change(&n)
				for door, through := range b.doors(t) {
					err := through(n)
					require.Error(t, err, "%s, case %d", door, i)
					requireInvalid(t, err, field)
					require.NotContains(t, err.Error(), canary)
				}
			}
		})
	}
	require.Equal(t, 1, b.count(t, "@notifications"), "only the valid one of the batches")
}

func TestTheLimitsThemselvesAreValid(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	deep := strings.Repeat("[", notifyq.MaxPayloadDepth) + strings.Repeat("]", notifyq.MaxPayloadDepth)
	large := `"` + strings.Repeat("<", notifyq.MaxPayloadBytes-2) + `"`
	for i, change := range []func(n *notifyq.Notification){
		func(n *notifyq.Notification) { n.IdempotencyKey = strings.Repeat("k", notifyq.MaxIdempotencyKeyBytes) },
		func(n *notifyq.Notification) { n.Recipient = strings.Repeat("r", notifyq.MaxRecipientBytes) },
		func(n *notifyq.Notification) {
			n.Recipient = `O'Brien" <%s>\@example.test; drop table notifications --`
		},
		func(n *notifyq.Notification) { n.Recipient = "{\"jürgen\",null}@$1" },
		func(n *notifyq.Notification) { n.Channel = notifyq.Channel("c" + strings.Repeat("-", 63)) },
		func(n *notifyq.Notification) { n.Tenant = strings.Repeat("t", notifyq.MaxTenantBytes) },
		func(n *notifyq.Notification) { n.Payload = []byte(deep) },
		func(n *notifyq.Notification) { n.Payload = []byte(large) },
		func(n *notifyq.Notification) { n.Payload = []byte(`[1.7976931348623157e308,1e-400]`) },
		func(n *notifyq.Notification) { n.MaxAttempts = notifyq.MaxAttemptsLimit },
		func(n *notifyq.Notification) {
			n.ExpiresAt = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
		},
		func(n *notifyq.Notification) { n.Delay = 1 },
	} {
		n := email(fmt.Sprint(i))
		change(&n)
		scheduled := b.schedule(t, n)
		require.Equal(t, b.get(t, scheduled.ID), scheduled.Job)
		require.Equal(t, n.Recipient, scheduled.Job.Recipient)
		require.True(t, b.schedule(t, n).Replayed)
	}
}

func TestRecipientsAreKeptAsGiven(t *testing.T) { // C23
	t.Parallel()
	b := newBundle(t)
	recipients := []string{"jürgen@example.test", "ju\u0308rgen@example.test", "U@Example.Test", "u@example.test", "u@example.test ", "u＠example.test"}
	for i, recipient := range recipients {
		n := email(fmt.Sprint(i))
		n.Recipient = recipient
		b.schedule(t, n)
	}
	for _, recipient := range recipients {
		page, err := b.client.List(t.Context(), notifyq.ListParams{Recipient: recipient})
		require.NoError(t, err)
		require.Len(t, page.Jobs, 1, "%q", recipient)
		require.Equal(t, recipient, page.Jobs[0].Recipient)
	}
}

func TestRecipientKeyMakesOneOfSeveralSpellings(t *testing.T) { // C23
	t.Parallel()
	b := newBundle(t)
	client := b.newClient(t, b.db.Pool, notifyq.ClientConfig{
		RecipientKey: func(_ notifyq.Channel, recipient string) string { return strings.ToLower(recipient) },
	})
	for i, recipient := range []string{"U@Example.Test", "u@example.test"} {
		n := email(fmt.Sprint(i))
		n.Recipient = recipient
		scheduled, err := client.Schedule(t.Context(), n)
		require.NoError(t, err)
		require.Equal(t, recipient, scheduled.Job.Recipient, "the provider gets it as given")
	}
	page, err := client.List(t.Context(), notifyq.ListParams{Recipient: "U@EXAMPLE.TEST"})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 2)
	erased, err := client.EraseRecipient(t.Context(), "u@EXAMPLE.test")
	require.NoError(t, err)
	require.Equal(t, notifyq.Erased{Cancelled: 2, Erased: 2}, erased)

	broken := b.newClient(t, b.db.Pool, notifyq.ClientConfig{RecipientKey: func(notifyq.Channel, string) string { return "" }})
	_, err = broken.Schedule(t.Context(), email("k"))
	requireInvalid(t, err, "RecipientKey")
}

func TestOperationsAreCheckedLikeAnyInput(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	id := b.schedule(t, email("k")).ID
	dead := b.schedule(t, email("dead")).ID
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, dead)
	long := strings.Repeat("x", 256)
	for field, ops := range map[string][]notifyq.Operation{
		"Actor":  {{Actor: "a\n"}, {Actor: "\xff"}, {Actor: long}, {Actor: "\x00"}},
		"Reason": {{Reason: "a\r\n"}, {Reason: "\xff"}, {Reason: long}, {Actor: "a", Reason: "\u2029"}},
	} {
		for _, op := range ops {
			_, err := b.client.Cancel(t.Context(), id, op)
			requireInvalid(t, err, field)
			b.inTx(t, pgx.ReadCommitted, func(tx pgx.Tx) {
				_, err := b.client.CancelTx(t.Context(), tx, id, op)
				requireInvalid(t, err, field)
			})
			_, err = b.client.Redrive(t.Context(), dead, op)
			requireInvalid(t, err, field)
			_, err = b.client.RedriveMany(t.Context(), notifyq.RedriveParams{Operation: op})
			requireInvalid(t, err, field)
			requireInvalid(t, b.client.PauseChannel(t.Context(), "EMAIL", op), field)
			requireInvalid(t, b.client.ResumeChannel(t.Context(), "EMAIL", op), field)
		}
	}
	require.Zero(t, b.count(t, "@operations"))
	require.Equal(t, notifyq.StatusPending, b.get(t, id).Status)
}

func TestUnknownJobsAreNotFound(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for name, call := range everyCall(b.client, uuid.New()) {
		switch name {
		case "Get", "GetByKey", "Attempts", "Cancel", "Redrive":
			require.ErrorIs(t, call(t.Context()), notifyq.ErrNotFound, name)
		}
	}
	require.Zero(t, b.count(t, "@operations"))
}
