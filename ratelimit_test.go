package notifyq

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/notifyq/notifyq/internal/engine"
	"github.com/notifyq/notifyq/internal/store"
)

func TestRateLimitValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		limit RateLimit
		field string // of the error; empty: none
	}{
		"least":            {RateLimit{Max: 1, Window: time.Second}, ""},
		"most":             {RateLimit{Max: 10_000, Window: 31 * 24 * time.Hour, Channel: "SMS"}, ""},
		"zero":             {RateLimit{}, "RateLimits[2].Max"},
		"negative":         {RateLimit{Max: -1, Window: time.Minute}, "RateLimits[2].Max"},
		"too many":         {RateLimit{Max: 10_001, Window: time.Minute}, "RateLimits[2].Max"},
		"no window":        {RateLimit{Max: 1}, "RateLimits[2].Window"},
		"window too short": {RateLimit{Max: 1, Window: time.Second - 1}, "RateLimits[2].Window"},
		"window too long":  {RateLimit{Max: 1, Window: 31*24*time.Hour + 1}, "RateLimits[2].Window"},
		"bad channel":      {RateLimit{Max: 1, Window: time.Second, Channel: "a b"}, "RateLimits[2].Channel"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.limit.validate(2)
			if tc.field == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.field)
		})
	}
}

func TestRateLimitAppliesByChannel(t *testing.T) {
	t.Parallel()
	require.Nil(t, newLimits(nil))
	sms := newLimits([]RateLimit{{Max: 1, Window: time.Second, Channel: "SMS"}})
	require.True(t, sms.Applies("SMS"))
	require.False(t, sms.Applies("EMAIL"))
	all := newLimits([]RateLimit{{Max: 1, Window: time.Second, Channel: "SMS"}, {Max: 1, Window: time.Second}})
	require.True(t, all.Applies("EMAIL"))
}

func TestRateLimitKeyTellsTenantsAndRecipientsApart(t *testing.T) {
	t.Parallel()
	l := newLimits([]RateLimit{{Max: 1, Window: time.Second}})
	keys := make(map[uuid.UUID]string)
	for _, who := range [][2]string{{"", "ab"}, {"a", "b"}, {"ab", ""}, {"b", "a"}, {"a", "B"}, {"a", "b "}} {
		key := l.Key(who[0], who[1])
		require.Equal(t, key, l.Key(who[0], who[1]))
		require.Empty(t, keys[key])
		keys[key] = who[0] + "/" + who[1]
	}
}

// limitJudge is one judgement of one recipient, in whole milliseconds from a moment called 0.
type limitJudge struct {
	t      testing.TB
	limits *limits
	key    uuid.UUID
	table  []store.Reservation
}

func newLimitJudge(t testing.TB, configured ...RateLimit) *limitJudge {
	return &limitJudge{t: t, limits: newLimits(configured).(*limits), key: uuid.Max}
}

func limitTime(ms int) time.Time { return time.UnixMilli(1_700_000_000_000 + int64(ms)) }

// limitJob is the id of the nth job.
func limitJob(n int) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

func (j *limitJudge) admitted(job int, channel Channel, at int) *limitJudge {
	j.table = append(j.table, store.Reservation{JobID: limitJob(job), Key: j.key, Channel: string(channel), At: limitTime(at)})
	return j
}

func (j *limitJudge) booked(job int, channel Channel, at int) *limitJudge {
	j.admitted(job, channel, at)
	j.table[len(j.table)-1].Booked = true
	return j
}

// limitAsk is an ask that has a slot to run in and is quick.
func limitAsk(job int, channel Channel) engine.Ask {
	return engine.Ask{JobID: limitJob(job), Key: uuid.Max, Channel: string(channel), HasSlot: true, Takes: 10 * time.Millisecond}
}

func (j *limitJudge) ask(now int, asks ...engine.Ask) (answers []string) {
	for _, a := range j.limits.Judge(limitTime(now), j.table, asks) {
		answers = append(answers, limitAnswer(a))
	}
	return answers
}

// limitAnswer is an answer in words: what becomes of the job, when, and what is written.
func limitAnswer(a engine.Answer) string {
	ms := func(t time.Time) int64 { return t.Sub(limitTime(0)).Milliseconds() }
	written := "writes nothing"
	if a.Reserve != nil {
		written = fmt.Sprintf("admits at %d", ms(a.Reserve.At))
		if a.Reserve.Booked {
			written = fmt.Sprintf("books %d", ms(a.Reserve.At))
		}
	}
	switch {
	case !a.Admitted:
		return fmt.Sprintf("back until %d, %s", ms(a.At), written)
	case a.At.IsZero():
		return "goes at any time, " + written
	default:
		return fmt.Sprintf("goes for %d, %s", ms(a.At), written)
	}
}

func TestRateLimitJudge(t *testing.T) {
	t.Parallel()
	const w = 10_050 // a window of 10 s with its slack
	two := RateLimit{Max: 2, Window: 10 * time.Second}
	with := func(a engine.Ask, change func(a *engine.Ask)) engine.Ask {
		change(&a)
		return a
	}
	unstarted := func(a *engine.Ask) { a.Unstarted = true }
	waiting := func(a *engine.Ask) { a.HasSlot = false }
	for name, tc := range map[string]struct {
		judge *limitJudge
		now   int
		asks  []engine.Ask
		want  []string
	}{
		"the first ones go, the next books": {
			newLimitJudge(t, two), 0,
			[]engine.Ask{limitAsk(1, "A"), limitAsk(2, "A"), limitAsk(3, "A"), limitAsk(4, "A"), limitAsk(5, "A")},
			[]string{
				"goes for 0, admits at 0", "goes for 0, admits at 0", "back until 10050, books 10050",
				"back until 10050, books 10050", "back until 20100, books 20100",
			},
		},
		"the window slides": {
			newLimitJudge(t, two).admitted(1, "A", 0).admitted(2, "A", 9_900), 10_051,
			[]engine.Ask{limitAsk(3, "A"), limitAsk(4, "A")},
			[]string{"goes for 10051, admits at 10051", "back until 19950, books 19950"},
		},
		"a moment before its end a window still holds": {
			newLimitJudge(t, two).admitted(1, "A", 0).admitted(2, "A", 0), w - 1,
			[]engine.Ask{limitAsk(3, "A")},
			[]string{"back until 10050, books 10050"},
		},
		"a retry keeps its slot, however full the window": {
			newLimitJudge(t, two).admitted(1, "A", 0).admitted(2, "A", 0).admitted(3, "A", 1), w - 1,
			[]engine.Ask{limitAsk(1, "A")},
			[]string{"goes at any time, writes nothing"},
		},
		"a retry after the window is counted anew": {
			newLimitJudge(t, two).admitted(1, "A", 0).admitted(2, "A", 9_000).admitted(3, "A", 9_000), w,
			[]engine.Ask{limitAsk(1, "A")},
			[]string{"back until 19050, books 19050"},
		},
		"an admission that led to no delivery moves": {
			newLimitJudge(t, two).admitted(1, "A", 0).admitted(2, "A", 0), 5_000,
			[]engine.Ask{with(limitAsk(1, "A"), unstarted)},
			[]string{"goes for 5000, admits at 5000"},
		},
		"and waits if others have filled the window": {
			newLimitJudge(t, two).admitted(1, "A", 0).admitted(2, "A", w).admitted(3, "A", w), w + 5_000,
			[]engine.Ask{with(limitAsk(1, "A"), unstarted)},
			[]string{"back until 20100, books 20100"},
		},
		"a booking that is kept in time keeps its moment": {
			newLimitJudge(t, two).booked(1, "A", 0).booked(2, "A", 0).booked(3, "A", w), 5,
			[]engine.Ask{limitAsk(1, "A"), limitAsk(2, "A")},
			[]string{"goes for 0, admits at 0", "goes for 0, admits at 0"},
		},
		"a late one moves, and who comes after gives way": {
			newLimitJudge(t, two).booked(1, "A", 0).booked(2, "A", 0).booked(3, "A", w).booked(4, "A", w), 100,
			[]engine.Ask{limitAsk(1, "A"), limitAsk(2, "A")},
			[]string{"goes for 100, admits at 100", "goes for 100, admits at 100"},
		},
		"and is asked again in its own turn": {
			newLimitJudge(t, two).admitted(1, "A", 100).admitted(2, "A", 100).booked(3, "A", w).booked(4, "A", w).booked(5, "A", 2*w), w + 1,
			[]engine.Ask{limitAsk(3, "A"), limitAsk(4, "A")},
			[]string{"back until 10150, books 10150", "back until 10150, books 10150"},
		},
		"a line that is late goes on in its order": {
			newLimitJudge(t, two).
				booked(1, "A", 0).booked(2, "A", 0).booked(3, "A", w).booked(4, "A", w).booked(5, "A", 2*w).booked(6, "A", 2*w).booked(7, "A", 3*w), 3*w - 1,
			[]engine.Ask{limitAsk(1, "A"), limitAsk(2, "A"), limitAsk(3, "A"), limitAsk(4, "A"), limitAsk(5, "A"), limitAsk(6, "A")},
			[]string{
				"goes for 30149, admits at 30149", "goes for 30149, admits at 30149",
				"back until 40199, books 40199", "back until 40199, books 40199", "back until 50249, books 50249", "back until 50249, books 50249",
			},
		},
		"a late one goes, whatever is booked from then on": {
			newLimitJudge(t, two).booked(8, "A", 0).booked(9, "A", 0).booked(1, "A", w).booked(2, "A", w), 100,
			[]engine.Ask{limitAsk(8, "A"), limitAsk(9, "A")},
			[]string{"goes for 100, admits at 100", "goes for 100, admits at 100"},
		},
		"so does one that could not start": {
			newLimitJudge(t, two).admitted(8, "A", 0).admitted(9, "A", 0).booked(1, "A", w).booked(2, "A", w), 100,
			[]engine.Ask{with(limitAsk(8, "A"), unstarted)},
			[]string{"goes for 100, admits at 100"},
		},
		"who is new takes the next moment that nobody booked": {
			newLimitJudge(t, two).admitted(1, "A", 0).admitted(2, "A", 0).booked(3, "A", w).booked(4, "A", 2*w).booked(5, "A", 2*w), 1,
			[]engine.Ask{limitAsk(9, "A"), limitAsk(10, "A")},
			[]string{"back until 10050, books 10050", "back until 30150, books 30150"},
		},
		"who is new leaves a booking that is due": {
			newLimitJudge(t, two).booked(1, "A", 0).booked(2, "A", 0), 5_000,
			[]engine.Ask{limitAsk(3, "A")},
			[]string{"back until 10050, books 10050"},
		},
		"a job that waits in memory takes no slot": {
			newLimitJudge(t, RateLimit{Max: 1, Window: 10 * time.Second}), 0,
			[]engine.Ask{with(limitAsk(1, "A"), waiting), limitAsk(2, "A")},
			[]string{"goes at any time, writes nothing", "goes for 0, admits at 0"},
		},
		"nor does one that booked": {
			newLimitJudge(t, two).booked(1, "A", 0), 1,
			[]engine.Ask{with(limitAsk(1, "A"), waiting)},
			[]string{"goes at any time, writes nothing"},
		},
		"but it books, if it can't go": {
			newLimitJudge(t, two).admitted(1, "A", 0).admitted(2, "A", 0), 1,
			[]engine.Ask{with(limitAsk(3, "A"), waiting)},
			[]string{"back until 10050, books 10050"},
		},
		"a turn at or after the expiry is not booked": {
			newLimitJudge(t, two).admitted(1, "A", 0).admitted(2, "A", 0), 50,
			[]engine.Ask{
				with(limitAsk(3, "A"), func(a *engine.Ask) { a.ExpiresIn = 10 * time.Second }),
				with(limitAsk(4, "A"), func(a *engine.Ask) { a.ExpiresIn = 10*time.Second + 1_000 }),
			},
			[]string{"back until 11050, writes nothing", "back until 10050, books 10050"},
		},
		"a slow database puts the slot ahead": {
			newLimitJudge(t, two), 0,
			[]engine.Ask{with(limitAsk(1, "A"), func(a *engine.Ask) { a.Takes = 200 * time.Millisecond })},
			[]string{"goes for 160, admits at 160"},
		},
		"by a second at most": {
			newLimitJudge(t, two), 0,
			[]engine.Ask{with(limitAsk(1, "A"), func(a *engine.Ask) { a.Takes = time.Minute })},
			[]string{"goes for 1000, admits at 1000"},
		},
		"a slot ahead is counted": {
			newLimitJudge(t, two).admitted(1, "A", 160).admitted(2, "A", 160), 10,
			[]engine.Ask{limitAsk(3, "A")},
			[]string{"back until 10210, books 10210"},
		},
		"an admission from before the clock was set back blocks nobody": {
			newLimitJudge(t, two).admitted(1, "A", 3_600_000).admitted(2, "A", 3_600_000), 0,
			[]engine.Ask{limitAsk(3, "A")},
			[]string{"goes for 0, admits at 0"},
		},
		"channels have their own windows": {
			newLimitJudge(t, RateLimit{Max: 1, Window: 10 * time.Second, Channel: "A"}, RateLimit{Max: 1, Window: 20 * time.Second, Channel: "B"}).
				admitted(1, "A", 0).admitted(2, "B", 0), 1,
			[]engine.Ask{limitAsk(3, "A"), limitAsk(4, "B")},
			[]string{"back until 10050, books 10050", "back until 20050, books 20050"},
		},
		"two windows hold together": {
			newLimitJudge(t, RateLimit{Max: 1, Window: time.Second}, two), 0,
			[]engine.Ask{limitAsk(1, "A"), limitAsk(2, "A"), limitAsk(3, "A"), limitAsk(4, "A")},
			[]string{
				"goes for 0, admits at 0", "back until 1050, books 1050", "back until 10050, books 10050", "back until 11100, books 11100",
			},
		},
		"a channel's window and the one of all": {
			newLimitJudge(t, RateLimit{Max: 1, Window: 20 * time.Second, Channel: "A"}, two), 0,
			[]engine.Ask{limitAsk(1, "A"), limitAsk(2, "A"), limitAsk(3, "B"), limitAsk(4, "B")},
			[]string{
				"goes for 0, admits at 0", "back until 20050, books 20050", "goes for 0, admits at 0", "back until 10050, books 10050",
			},
		},
		"a retry that a short window forgot, and the long one not, waits without giving that up": {
			newLimitJudge(t, RateLimit{Max: 1, Window: time.Second}, two).admitted(1, "A", 0).admitted(2, "A", 4_500), 5_000,
			[]engine.Ask{limitAsk(1, "A")},
			[]string{"back until 5550, writes nothing"},
		},
		"and takes its place in the long one along": {
			newLimitJudge(t, RateLimit{Max: 1, Window: time.Second}, two).admitted(1, "A", 0).admitted(2, "A", 2_500), 5_000,
			[]engine.Ask{limitAsk(1, "A")},
			[]string{"goes for 5000, admits at 5000"},
		},
		"a lower limit holds at once": {
			newLimitJudge(t, two).admitted(1, "A", 0).admitted(2, "A", 0).admitted(3, "A", 0).booked(4, "A", w).booked(5, "A", w).booked(6, "A", w), w,
			[]engine.Ask{limitAsk(4, "A"), limitAsk(5, "A"), limitAsk(6, "A")},
			[]string{"goes for 10050, admits at 10050", "goes for 10050, admits at 10050", "back until 20100, books 20100"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.judge.ask(tc.now, tc.asks...))
			slices.Reverse(tc.judge.table)
			require.Equal(t, tc.want, tc.judge.ask(tc.now, tc.asks...), "the order of what was read must not matter")
		})
	}
}

func TestRateLimitKeepsOtherRecipientsApart(t *testing.T) {
	t.Parallel()
	j := newLimitJudge(t, RateLimit{Max: 1, Window: time.Second}).admitted(1, "A", 0)
	other := limitAsk(2, "A")
	other.Key = limitJob(77)
	require.Equal(t, []string{"back until 1050, books 1050", "goes for 1, admits at 1"}, j.ask(1, limitAsk(3, "A"), other))
	moved := limitAsk(1, "A") // its recipient key has another spelling now
	moved.Key = limitJob(77)
	require.Equal(t, []string{"goes for 1, admits at 1"}, j.ask(1, moved))
}

// What is behind the bookings that are read is not known; it must not be taken for free.
func TestRateLimitBooksBehindWhatItDoesNotRead(t *testing.T) {
	t.Parallel()
	l := newLimits([]RateLimit{{Max: 1, Window: time.Second}}).(*limits)
	now := limitTime(0)
	s := newLimitSim(l)
	s.now = now.UnixMicro()
	for i := range 2000 {
		s.table[limitJob(i)] = store.Reservation{JobID: limitJob(i), Key: uuid.Max, Channel: "A", At: limitTime(1050 * i), Booked: i > 0}
	}
	existing := s.existing(now, []engine.Ask{limitAsk(5000, "A")})
	require.Less(t, len(existing), nearRead+10)
	answers := l.Judge(now, existing, []engine.Ask{limitAsk(5000, "A"), limitAsk(5001, "A")})
	require.Equal(t, "back until 2100000, books 2100000", limitAnswer(answers[0]))
	require.Equal(t, "back until 2101050, books 2101050", limitAnswer(answers[1]))

	delete(s.table, limitJob(300)) // a gap that is read
	answers = l.Judge(now, s.existing(now, []engine.Ask{limitAsk(5000, "A")}), []engine.Ask{limitAsk(5000, "A"), limitAsk(5001, "A")})
	require.Equal(t, "back until 315000, books 315000", limitAnswer(answers[0]))
	require.Equal(t, "back until 2100000, books 2100000", limitAnswer(answers[1]))
}

// smallRules are rules with windows of some microseconds, so that a reference can try every moment.
func smallRules(t *rapid.T) []rule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rule {
		return rule{
			max: rapid.IntRange(1, 3).Draw(t, "max"), window: int64(rapid.IntRange(2, 25).Draw(t, "window")),
			channel: rapid.SampledFrom([]string{"", "", "A", "B"}).Draw(t, "channel"),
		}
	}), 1, 2).Draw(t, "rules")
}

const smallNow = 1000

func smallTable(t *rapid.T) []store.Reservation {
	table := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) store.Reservation {
		r := store.Reservation{Key: uuid.Max, Booked: rapid.Bool().Draw(t, "booked")}
		r.Channel = rapid.SampledFrom([]string{"A", "B"}).Draw(t, "channel")
		latest := smallNow + 2
		if r.Booked {
			latest = smallNow + 60
		}
		r.At = time.UnixMicro(int64(rapid.IntRange(smallNow-30, latest).Draw(t, "at")))
		return r
	}), 0, 12).Draw(t, "table")
	for i := range table {
		table[i].JobID = limitJob(2 * i)
	}
	return table
}

// fullest is the shortest time that max+1 reservations take.
func fullest(r rule, table []store.Reservation) int64 {
	var times []int64
	for _, e := range table {
		if r.counts(e.Channel) {
			times = append(times, e.At.UnixMicro())
		}
	}
	slices.Sort(times)
	shortest := int64(1) << 62
	for i := 0; i+r.max < len(times); i++ {
		shortest = min(shortest, times[i+r.max]-times[i])
	}
	return shortest
}

// mayGo is the rule itself: fewer than max admissions in each window.
func mayGo(rules []rule, channel string, table []store.Reservation, now int64) bool {
	for _, r := range rules {
		n := 0
		for _, e := range table {
			if r.counts(channel) && r.counts(e.Channel) && !e.Booked && e.At.UnixMicro() > now-r.window {
				n++
			}
		}
		if r.counts(channel) && n >= r.max {
			return false
		}
	}
	return true
}

func TestRateLimitFindsTheEarliestMoment(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules, table := smallRules(t), smallTable(t)
		channel := rapid.SampledFrom([]Channel{"A", "B"}).Draw(t, "asks for")
		// The reference tries every moment. A window that was too full before does not count against the newcomer
		// unless it stands in it.
		fits := func(at int64) bool {
			for _, r := range rules {
				if !r.counts(string(channel)) {
					continue
				}
				times := []int64{at}
				for _, e := range table {
					if r.counts(e.Channel) {
						times = append(times, e.At.UnixMicro())
					}
				}
				slices.Sort(times)
				for i := 0; i+r.max < len(times); i++ {
					if times[i] <= at && at <= times[i+r.max] && times[i+r.max]-times[i] < r.window {
						return false
					}
				}
			}
			return true
		}
		want := int64(smallNow)
		for !fits(want) || !mayGo(rules, string(channel), table, want) {
			want++
		}
		ask := limitAsk(999, channel)
		a := (&limits{rules}).Judge(time.UnixMicro(smallNow), table, []engine.Ask{ask})[0]
		if a.Reserve == nil || a.Reserve.At.UnixMicro() != want || a.Admitted != (want == smallNow) || a.Reserve.Booked == a.Admitted {
			t.Fatalf("got %+v (%+v), want %d", a, a.Reserve, want)
		}
	})
}

func TestRateLimitNewcomersBreakNoWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &limits{smallRules(t)}
		now := time.UnixMicro(smallNow)
		var table []store.Reservation
		for round := range rapid.IntRange(1, 4).Draw(t, "rounds") {
			var asks []engine.Ask
			for i := range rapid.IntRange(1, 8).Draw(t, "asks") {
				asks = append(asks, limitAsk(100*round+i, rapid.SampledFrom([]Channel{"A", "B"}).Draw(t, "channel")))
			}
			for _, a := range l.Judge(now, table, asks) {
				if a.Reserve.At.Before(now) || a.Reserve.Booked != a.Reserve.At.After(now) || a.Admitted == a.Reserve.Booked {
					t.Fatalf("now %v: %+v %+v", now.UnixMicro(), a, a.Reserve)
				}
				table = append(table, *a.Reserve)
			}
			for _, r := range l.rules {
				if least := fullest(r, table); least < r.window {
					t.Fatalf("%+v: max+1 in %d: %+v", r, least, table)
				}
			}
			// Go on with some bookings cancelled.
			table = slices.DeleteFunc(table, func(r store.Reservation) bool { return r.Booked && rapid.IntRange(0, 4).Draw(t, "cancel") == 0 })
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "pass")) * time.Microsecond)
			for i := range table {
				table[i].Booked = table[i].At.After(now)
			}
		}
	})
}

// Whoever asks, in whatever state: an admission never exceeds a window of admissions, a booking is never in the past,
// and a job that holds no slot to run in takes none.
func TestRateLimitAdmitsOnlyWhatMayGo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rules, table := smallRules(t), smallTable(t)
		var asks []engine.Ask
		for i := range table {
			if rapid.Bool().Draw(t, "asks") {
				asks = append(asks, limitAsk(2*i, Channel(table[i].Channel)))
			}
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "newcomers") {
			asks = append(asks, limitAsk(2*i+1, rapid.SampledFrom([]Channel{"A", "B"}).Draw(t, "channel")))
		}
		asks = rapid.Permutation(asks).Draw(t, "order")
		for i := range asks {
			asks[i].HasSlot = rapid.Bool().Draw(t, "has a slot")
			asks[i].Unstarted = rapid.Bool().Draw(t, "unstarted")
			asks[i].ExpiresIn = time.Duration(rapid.IntRange(0, 60).Draw(t, "expires")) * time.Microsecond
		}
		held := make(map[uuid.UUID]store.Reservation)
		for _, r := range table {
			held[r.JobID] = r
		}
		for i, a := range (&limits{rules}).Judge(time.UnixMicro(smallNow), slices.Concat(table, table), asks) {
			ask := asks[i]
			own, has := held[ask.JobID]
			keeps := has && !own.Booked && !ask.Unstarted
			switch {
			case a.Admitted && a.Reserve == nil && ask.HasSlot && !keeps:
				t.Fatalf("%+v goes uncounted", ask)
			case a.Admitted && a.Reserve != nil:
				delete(held, ask.JobID)
				if !mayGo(rules, ask.Channel, slices.Collect(maps.Values(held)), smallNow) {
					t.Fatalf("%+v goes into a full window", ask)
				}
				if at := a.Reserve.At.UnixMicro(); !ask.HasSlot || a.Reserve.Booked || (at != smallNow && at != own.At.UnixMicro()) || !a.At.Equal(a.Reserve.At) {
					t.Fatalf("%+v: %+v", ask, a.Reserve)
				}
			case !a.Admitted && a.Reserve != nil:
				if !a.Reserve.Booked || a.Reserve.At.UnixMicro() <= smallNow || !a.At.Equal(a.Reserve.At) {
					t.Fatalf("%+v: %+v", ask, a.Reserve)
				}
				if ask.ExpiresIn > 0 && a.At.UnixMicro() >= smallNow+ask.ExpiresIn.Microseconds() {
					t.Fatalf("%+v booked %v", ask, a.At.UnixMicro())
				}
			case !a.Admitted && a.At.UnixMicro() <= smallNow:
				t.Fatalf("%+v is back until %d", ask, a.At.UnixMicro())
			}
			if a.Reserve != nil {
				held[ask.JobID] = *a.Reserve
			}
		}
	})
}

// limitSim is a database, several workers and a provider, in one goroutine and in simulated time.
type limitSim struct {
	limits *limits
	table  map[uuid.UUID]store.Reservation
	jobs   []*simJob
	now    int64
	takes  time.Duration
	asks   int

	late  func() int64                // how much later than it was due a batch is claimed
	took  func() int64                // from an ask to the start
	after func(j *simJob) (ends bool) // what comes of an attempt; it may set a new due time
	batch func() int
	order func(a, b *simJob) int // of claims that are due at the same time
}

type simJob struct {
	id, key  uuid.UUID
	channel  string
	due      int64
	attempts int16
	claims   int
	late     bool
	started  int64
	slot     time.Time
	startAt  int64 // if it is claimed
	claimed  bool
	done     bool
}

func newLimitSim(l *limits) *limitSim {
	return &limitSim{
		limits: l, table: make(map[uuid.UUID]store.Reservation), now: limitTime(0).UnixMicro(), takes: 10 * time.Millisecond,
		late: func() int64 { return 2_000 }, took: func() int64 { return 4_000 }, after: func(*simJob) bool { return true },
		batch: func() int { return 100 },
		order: func(a, b *simJob) int { return bytes.Compare(a.id[:], b.id[:]) },
	}
}

func (s *limitSim) add(n int, key uuid.UUID, channel string) {
	for range n {
		s.jobs = append(s.jobs, &simJob{id: limitJob(len(s.jobs) + 1), key: key, channel: channel, due: s.now})
	}
}

// existing is what the store reads: see store's reservationsSQL.
func (s *limitSim) existing(now time.Time, asks []engine.Ask) (out []store.Reservation) {
	all := slices.SortedFunc(maps.Values(s.table), func(a, b store.Reservation) int { return a.At.Compare(b.At) })
	latest := slices.Clone(all)
	slices.Reverse(latest)
	seen := make(map[uuid.UUID]bool)
	for _, a := range asks {
		if own, ok := s.table[a.JobID]; ok {
			out = append(out, own)
		}
		if seen[a.Key] {
			continue
		}
		seen[a.Key] = true
		for _, k := range s.limits.Readings(a.Key) {
			read := func(from []store.Reservation, n int, choose func(r store.Reservation) bool) {
				for _, r := range from {
					if r.Key == k.Key && (k.Channel == "" || k.Channel == r.Channel) && n > 0 && choose(r) {
						out = append(out, r)
						n--
					}
				}
			}
			first, last := now.Add(-k.Window), now.Add(k.Ahead)
			read(latest, k.Past, func(r store.Reservation) bool { return !r.Booked && r.At.After(first) && !r.At.After(last) })
			read(latest, k.Past, func(r store.Reservation) bool { return r.Booked && r.At.After(first) && !r.At.After(now) })
			read(all, k.Near, func(r store.Reservation) bool { return r.At.After(now) })
			read(latest, k.Last, func(r store.Reservation) bool { return r.At.After(now) })
		}
	}
	return out
}

func (s *limitSim) ask(jobs []*simJob) {
	asks := make([]engine.Ask, len(jobs))
	for i, j := range jobs {
		asks[i] = engine.Ask{
			JobID: j.id, Key: j.key, Channel: j.channel, HasSlot: true, Unstarted: j.late || j.attempts == 1, Takes: s.takes,
		}
	}
	s.asks++
	now := time.UnixMicro(s.now)
	for i, a := range s.limits.Judge(now, s.existing(now, asks), asks) {
		j := jobs[i]
		if a.Reserve != nil {
			s.table[j.id] = *a.Reserve
		}
		if !a.Admitted {
			j.claimed, j.due = false, a.At.UnixMicro()
			j.attempts--
			continue
		}
		took := s.took()
		j.slot, j.startAt = a.At, s.now+took
		s.takes = max(10*time.Millisecond, time.Duration(took)*time.Microsecond*3/2)
	}
}

// start begins a delivery, or asks again if that is too late.
func (s *limitSim) start(j *simJob) {
	if !j.slot.IsZero() && time.UnixMicro(s.now).Sub(j.slot) > s.limits.Slack() {
		j.late = true
		s.ask([]*simJob{j})
		return
	}
	j.claimed, j.late = false, false
	if j.started == 0 {
		j.started = s.now
	}
	j.done = s.after(j)
}

// run works until every job is done, and tells false if that takes too long.
func (s *limitSim) run(steps int) bool {
	for range steps {
		var starts *simJob
		var due *simJob
		open := false
		for _, j := range s.jobs {
			switch {
			case j.done:
				continue
			case j.claimed && (starts == nil || j.startAt < starts.startAt):
				starts = j
			case !j.claimed && (due == nil || j.due < due.due):
				due = j
			}
			open = true
		}
		if !open {
			return true
		}
		if due != nil {
			s.now = max(s.now, min(due.due, s.before(starts)))
		}
		if starts != nil && (due == nil || starts.startAt <= due.due) {
			s.now = max(s.now, starts.startAt)
			s.start(starts)
			continue
		}
		s.claim(due, starts)
	}
	return false
}

func (s *limitSim) before(starts *simJob) int64 {
	if starts == nil {
		return 1 << 62
	}
	return starts.startAt
}

// claim takes a batch of due jobs a while after the first was due, unless a start comes before.
func (s *limitSim) claim(due, starts *simJob) {
	at := max(s.now, due.due+s.late())
	if starts != nil && starts.startAt < at {
		s.now = max(s.now, starts.startAt)
		s.start(starts)
		return
	}
	s.now = at
	var batch []*simJob
	for _, j := range s.jobs {
		if !j.done && !j.claimed && j.due <= s.now {
			batch = append(batch, j)
		}
	}
	slices.SortFunc(batch, func(a, b *simJob) int {
		return cmp.Or(cmp.Compare(a.due, b.due), s.order(a, b))
	})
	batch = batch[:min(s.batch(), len(batch))]
	for _, j := range batch {
		j.claimed = true
		j.claims++
		j.attempts++
	}
	s.ask(batch)
}

// shortest is the least time in which any recipient got max+1 first attempts, by rule.
func (s *limitSim) shortest(r rule) time.Duration {
	times := make(map[uuid.UUID][]int64)
	for _, j := range s.jobs {
		if j.started > 0 && r.counts(j.channel) {
			times[j.key] = append(times[j.key], j.started)
		}
	}
	shortest := int64(1) << 62
	for _, starts := range times {
		slices.Sort(starts)
		for i := 0; i+r.max < len(starts); i++ {
			shortest = min(shortest, starts[i+r.max]-starts[i])
		}
	}
	return time.Duration(min(shortest, 1<<50)) * time.Microsecond
}

// Deliveries as the provider sees them keep every window, with claims and starts that are late, retries, claims that
// are handed back, admissions that take longer than the slack, several windows, channels, and recipients.
func TestRateLimitStartsKeepEveryWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var configured []RateLimit
		for range rapid.IntRange(1, 2).Draw(t, "limits") {
			configured = append(configured, RateLimit{
				Max: rapid.IntRange(1, 3).Draw(t, "max"), Window: time.Duration(rapid.IntRange(1, 5).Draw(t, "window")) * time.Second,
				Channel: rapid.SampledFrom([]Channel{"", "", "A"}).Draw(t, "channel"),
			})
		}
		s := newLimitSim(newLimits(configured).(*limits))
		ms := func(name string, choices ...int64) func() int64 {
			return func() int64 { return 1000 * rapid.SampledFrom(choices).Draw(t, name) }
		}
		s.late = ms("late", 0, 0, 2, 2, 15, 25, 35, 60, 300, 2_000, 9_000)
		s.took = ms("took", 0, 3, 3, 3, 20, 39, 40, 60, 150)
		s.batch = func() int { return rapid.IntRange(1, 10).Draw(t, "batch") }
		s.after = func(j *simJob) bool {
			switch rapid.IntRange(0, 5).Draw(t, "outcome") {
			case 0: // a retry, at once, soon, or after every window
				j.due = s.now + 1000*rapid.SampledFrom([]int64{0, 1_500, 4_000, 7_000}).Draw(t, "delay")
				return j.attempts > 4
			default:
				return true
			}
		}
		for i := range rapid.IntRange(1, 2).Draw(t, "recipients") {
			s.add(rapid.IntRange(1, 20).Draw(t, "jobs"), limitJob(1000+i), rapid.SampledFrom([]string{"A", "B"}).Draw(t, "channel"))
		}
		if !s.run(5_000) {
			t.Fatalf("it does not come to an end")
		}
		for i, r := range s.limits.rules {
			if got := s.shortest(r); got < configured[i].Window-startSlack {
				t.Fatalf("%+v: max+1 deliveries in %v", configured[i], got)
			}
			// From the starter to the provider a delivery may take startSlack more, which the windows have to spare.
			if got := s.shortest(r); got < configured[i].Window+startSlack-time.Microsecond {
				t.Fatalf("%+v: max+1 deliveries in %v, with the way to the provider still to go", configured[i], got)
			}
		}
	})
}

// inOrder fails unless jobs started in the order of their ids.
func (s *limitSim) inOrder(t *testing.T) {
	t.Helper()
	for i := 1; i < len(s.jobs); i++ {
		require.LessOrEqual(t, s.jobs[i-1].started, s.jobs[i].started, "job %d before job %d", i, i-1)
	}
}

func (s *limitSim) mostClaims() (most int) {
	for _, j := range s.jobs {
		most = max(most, j.claims)
	}
	return most
}

func TestRateLimitClaimsAHotJobTwice(t *testing.T) {
	t.Parallel()
	s := newLimitSim(newLimits([]RateLimit{{Max: 5, Window: 10 * time.Second}}).(*limits))
	s.add(600, uuid.Max, "A")
	began := s.now
	require.True(t, s.run(20_000))
	require.Equal(t, 2, s.mostClaims())
	s.inOrder(t)
	last := time.Duration(s.now-began) * time.Microsecond
	require.Less(t, last, 119*(10*time.Second+admissionSlack)+time.Second, "no window is left unused")
}

func TestRateLimitClaimsAHotJobOnceMoreForEachDelay(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{
		"a moment": 100 * time.Millisecond, "a window": 10 * time.Second, "ten windows": 100 * time.Second,
	} {
		for delays := 1; delays <= 3; delays++ {
			t.Run(fmt.Sprintf("%s, %d times", name, delays), func(t *testing.T) {
				t.Parallel()
				s := newLimitSim(newLimits([]RateLimit{{Max: 5, Window: 10 * time.Second}}).(*limits))
				s.add(500, uuid.Max, "A")
				began := s.now
				n := 0
				s.late = func() int64 {
					if n++; n%30 == 0 && n/30 <= delays {
						return delay.Microseconds()
					}
					return 2_000
				}
				require.True(t, s.run(20_000))
				require.LessOrEqual(t, s.mostClaims(), 2+delays)
				s.inOrder(t)
				took := time.Duration(s.now-began) * time.Microsecond
				require.Less(t, took, 99*(10*time.Second+admissionSlack)+time.Duration(delays)*delay+time.Second)
			})
		}
	}
}

// Workers do not come in the order of ids. That may cost order, and must not cost a window.
func TestRateLimitLeavesNoWindowUnused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newLimitSim(newLimits([]RateLimit{{Max: 3, Window: 2 * time.Second}}).(*limits))
		s.add(45, uuid.Max, "A")
		began := s.now
		shuffle := rapid.Permutation(s.jobs).Draw(t, "order")
		rank := make(map[*simJob]int)
		for i, j := range shuffle {
			rank[j] = i
		}
		s.order = func(a, b *simJob) int { return cmp.Compare(rank[a], rank[b]) }
		s.batch = func() int { return rapid.IntRange(1, 20).Draw(t, "batch") }
		var lost int64
		delays := 0
		s.late = func() int64 {
			late := 1000 * rapid.SampledFrom([]int64{2, 2, 2, 2, 2, 2, 2, 2, 100, 3_000}).Draw(t, "late")
			if lost += late; late > 2_000 {
				delays++
			}
			return late
		}
		if !s.run(5_000) {
			t.Fatal("it does not come to an end")
		}
		if took, ideal := s.now-began, 14*(2*time.Second+admissionSlack).Microseconds(); took > ideal+lost+500_000 {
			t.Fatalf("%d ms, with %d ms lost; ideal is %d ms", took/1000, lost/1000, ideal/1000)
		}
		total := 0
		for _, j := range s.jobs {
			total += j.claims
		}
		if total > (3+delays)*len(s.jobs) {
			t.Fatalf("%d claims of %d jobs", total, len(s.jobs))
		}
	})
}

func TestRateLimitClaimsStayBoundedAfterALongOutage(t *testing.T) {
	t.Parallel()
	s := newLimitSim(newLimits([]RateLimit{{Max: 5, Window: 10 * time.Second}}).(*limits))
	s.add(1000, uuid.Max, "A")
	n := 0
	s.late = func() int64 {
		if n++; n == 50 {
			return (2 * time.Hour).Microseconds() // longer than the whole line
		}
		return 2_000
	}
	require.True(t, s.run(40_000))
	total := 0
	for _, j := range s.jobs {
		total += j.claims
	}
	require.LessOrEqual(t, total, 4*len(s.jobs))
}

func TestRateLimitLowersLive(t *testing.T) {
	t.Parallel()
	s := newLimitSim(newLimits([]RateLimit{{Max: 5, Window: 10 * time.Second}}).(*limits))
	s.add(300, uuid.Max, "A")
	var changed int64
	s.late = func() int64 {
		if s.asks == 20 && changed == 0 {
			changed = s.now
			s.limits = newLimits([]RateLimit{{Max: 2, Window: 10 * time.Second}}).(*limits)
		}
		return 2_000
	}
	require.True(t, s.run(20_000))
	require.NotZero(t, changed)
	require.LessOrEqual(t, s.mostClaims(), 3)
	s.inOrder(t)
	s.jobs = slices.DeleteFunc(s.jobs, func(j *simJob) bool { return j.started < changed })
	require.Greater(t, len(s.jobs), 150)
	require.GreaterOrEqual(t, s.shortest(rule{max: 2}), 10*time.Second)
}
