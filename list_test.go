package notifyq_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// walk reads a whole list, page by page.
func walk(t *testing.T, client *notifyq.Client, p notifyq.ListParams, between func()) (ids []uuid.UUID, pages int) {
	t.Helper()
	for {
		page, err := client.List(t.Context(), p)
		require.NoError(t, err)
		limit := p.Limit
		if limit == 0 {
			limit = 50
		}
		require.LessOrEqual(t, len(page.Jobs), limit)
		for _, job := range page.Jobs {
			ids = append(ids, job.ID)
		}
		pages++
		require.Less(t, pages, 5000, "the walk must end")
		if page.Next == "" {
			return ids, pages
		}
		p.Cursor = page.Next
		if between != nil {
			between()
		}
	}
}

// newestFirst are the ids of the jobs for which keep holds.
func newestFirst(jobs []notifyq.Job, keep func(j notifyq.Job) bool) []uuid.UUID {
	var ids []uuid.UUID
	for _, job := range slices.Backward(jobs) {
		if keep(job) {
			ids = append(ids, job.ID)
		}
	}
	return ids
}

// zoo is a few jobs of every tenant, recipient, channel and status, oldest first.
func (b *bundle) zoo(t *testing.T) []notifyq.Job {
	t.Helper()
	var batch []notifyq.Notification
	byStatus := map[int][]int{}
	for _, tenant := range []string{"", "acme", "beta"} {
		for _, recipient := range []string{"a@example.test", "b@example.test"} {
			for _, channel := range []notifyq.Channel{notifyq.ChannelEmail, notifyq.ChannelSMS} {
				for status := range 12 { // each status twice
					n := email(fmt.Sprint(len(batch)))
					n.Tenant, n.Recipient, n.Channel = tenant, recipient, channel
					byStatus[status%6] = append(byStatus[status%6], len(batch))
					batch = append(batch, n)
				}
			}
		}
	}
	ids := b.scheduleAll(t, batch)
	of := func(status int) (chosen []uuid.UUID) {
		for _, i := range byStatus[status] {
			chosen = append(chosen, ids[i])
		}
		return chosen
	}
	b.hold(t, of(1)...)
	b.end(t, notifyq.StatusSent, "", of(2)...)
	b.end(t, notifyq.StatusFailed, notifyq.ReasonRefused, of(3)...)
	b.end(t, notifyq.StatusDeadLettered, notifyq.ReasonExhausted, of(4)...)
	b.end(t, notifyq.StatusCancelled, "", of(5)...)
	jobs := make([]notifyq.Job, len(ids))
	for i, id := range ids {
		jobs[i] = b.get(t, id)
	}
	return jobs
}

var everyStatus = []notifyq.Status{
	notifyq.StatusPending, notifyq.StatusProcessing, notifyq.StatusSent,
	notifyq.StatusFailed, notifyq.StatusDeadLettered, notifyq.StatusCancelled,
}

func TestListByEveryCombinationOfFilters(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	jobs := b.zoo(t)
	for _, status := range append([]notifyq.Status{""}, everyStatus...) {
		for _, recipient := range []string{"", "a@example.test", "nobody@example.test"} {
			for _, channel := range []notifyq.Channel{"", notifyq.ChannelSMS, "FAX"} {
				for _, tenant := range []string{"", "acme", "nobody"} {
					p := notifyq.ListParams{Status: status, Recipient: recipient, Channel: channel, Tenant: tenant, Limit: 5}
					got, _ := walk(t, b.client, p, nil)
					require.Equal(t, newestFirst(jobs, func(j notifyq.Job) bool {
						return (status == "" || j.Status == status) && (recipient == "" || j.Recipient == recipient) &&
							(channel == "" || j.Channel == channel) && (tenant == "" || j.Tenant == tenant)
					}), got, "%+v", p)
				}
			}
		}
	}
	page, err := b.client.List(t.Context(), notifyq.ListParams{Limit: 1000})
	require.NoError(t, err)
	slices.Reverse(jobs)
	require.Equal(t, jobs, page.Jobs, "a list tells all that Get tells")
	require.Empty(t, page.Next)
}

func TestListWithoutALimitGivesFifty(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	ids := b.scheduleAll(t, emails("k", 51))
	page, err := b.client.List(t.Context(), notifyq.ListParams{})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 50)
	require.NotEmpty(t, page.Next)
	page, err = b.client.List(t.Context(), notifyq.ListParams{Cursor: page.Next, Limit: 1})
	require.NoError(t, err, "the limit may change along the way")
	require.Equal(t, ids[0], page.Jobs[0].ID)
	require.Empty(t, page.Next)
}

// One batch gives all its jobs the same created_at. While they are listed, others come, and some are claimed, sent and
// cancelled: each that matches all the time is there exactly once.
func TestListMissesAndRepeatsNothingWhileJobsChange(t *testing.T) { // C113
	t.Parallel()
	for _, limit := range []int{1, 7, 1000} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			b := newBundle(t)
			const stay, turn = 1000, 100
			ids := b.scheduleAll(t, emails("k", stay+turn))
			require.Equal(t, 1, b.count(t, "(select distinct created_at from @notifications) t"))
			var staying, turning []uuid.UUID
			for i, id := range ids {
				if i%((stay+turn)/turn) == 0 {
					turning = append(turning, id)
				} else {
					staying = append(staying, id)
				}
			}
			slices.Reverse(staying)
			step := 0
			between := func() {
				if limit < 10 && step%8 != 0 { // there are many pages
					step++
					return
				}
				b.schedule(t, email(fmt.Sprint("new", step)))
				b.hold(t, turning[(step/8)%turn])
				b.end(t, notifyq.StatusSent, "", turning[(step/4)%turn])
				step++
			}
			walks := []notifyq.ListParams{{Status: notifyq.StatusPending}, {}, {Recipient: "u@example.test", Status: notifyq.StatusPending}}
			if limit == 1 {
				walks = walks[:1]
			}
			for _, p := range walks {
				p.Limit = limit
				got, _ := walk(t, b.client, p, between)
				seen := map[uuid.UUID]int{}
				for _, id := range got {
					seen[id]++
				}
				for id, times := range seen {
					require.Equal(t, 1, times, "%s", id)
				}
				got = slices.DeleteFunc(got, func(id uuid.UUID) bool { return !slices.Contains(staying, id) })
				require.Equal(t, staying, got, "%+v", p)
			}
		})
	}
}

func TestListPageMayBeShortAndOnlyAnEmptyCursorEnds(t *testing.T) { // C113
	t.Parallel()
	b := newBundle(t)
	wanted := b.schedule(t, notifyq.Notification{IdempotencyKey: "first", Recipient: "r", Channel: "SMS", Payload: []byte(`1`)}).ID
	for i := range 2 { // more than one page reads
		b.scheduleAll(t, emails(fmt.Sprint(i), 6000))
	}
	for _, p := range []notifyq.ListParams{
		{Channel: "SMS"}, {Channel: "SMS", Status: notifyq.StatusPending}, {Channel: "SMS", Limit: 1},
	} {
		first, err := b.client.List(t.Context(), p)
		require.NoError(t, err)
		require.Empty(t, first.Jobs)
		require.NotEmpty(t, first.Next)
		got, pages := walk(t, b.client, p, nil)
		require.Equal(t, []uuid.UUID{wanted}, got)
		require.Equal(t, 3, pages)
	}
	got, pages := walk(t, b.client, notifyq.ListParams{Channel: "FAX"}, nil)
	require.Empty(t, got)
	require.Equal(t, 3, pages)
}

// A page in which nothing matched must go on where it ended, also when what it read has left the index meanwhile.
func TestListGoesOnWhereAnEmptyPageEnded(t *testing.T) { // C113
	t.Parallel()
	b := newBundle(t)
	sms := email("hidden")
	sms.Channel = notifyq.ChannelSMS
	wanted := b.schedule(t, sms).ID
	ids := b.scheduleAll(t, emails("k", 5000))
	client := b.newClient(t, b.hookedPool(t, "with page as", func() {
		b.end(t, notifyq.StatusSent, "", ids[:100]...)
	}), notifyq.ClientConfig{})

	got, _ := walk(t, client, notifyq.ListParams{Channel: notifyq.ChannelSMS, Status: notifyq.StatusPending}, nil)
	require.Equal(t, []uuid.UUID{wanted}, got)
}

func TestListGoesOnBehindAJobThatIsGone(t *testing.T) { // C113
	t.Parallel()
	b := newBundle(t)
	ids := b.scheduleAll(t, emails("k", 10))
	page, err := b.client.List(t.Context(), notifyq.ListParams{Limit: 5})
	require.NoError(t, err)
	b.exec(t, `delete from @notification_queue where id = $1`, ids[5])
	b.exec(t, `delete from @notifications where id = $1`, ids[5])
	page, err = b.client.List(t.Context(), notifyq.ListParams{Limit: 5, Cursor: page.Next})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 5)
	require.Equal(t, ids[4], page.Jobs[0].ID)
}

func TestListRefusesACursorThatIsNotItsOwn(t *testing.T) { // C114
	t.Parallel()
	b := newBundle(t)
	b.zoo(t)
	page, err := b.client.List(t.Context(), notifyq.ListParams{Limit: 3, Channel: notifyq.ChannelEmail})
	require.NoError(t, err)
	good := page.Next
	refused := func(client *notifyq.Client, p notifyq.ListParams) {
		t.Helper()
		_, err := client.List(t.Context(), p)
		requireInvalid(t, err, "Cursor")
	}

	for _, p := range []notifyq.ListParams{
		{},
		{Channel: notifyq.ChannelSMS},
		{Channel: notifyq.ChannelEmail, Status: notifyq.StatusPending},
		{Channel: notifyq.ChannelEmail, Recipient: "a@example.test"},
		{Channel: notifyq.ChannelEmail, Tenant: "acme"},
	} {
		p.Cursor = good
		refused(b.client, p)
	}
	for _, tenant := range []string{"acme", ""} {
		refused(b.client.ForTenant(tenant), notifyq.ListParams{Channel: notifyq.ChannelEmail, Cursor: good})
	}
	raw, err := base64.RawURLEncoding.DecodeString(good)
	require.NoError(t, err)
	for bit := range 8 * len(raw) {
		damaged := slices.Clone(raw)
		damaged[bit/8] ^= 1 << (bit % 8)
		refused(b.client, notifyq.ListParams{Channel: notifyq.ChannelEmail, Cursor: base64.RawURLEncoding.EncodeToString(damaged)})
	}
	for _, cursor := range []string{
		" ", "x", good + "=", good + "A", good[1:], good[:len(good)-1], good + "\n", good[:10] + "\r\n" + good[10:], strings.Repeat("A", 10_000),
		strings.Repeat("A", len(good)), "'; drop table notifications --", uuid.NewString(), "\x00", "\xff", strings.ToUpper(good),
	} {
		refused(b.client, notifyq.ListParams{Channel: notifyq.ChannelEmail, Cursor: cursor})
	}
	_, err = b.client.List(t.Context(), notifyq.ListParams{Channel: notifyq.ChannelEmail, Cursor: good})
	require.NoError(t, err)
}

func TestListRefusesWrongFilters(t *testing.T) { // C114
	t.Parallel()
	b := newBundle(t)
	for field, params := range map[string][]notifyq.ListParams{
		"Limit":     {{Limit: -1}, {Limit: 1001}, {Limit: 1e9}, {Limit: -1 << 62}},
		"Status":    {{Status: "sent"}, {Status: "SENT,FAILED"}, {Status: "DEAD"}, {Status: "\x00"}},
		"Channel":   {{Channel: "E MAIL"}, {Channel: "%"}},
		"Recipient": {{Recipient: "\x00"}, {Recipient: "\xff"}, {Recipient: " "}, {Recipient: strings.Repeat("r", 321)}},
		"Tenant":    {{Tenant: "\x00"}, {Tenant: strings.Repeat("t", 65)}},
	} {
		for _, p := range params {
			_, err := b.client.List(t.Context(), p)
			requireInvalid(t, err, field)
		}
	}
}

func TestListMatchesRecipientsLiterally(t *testing.T) { // C114
	t.Parallel()
	b := newBundle(t)
	b.schedule(t, email("k"))
	for _, recipient := range []string{"%", "u@example.tes_", "u@%", "U@EXAMPLE.TEST", ".*", "u@example.test'--"} {
		page, err := b.client.List(t.Context(), notifyq.ListParams{Recipient: recipient})
		require.NoError(t, err)
		require.Empty(t, page.Jobs)
	}
}

func TestAttemptsTellEveryGeneration(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	n := email("k")
	n.MaxAttempts = 2
	id := b.schedule(t, n).ID
	ended := make(chan struct{}, 1)
	succeed := make(chan bool, 10)
	stop := b.startWorker(t, b.db.Pool, fastRetries(), provider(func(d notifyq.Delivery) error {
		if d.Attempt == 2 {
			ended <- struct{}{}
			if <-succeed {
				return nil
			}
		}
		return fmt.Errorf("attempt %d", d.Attempt)
	}))
	succeed <- false
	<-ended
	b.await(t, id, notifyq.StatusDeadLettered)
	_, err := b.client.Redrive(t.Context(), id, notifyq.Operation{})
	require.NoError(t, err)
	succeed <- true
	<-ended
	b.await(t, id, notifyq.StatusSent)
	stop()

	attempts, err := b.client.Attempts(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, attempts, 4)
	for i, a := range attempts {
		require.Equal(t, i/2, a.RedriveCount)
		require.Equal(t, i%2+1, a.Number)
		require.False(t, a.EndedAt.IsZero())
		if i < 3 {
			require.Equal(t, "transient", a.Class)
			require.Equal(t, fmt.Sprintf("attempt %d", a.Number), a.Error)
			require.NotEmpty(t, a.Worker)
			require.False(t, a.StartedAt.After(a.EndedAt))
		}
	}
	require.Equal(t, "sent", attempts[3].Class)
	none, err := b.client.Attempts(t.Context(), b.schedule(t, email("fresh")).ID)
	require.NoError(t, err)
	require.Empty(t, none)
}
