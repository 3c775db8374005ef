package notifyq_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

// limitRun is workers under a rate limit, and a provider that remembers when which delivery began.
type limitRun struct {
	*bundle
	t     *testing.T
	began time.Time

	mu     sync.Mutex
	starts []limitStart
	news   chan struct{}
	fail   func(d notifyq.Delivery) error // what comes of a delivery
}

type limitStart struct {
	job       uuid.UUID
	recipient string
	attempt   int
	at        time.Duration // on this process's monotonic clock
}

func newLimitRun(t *testing.T) *limitRun {
	t.Helper()
	return &limitRun{
		bundle: newBundle(t), t: t, began: time.Now(), news: make(chan struct{}, 1),
		fail: func(notifyq.Delivery) error { return nil },
	}
}

func (r *limitRun) deliver(_ context.Context, d notifyq.Delivery) (notifyq.Receipt, error) {
	at := time.Since(r.began)
	r.mu.Lock()
	r.starts = append(r.starts, limitStart{d.Key, d.Recipient, d.Attempt, at})
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
	return notifyq.Receipt{}, r.fail(d)
}

// work starts n workers under limits and returns what stops them.
func (r *limitRun) work(n int, cfg notifyq.WorkerConfig, limits ...notifyq.RateLimit) (stop func()) {
	r.t.Helper()
	cfg.RateLimits = limits
	if cfg.PollInterval == 0 {
		cfg.PollInterval = 100 * time.Millisecond
	}
	if cfg.RecoveryInterval == 0 {
		cfg.RecoveryInterval = 100 * time.Millisecond
	}
	if cfg.Providers == nil {
		cfg.Providers = map[notifyq.Channel]notifyq.ProviderConfig{
			notifyq.ChannelEmail: {Provider: notifyq.ProviderFunc(r.deliver)},
			notifyq.ChannelSMS:   {Provider: notifyq.ProviderFunc(r.deliver)},
		}
	}
	var stops []func()
	for range n {
		stops = append(stops, r.startWorker(r.t, r.db.Pool, cfg, nil))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

func (r *limitRun) started() []limitStart {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.starts)
}

// await returns the starts as soon as enough says so of them.
func (r *limitRun) await(enough func(starts []limitStart) bool) []limitStart {
	r.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		if starts := r.started(); enough(starts) {
			return starts
		}
		select {
		case <-r.news:
		case <-deadline:
			require.Fail(r.t, "too few deliveries", "%d", len(r.started()))
		}
	}
}

func (r *limitRun) awaitStarts(n int) []limitStart {
	r.t.Helper()
	return r.await(func(starts []limitStart) bool { return len(starts) >= n })
}

// awaitCount waits until so many rows are there.
func (r *limitRun) awaitCount(n int, from string, args ...any) {
	r.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for got := r.count(r.t, from, args...); got != n; got = r.count(r.t, from, args...) {
		if time.Now().After(deadline) {
			require.Equal(r.t, n, got, from)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// firsts are the first attempts, by time.
func firsts(starts []limitStart) []limitStart {
	var out []limitStart
	seen := make(map[uuid.UUID]bool)
	for _, s := range starts {
		if !seen[s.job] {
			seen[s.job] = true
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b limitStart) int { return int(a.at - b.at) })
	return out
}

// requireWindow slides a window over every start.
func requireWindow(t *testing.T, starts []limitStart, most int, window time.Duration) {
	t.Helper()
	starts = firsts(starts)
	for i := range starts {
		if i+most < len(starts) {
			span := starts[i+most].at - starts[i].at
			require.GreaterOrEqual(t, span, window, "%d deliveries from %v on", most+1, starts[i].at)
		}
	}
}

func mails(prefix, recipient string, n int) []notifyq.Notification {
	ns := emails(prefix, n)
	for i := range ns {
		ns[i].Recipient = recipient
	}
	return ns
}

const (
	limitSent      = "@notification_outcomes where status = 2"
	limitBooked    = "@rate_limit_reservations where booked and reserved_at > now()"
	limitUntouched = "@notification_queue where status = 0 and attempt_count = 0 and first_attempt_at is null and next_attempt_at > now()"
)

func TestRateLimitHoldsOverTenWorkers(t *testing.T) {
	t.Parallel()
	r := newLimitRun(t)
	r.scheduleAll(t, mails("m", "hot@example.test", 40))
	stop := r.work(10, notifyq.WorkerConfig{BatchSize: 4, Concurrency: 4}, notifyq.RateLimit{Max: 5, Window: time.Hour})
	r.awaitCount(5, limitSent)
	r.awaitCount(35, limitBooked)
	r.awaitCount(35, limitUntouched) // no attempt is used up
	stop()
	require.Len(t, r.started(), 5)
	// Each of the others has a moment of its own, five in a window.
	require.Equal(t, 7, r.count(t, `(select from @rate_limit_reservations where booked
		group by round(extract(epoch from reserved_at) / 3600.05) having count(*) = 5) w`))
	require.Equal(t, 35, r.count(t, "@notification_queue q join @rate_limit_reservations s on s.job_id = q.id and s.reserved_at = q.next_attempt_at"))
}

func TestRateLimitHoldsInEverySlidingWindow(t *testing.T) {
	t.Parallel()
	r := newLimitRun(t)
	r.scheduleAll(t, mails("m", "hot@example.test", 24))
	r.work(4, notifyq.WorkerConfig{BatchSize: 10}, notifyq.RateLimit{Max: 4, Window: time.Second})
	starts := r.awaitStarts(24)
	requireWindow(t, starts, 4, time.Second)
	require.Len(t, firsts(starts), 24, "none was delivered twice")
}

func TestRateLimitHoldsInTwoWindowsAtOnce(t *testing.T) {
	t.Parallel()
	r := newLimitRun(t)
	r.scheduleAll(t, mails("m", "hot@example.test", 12))
	r.work(3, notifyq.WorkerConfig{}, notifyq.RateLimit{Max: 2, Window: time.Second}, notifyq.RateLimit{Max: 5, Window: 3 * time.Second})
	starts := r.awaitStarts(12)
	requireWindow(t, starts, 2, time.Second)
	requireWindow(t, starts, 5, 3*time.Second)
}

func TestRateLimitHoldsThroughRetries(t *testing.T) { // C47
	t.Parallel()
	r := newLimitRun(t)
	r.fail = func(d notifyq.Delivery) error {
		if d.Attempt < 3 {
			return errors.New("not yet")
		}
		return nil
	}
	ids := r.scheduleAll(t, mails("m", "hot@example.test", 8))
	r.work(3, notifyq.WorkerConfig{Retry: notifyq.RetryPolicy{BaseDelay: 20 * time.Millisecond, MaxDelay: 40 * time.Millisecond}}, notifyq.RateLimit{Max: 2, Window: time.Second})
	starts := r.awaitStarts(3 * len(ids))
	requireWindow(t, starts, 2, time.Second)
	r.awaitCount(len(ids), limitSent)
}

func TestRateLimitRetryKeepsItsSlot(t *testing.T) { // C47
	t.Parallel()
	r := newLimitRun(t)
	r.fail = func(d notifyq.Delivery) error {
		if d.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	}
	first := r.scheduleAll(t, mails("first", "hot@example.test", 1))[0]
	r.work(2, notifyq.WorkerConfig{Retry: notifyq.RetryPolicy{BaseDelay: 20 * time.Millisecond, MaxDelay: 40 * time.Millisecond}}, notifyq.RateLimit{Max: 1, Window: time.Hour})
	r.awaitCount(1, limitSent)
	slot := value[time.Time](t, r.bundle, "select reserved_at from @rate_limit_reservations where not booked")
	second := r.scheduleAll(t, mails("second", "hot@example.test", 1))[0]
	r.awaitCount(1, limitBooked)
	require.Equal(t, slot.Add(time.Hour+50*time.Millisecond), value[time.Time](t, r.bundle, "select next_attempt_at from @notification_queue where id = $1", second))
	starts := r.started()
	require.Len(t, starts, 2)
	require.Equal(t, []uuid.UUID{first, first}, []uuid.UUID{starts[0].job, starts[1].job})
}

func TestRateLimitCountsWhatFailed(t *testing.T) { // C47
	t.Parallel()
	r := newLimitRun(t)
	r.fail = func(notifyq.Delivery) error { return notifyq.Permanent(errors.New("no such address")) }
	r.scheduleAll(t, mails("m", "hot@example.test", 4))
	r.work(2, notifyq.WorkerConfig{}, notifyq.RateLimit{Max: 2, Window: time.Hour})
	r.awaitCount(2, "@notification_outcomes where status = 3")
	r.awaitCount(2, limitBooked)
	require.Len(t, r.started(), 2)
}

// reserve puts a job into a window as if a worker had admitted it.
func (r *limitRun) reserve(job uuid.UUID, ago string) {
	r.t.Helper()
	// The key is taken from a reservation of the recipient: it is a hash.
	r.exec(r.t, `insert into @rate_limit_reservations (job_id, limit_key, reserved_at, channel)
		select $1, limit_key, now() - $2::interval, channel from @rate_limit_reservations limit 1
		on conflict (job_id) do update set reserved_at = excluded.reserved_at, booked = false`, job, ago)
}

func TestRateLimitRecoveryKeepsTheSlotOfADeadWorker(t *testing.T) { // C47, C48
	t.Parallel()
	r := newLimitRun(t)
	// A slot is taken, so that there is a key to go by.
	r.scheduleAll(t, mails("earlier", "hot@example.test", 1))
	limit := notifyq.RateLimit{Max: 2, Window: time.Hour}
	stop := r.work(1, notifyq.WorkerConfig{}, limit)
	r.awaitCount(1, limitSent)
	stop()
	ids := r.scheduleAll(t, mails("m", "hot@example.test", 2))
	// A worker claimed the second, was admitted, and died.
	r.reserve(ids[1], "10 minutes")
	r.exec(t, `update @notification_queue set status = 1, attempt_count = 1, first_attempt_at = now() - interval '10 minutes',
		claim_token = gen_random_uuid(), locked_by = 'dead', locked_at = now() - interval '10 minutes', leased_until = now() - interval '1 minute'
		where id = $1`, ids[1])
	r.work(2, notifyq.WorkerConfig{}, limit)
	r.awaitCount(2, limitSent)
	r.awaitCount(1, limitBooked) // the other one waits: the slot was not given to it
	starts := r.started()
	require.Len(t, starts, 2)
	require.Equal(t, ids[1], starts[1].job)
	require.Equal(t, 2, starts[1].attempt)
}

// A claim that was handed back before its delivery began has used no slot: the time that counts is the later one.
func TestRateLimitCountsTheStartOfAJobThatWasHandedBack(t *testing.T) {
	t.Parallel()
	r := newLimitRun(t)
	r.scheduleAll(t, mails("earlier", "hot@example.test", 1))
	limit := notifyq.RateLimit{Max: 2, Window: time.Hour}
	stop := r.work(1, notifyq.WorkerConfig{}, limit)
	r.awaitCount(1, limitSent)
	stop()
	job := r.scheduleAll(t, mails("m", "hot@example.test", 1))[0]
	r.reserve(job, "59 minutes")
	r.work(1, notifyq.WorkerConfig{}, limit)
	r.awaitCount(2, limitSent)
	require.Equal(t, 1, r.count(t, "@rate_limit_reservations where job_id = $1 and not booked and reserved_at > now() - interval '1 minute'", job))
}

func TestRateLimitChangedLiveHoldsAtOnce(t *testing.T) { // C47
	t.Parallel()
	r := newLimitRun(t)
	r.scheduleAll(t, mails("m", "hot@example.test", 12))
	stop := r.work(2, notifyq.WorkerConfig{}, notifyq.RateLimit{Max: 4, Window: time.Second})
	r.awaitStarts(4)
	stop()
	before := len(r.started())
	r.work(2, notifyq.WorkerConfig{}, notifyq.RateLimit{Max: 2, Window: time.Second})
	starts := firsts(r.awaitStarts(12))
	requireWindow(t, starts, 4, time.Second)
	requireWindow(t, starts[before:], 2, time.Second)
	require.GreaterOrEqual(t, starts[before].at-starts[before-2].at, time.Second, "what went before the change counts")
}

func TestRateLimitGoesByTenantRecipientAndChannel(t *testing.T) { // C47
	t.Parallel()
	r := newLimitRun(t)
	folded := r.newClient(t, r.db.Pool, notifyq.ClientConfig{
		RecipientKey: func(_ notifyq.Channel, recipient string) string { return strings.ToLower(recipient) },
	})
	schedule := func(c *notifyq.Client, key, tenant, recipient string, channel notifyq.Channel) {
		n := email(key)
		n.Tenant, n.Recipient, n.Channel = tenant, recipient, channel
		_, err := c.Schedule(t.Context(), n)
		require.NoError(t, err)
	}
	for i := range 2 { // of each pair, one goes
		schedule(r.client, fmt.Sprint("a", i), "", "u@example.test", "EMAIL")
		schedule(r.client, fmt.Sprint("b", i), "t1", "u@example.test", "EMAIL")
		schedule(r.client, fmt.Sprint("c", i), "t2", "u@example.test", "EMAIL")
		schedule(r.client, fmt.Sprint("d", i), "", "U@example.test", "EMAIL")
		schedule(folded, fmt.Sprint("e", i), "t3", []string{"V@example.test", "v@EXAMPLE.test"}[i], "EMAIL")
		schedule(r.client, fmt.Sprint("f", i), "", "u@example.test", "SMS") // not limited
	}
	r.work(2, notifyq.WorkerConfig{}, notifyq.RateLimit{Max: 1, Window: time.Hour, Channel: "EMAIL"})
	r.awaitCount(7, limitSent)
	r.awaitCount(5, limitBooked)
	require.Zero(t, r.count(t, "@rate_limit_reservations where channel = 'SMS'"))
}

func TestRateLimitBookedMomentsComeFreeAgain(t *testing.T) {
	t.Parallel()
	r := newLimitRun(t)
	r.work(1, notifyq.WorkerConfig{}, notifyq.RateLimit{Max: 1, Window: time.Hour})
	limited := 0
	next := func(n notifyq.Notification) (uuid.UUID, time.Time) {
		t.Helper()
		n.Recipient = "hot@example.test"
		id := r.schedule(t, n).ID
		limited++
		require.Eventually(t, func() bool { return strings.Count(r.logs.String(), "job.rate_limited") == limited }, 30*time.Second, 10*time.Millisecond)
		return id, value[time.Time](t, r.bundle, "select next_attempt_at from @notification_queue where id = $1", id)
	}
	n := email("first")
	n.Recipient = "hot@example.test"
	r.schedule(t, n)
	r.awaitCount(1, limitSent)
	const w = time.Hour + 50*time.Millisecond
	second, atSecond := next(email("second"))
	_, atThird := next(email("third"))
	require.Equal(t, atSecond.Add(w), atThird)

	high := email("high")
	high.Priority = notifyq.PriorityHigh
	_, atHigh := next(high)
	require.Equal(t, atThird.Add(w), atHigh, "a later one takes the next moment that nobody has booked")

	_, err := r.client.Cancel(t.Context(), second, notifyq.Operation{})
	require.NoError(t, err)
	_, at := next(email("after the cancel"))
	require.Equal(t, atSecond, at, "which may be one that was given up")

	// One whose turn would come too late takes none, and ends.
	late := email("late")
	late.ExpiresAt = time.Now().Add(2 * time.Second)
	expiring, _ := next(late)
	require.Zero(t, r.count(t, "@rate_limit_reservations where job_id = $1", expiring))
	r.awaitCount(1, "@notification_outcomes where id = $1 and reason = 'expired'", expiring)

	// One that booked, was late, and would now come too late, gives its moment back.
	ends := email("ends")
	ends.ExpiresAt = time.Now().Add(24 * time.Hour)
	ending, at := next(ends)
	require.Equal(t, atHigh.Add(w), at)
	r.exec(t, "update @rate_limit_reservations set reserved_at = now() - interval '1 s' where job_id = $1", ending)
	r.exec(t, "update @notifications set expires_at = now() + interval '10 min', scheduled_at = now() where id = $1", ending)
	r.exec(t, `update @notification_queue q set expires_at = n.expires_at, next_attempt_at = now() from @notifications n
		where n.id = q.id and q.id = $1`, ending)
	limited++
	require.Eventually(t, func() bool { return strings.Count(r.logs.String(), "job.rate_limited") == limited }, 30*time.Second, 10*time.Millisecond)
	require.Zero(t, r.count(t, "@rate_limit_reservations where job_id = $1", ending))
	require.Equal(t, 1, r.count(t, "@notification_queue where id = $1 and next_attempt_at > expires_at", ending))
}

// countClaims makes the schema remember each claim.
func (r *limitRun) countClaims() {
	r.t.Helper()
	r.exec(r.t, `create table @claims (id uuid, at timestamptz)`)
	r.exec(r.t, `create function @count_claim() returns trigger language plpgsql as $$
		begin insert into `+r.db.Schema+`.claims values (new.id, clock_timestamp()); return new; end $$`)
	r.exec(r.t, `create trigger count_claim after update on @notification_queue for each row
		when (old.status = 0 and new.status = 1) execute function @count_claim()`)
}

// A hot recipient's backlog is put aside, claimed no more often than it has to be, and delays nobody.
func TestRateLimitHotRecipientDelaysNobody(t *testing.T) { // C46
	t.Parallel()
	t.Run("2,000 and 200", func(t *testing.T) {
		t.Parallel()
		hotRecipient(t, 2_000, 200, notifyq.RateLimit{Max: 5, Window: time.Second}, 15)
	})
	t.Run("10,000 and 1,000", func(t *testing.T) {
		if testing.Short() {
			t.Skip("10 s")
		}
		t.Parallel()
		hotRecipient(t, 10_000, 1_000, notifyq.RateLimit{Max: 5, Window: 10 * time.Second}, 5)
	})
}

// hotRecipient has others delivered while the backlog of one is put aside, and goes on until more of that are sent.
func hotRecipient(t *testing.T, hot, others int, limit notifyq.RateLimit, more int) {
	r := newLimitRun(t)
	r.countClaims()
	r.scheduleAll(t, mails("hot", "hot@example.test", hot))
	rest := emails("other", others)
	for i := range rest {
		rest[i].Recipient = fmt.Sprintf("u%d@example.test", i)
	}
	r.scheduleAll(t, rest)
	stop := r.work(2, notifyq.WorkerConfig{}, limit)
	of := func(starts []limitStart, hot bool) []limitStart {
		return slices.DeleteFunc(starts, func(s limitStart) bool { return (s.recipient == "hot@example.test") != hot })
	}
	starts := r.await(func(starts []limitStart) bool { return len(of(slices.Clone(starts), false)) == others })
	before := len(of(slices.Clone(starts), true))
	require.Less(t, before, hot/20, "the others did not wait for the hot ones")
	starts = r.await(func(starts []limitStart) bool { return len(starts)-others >= before+more })
	stop()
	sent := of(starts, true)
	requireWindow(t, sent, limit.Max, limit.Window)

	// Each was claimed once to be put aside and once to be sent, and once more where the line was late.
	claims := r.count(t, "@claims c join @notifications n on n.id = c.id where n.recipient = $1", "hot@example.test")
	most := value[int](t, r.bundle, "select max(n) from (select count(*) n from @claims group by id) c")
	t.Logf("%d claims of %d hot jobs, %d sent; at most %d of one", claims, hot, len(sent), most)
	require.LessOrEqual(t, claims, hot+4*len(sent)+20)
	require.Equal(t, others, r.count(t, "@claims c join @notifications n on n.id = c.id where n.recipient <> $1", "hot@example.test"))
}

// slowConn makes each round trip take long.
type slowConn struct {
	net.Conn
	by time.Duration
}

func (c slowConn) Write(p []byte) (int, error) {
	time.Sleep(c.by)
	return c.Conn.Write(p)
}

// A database that is too far away for an admission to be fresh at the start still gets limited jobs delivered.
func TestRateLimitWorksWithASlowDatabase(t *testing.T) {
	t.Parallel()
	r := newLimitRun(t)
	r.scheduleAll(t, mails("m", "hot@example.test", 12))
	slow := r.newPool(t, func(cfg *pgxpool.Config) {
		dialer := &net.Dialer{}
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			return slowConn{conn, 60 * time.Millisecond}, err
		}
	})
	cfg := notifyq.WorkerConfig{PollInterval: 100 * time.Millisecond, RateLimits: []notifyq.RateLimit{{Max: 4, Window: time.Second}}}
	r.startWorker(t, slow, cfg, r.deliver)
	r.startWorker(t, slow, cfg, r.deliver)
	requireWindow(t, r.awaitStarts(12), 4, time.Second)
	r.awaitCount(12, limitSent)
}
