package notifyq

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/engine"
	"github.com/notifyq/notifyq/internal/store"
)

// RateLimit allows each recipient at most Max deliveries in any span of length Window, over all workers. Several limits
// hold together.
//
// What is counted are admissions, not successes: an attempt that failed has used its slot, and a retry or a recovery of
// the same notification within the window keeps the slot it has. A notification that may not go now books the moment at
// which its turn comes and waits for it without using up an attempt; one of a higher priority that arrives later takes
// the next moment that nobody has booked. All workers on a schema should have the same limits.
type RateLimit struct {
	// Max is at least 1 and at most 10,000.
	Max int
	// Window is at least 1 s and at most 31 days.
	Window time.Duration
	// Channel limits one channel; empty counts all channels together.
	Channel Channel
}

// admissionSlack is how much later than its admission a delivery may start. Windows are kept longer by that much, or
// two deliveries whose admissions are a window apart could start closer together than that.
const admissionSlack = 50 * time.Millisecond

func (r RateLimit) validate(i int) error {
	field := func(name string) string { return fmt.Sprintf("RateLimits[%d].%s", i, name) }
	if r.Max < 1 || r.Max > 10_000 {
		return invalid(field("Max"), "must be between 1 and 10,000")
	}
	if r.Window < time.Second || r.Window > 31*24*time.Hour {
		return invalid(field("Window"), "must be between 1s and 744h")
	}
	if r.Channel != "" {
		return checkChannel(field("Channel"), r.Channel)
	}
	return nil
}

// rule is a RateLimit in the form in which it is computed with: microseconds, slack included.
type rule struct {
	max     int
	window  int64
	channel string
}

func (r rule) counts(channel string) bool { return r.channel == "" || r.channel == channel }

// limits is the rolling-window rule, as the engine asks it.
type limits struct{ rules []rule }

func newLimits(configured []RateLimit) engine.Limits {
	if len(configured) == 0 {
		return nil
	}
	l := &limits{}
	for _, c := range configured {
		l.rules = append(l.rules, rule{c.Max, (c.Window + admissionSlack).Microseconds(), string(c.Channel)})
	}
	return l
}

// Slack is how old an admission may be at the start of its delivery.
func (l *limits) Slack() time.Duration { return admissionSlack }

// Applies tells whether any rule counts channel.
func (l *limits) Applies(channel string) bool {
	return slices.ContainsFunc(l.rules, func(r rule) bool { return r.counts(channel) })
}

// Key hashes tenant and recipient key to what reservations go by: short, and nothing personal.
func (l *limits) Key(tenant, recipientKey string) uuid.UUID {
	h := sha256.New()
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(tenant)))
	h.Write(size[:])
	h.Write([]byte(tenant))
	h.Write([]byte(recipientKey))
	return uuid.UUID(h.Sum(nil)[:16])
}

// futureRead is how many bookings of a recipient are looked at, from the latest back. If there are more, nothing is
// booked in a gap between the earlier ones.
const futureRead = 512

// Readings asks for what each rule has to see of a key: as many admissions as can matter, and the bookings.
func (l *limits) Readings(key uuid.UUID) []store.Reading {
	readings := make([]store.Reading, len(l.rules))
	for i, r := range l.rules {
		readings[i] = store.Reading{
			Key: key, Channel: r.channel, Window: time.Duration(r.window) * time.Microsecond,
			PastCap: r.max + 1, FutureCap: r.max + futureRead,
		}
	}
	return readings
}

// Judge answers the asks in order, each in the light of those before it.
func (l *limits) Judge(now time.Time, existing []store.Reservation, asks []engine.Ask) []engine.Answer {
	ledgers := make(map[uuid.UUID]*ledger)
	own := make(map[uuid.UUID]store.Reservation, len(asks))
	for _, a := range asks {
		if ledgers[a.Key] == nil {
			ledgers[a.Key] = newLedger(l.rules, now.UnixMicro())
		}
		own[a.JobID] = store.Reservation{}
	}
	seen := make(map[uuid.UUID]struct{}, len(existing))
	for _, r := range existing {
		if _, twice := seen[r.JobID]; twice {
			continue // two rules asked for it
		}
		seen[r.JobID] = struct{}{}
		if _, asking := own[r.JobID]; asking {
			own[r.JobID] = r
		}
		if g := ledgers[r.Key]; g != nil {
			g.add(r.Channel, r.At.UnixMicro())
		}
	}
	for _, g := range ledgers {
		g.sort()
	}
	answers := make([]engine.Answer, len(asks))
	for i, a := range asks {
		answers[i] = ledgers[a.Key].judge(a, own[a.JobID])
	}
	return answers
}

// ledger is what one recipient's windows hold: for each rule, the times it counts, ascending, in microseconds.
type ledger struct {
	rules []rule
	times [][]int64
	now   int64
	// from is where the search for a free moment starts, by channel: moments before were found taken.
	from map[string]int64
}

func newLedger(rules []rule, now int64) *ledger {
	return &ledger{rules: rules, times: make([][]int64, len(rules)), now: now, from: make(map[string]int64)}
}

func (g *ledger) add(channel string, at int64) {
	for i, r := range g.rules {
		if r.counts(channel) {
			g.times[i] = append(g.times[i], at)
		}
	}
}

func (g *ledger) sort() {
	for _, times := range g.times {
		slices.Sort(times)
	}
}

func (g *ledger) insert(channel string, at int64) {
	for i, r := range g.rules {
		if r.counts(channel) {
			p, _ := slices.BinarySearch(g.times[i], at)
			g.times[i] = slices.Insert(g.times[i], p, at)
		}
	}
}

func (g *ledger) remove(channel string, at int64) {
	for i, r := range g.rules {
		if p, found := slices.BinarySearch(g.times[i], at); r.counts(channel) && found {
			g.times[i] = slices.Delete(g.times[i], p, p+1)
		}
	}
}

// judge answers one ask. own is the job's reservation, with a zero time if it has none.
func (g *ledger) judge(a engine.Ask, own store.Reservation) engine.Answer {
	at := own.At.UnixMicro()
	late := false
	switch {
	case own.At.IsZero():
	case !own.Booked && !a.Again && g.current(a.Channel, at):
		return engine.Answer{Admitted: true} // a retry or a recovery keeps its slot
	case own.Booked && at <= g.now && g.now-at <= admissionSlack.Microseconds() && g.free(a.Channel, at, g.now):
		if !a.HasSlot {
			return engine.Answer{Admitted: true}
		}
		own.Booked = false
		return engine.Answer{Admitted: true, Reserve: &own}
	default:
		g.remove(own.Channel, at)
		late = own.Booked || a.Again
	}
	// A job that booked, or was admitted and could not start, has its place in the line. If it is too late to keep its
	// moment, later bookings give way: each is asked again when it falls due.
	until := int64(1<<63 - 1)
	if late {
		until = g.now
	}
	return g.place(a, until)
}

// place admits a job now if that is free, and books the next free moment otherwise.
func (g *ledger) place(a engine.Ask, until int64) engine.Answer {
	at := g.earliest(a.Channel, until)
	slot := &store.Reservation{JobID: a.JobID, Key: a.Key, Channel: a.Channel, At: time.UnixMicro(at), Booked: at > g.now}
	switch {
	case at <= g.now && !a.HasSlot:
		return engine.Answer{Admitted: true} // asked again, and counted, when it can start
	case at <= g.now:
		g.insert(a.Channel, at)
		return engine.Answer{Admitted: true, Reserve: slot}
	case a.ExpiresIn > 0 && at >= g.now+a.ExpiresIn.Microseconds():
		// Its turn would come too late. It waits for its end without taking a slot.
		return engine.Answer{Deferred: true, Due: time.UnixMicro(g.now + a.ExpiresIn.Microseconds())}
	default:
		g.insert(a.Channel, at)
		return engine.Answer{Deferred: true, Due: time.UnixMicro(at), Reserve: slot}
	}
}

// current tells whether an admission still stands in the shortest window that counts channel.
func (g *ledger) current(channel string, at int64) bool {
	for _, r := range g.rules {
		if r.counts(channel) && at <= g.now-r.window {
			return false
		}
	}
	return true
}

// free tells whether the rules hold with what stands at a moment already, counting nothing after until.
func (g *ledger) free(channel string, at, until int64) bool {
	g.remove(channel, at)
	defer g.insert(channel, at)
	for i, r := range g.rules {
		if r.counts(channel) && r.next(before(g.times[i], until), at) != at {
			return false
		}
	}
	return true
}

// earliest is the first moment from now on at which one more delivery breaks no rule, counting nothing after until.
func (g *ledger) earliest(channel string, until int64) int64 {
	at := g.now
	whole := until > g.now
	if whole {
		at = max(at, g.from[channel])
	}
	for settled := false; !settled; {
		settled = true
		for i, r := range g.rules {
			if !r.counts(channel) {
				continue
			}
			if next := r.next(before(g.times[i], until), at); next > at {
				at, settled = next, false
			}
		}
	}
	if whole {
		g.from[channel] = at
	}
	return at
}

func before(times []int64, until int64) []int64 {
	p, _ := slices.BinarySearch(times, until+1)
	return times[:p]
}

// next is the first moment from at on at which one more entry keeps every window within the limit: any max+1 entries in
// a row must span at least the window. times is ascending.
func (r rule) next(times []int64, at int64) int64 {
	if len(times) > r.max+futureRead-1 && at < times[r.max] {
		at = times[r.max] // more bookings than were read: before this, windows are not known whole
	}
	for {
		p, _ := slices.BinarySearch(times, at+1) // entries up to at stand before the new one
		moved := at
		for i := max(0, p-r.max); i <= p && i+r.max <= len(times); i++ {
			first, last := r.span(times, p, at, i)
			if last-first >= r.window {
				continue
			}
			if i+r.max == p {
				moved = first + r.window // the new one is the last of them: it has to wait for the first to leave
			} else {
				moved = last // it stands among bookings that are full: past them
			}
			break
		}
		if moved == at {
			return at
		}
		at = moved
	}
}

// span is the first and the last of max+1 entries in a row, from i on, with the new one at place p.
func (r rule) span(times []int64, p int, at int64, i int) (first, last int64) {
	value := func(k int) int64 {
		switch {
		case k < p:
			return times[k]
		case k == p:
			return at
		default:
			return times[k-1]
		}
	}
	return value(i), value(i + r.max)
}
