package notifyq

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
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
// the next moment that nobody has booked.
//
// All workers on a schema should have the same limits. A lower limit holds from the next delivery on. After a higher
// one, what has booked keeps its moment, and the moments between are there for what comes later.
type RateLimit struct {
	// Max is at least 1 and at most 10,000.
	Max int
	// Window is at least 1 s and at most 31 days.
	Window time.Duration
	// Channel limits one channel; empty counts all channels together.
	Channel Channel
}

const (
	// admissionSlack is how much later than its slot a delivery may start. Windows are kept longer by that much, or two
	// deliveries whose slots are a window apart could start closer together than that.
	admissionSlack = 50 * time.Millisecond
	// startSlack is the part of it that is left to the way from the starter to the provider.
	startSlack = 10 * time.Millisecond
	// maxLead bounds how far ahead a worker whose database is slow may put a slot at which it starts.
	maxLead = time.Second
	// nearRead is how many of a recipient's next bookings are looked at, besides those that fill one window. If there
	// are more, nothing is booked between those and the last ones.
	nearRead = 512
)

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
//
// What must hold is one line, line.opens: a job may go if fewer than max admissions stand in each window. Each was
// admitted before and starts at most the slack after its slot, so any max+1 deliveries take longer than the window.
// All else is planning: who books which moment, so that few ask in vain.
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

// Slack is how long after its slot a delivery may be sent on its way.
func (l *limits) Slack() time.Duration { return admissionSlack - startSlack }

// Newcomer looks no further than the longest window: who has nothing in that has nothing in any.
func (l *limits) Newcomer(takes time.Duration) (window, lead time.Duration) {
	for _, r := range l.rules {
		window = max(window, time.Duration(r.window)*time.Microsecond)
	}
	return window, leadOf(takes)
}

// leadOf is how far ahead an admission is counted whose delivery takes so long to start.
func leadOf(takes time.Duration) time.Duration {
	return min(max(0, takes-admissionSlack+startSlack), maxLead)
}

// Applies tells whether any rule counts channel.
func (l *limits) Applies(channel string) bool {
	return slices.ContainsFunc(l.rules, func(r rule) bool { return r.counts(channel) })
}

// Key hashes tenant and recipient key to what reservations go by: short, and no address for people to read.
func (l *limits) Key(tenant, recipientKey string) uuid.UUID {
	h := sha256.New()
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(tenant)))
	h.Write(size[:])
	h.Write([]byte(tenant))
	h.Write([]byte(recipientKey))
	return uuid.UUID(h.Sum(nil)[:16])
}

// Readings asks for what each rule has to see of a key. Of what is past, that is what fills the window, even if all
// that ask give up the place they have in it.
func (l *limits) Readings(key uuid.UUID) []store.Reading {
	readings := make([]store.Reading, len(l.rules))
	for i, r := range l.rules {
		readings[i] = store.Reading{
			Key: key, Channel: r.channel, Window: time.Duration(r.window) * time.Microsecond, Ahead: maxLead,
			Past: r.max + engine.AdmissionBatch, Near: r.near(), Last: r.max,
		}
	}
	return readings
}

func (r rule) near() int { return r.max + nearRead }

// Judge answers the asks in order, each in the light of those before it.
func (l *limits) Judge(now time.Time, existing []store.Reservation, asks []engine.Ask) []engine.Answer {
	ledgers := make(map[uuid.UUID]*ledger)
	own := make(map[uuid.UUID]*store.Reservation, len(asks))
	for i := range asks {
		if key := asks[i].Key; ledgers[key] == nil {
			ledgers[key] = newLedger(l.rules, now.UnixMicro())
		}
		own[asks[i].JobID] = nil
	}
	seen := make(map[uuid.UUID]struct{}, len(existing))
	for i := range existing {
		r := &existing[i]
		if _, twice := seen[r.JobID]; twice {
			continue // several readings found it
		}
		seen[r.JobID] = struct{}{}
		if g := ledgers[r.Key]; g != nil {
			g.read(r)
		}
		if _, asks := own[r.JobID]; asks {
			own[r.JobID] = r
		}
	}
	for _, g := range ledgers {
		g.open()
	}
	answers := make([]engine.Answer, len(asks))
	for i := range asks {
		a := &asks[i]
		r := own[a.JobID]
		if r != nil && r.Key != a.Key {
			r = nil // the recipient's key has changed
		}
		answers[i] = ledgers[a.Key].judge(a, r)
	}
	return answers
}

// ledger is what one recipient's windows hold.
type ledger struct {
	now   int64
	lines []line
	// from is where the search for a free moment starts, by channel: moments before were found taken.
	from map[string]int64
}

// line is what one rule counts.
type line struct {
	rule
	entries []entry // by time
	known   int64   // up to here entries is whole; behind it only the last max are known
}

type entry struct {
	at     int64
	job    uuid.UUID
	booked bool // its turn is to come; it is not admitted
}

func newLedger(rules []rule, now int64) *ledger {
	g := &ledger{now: now, lines: make([]line, len(rules)), from: make(map[string]int64)}
	for i, r := range rules {
		g.lines[i].rule = r
	}
	return g
}

// read adds what the database holds, in any order.
func (g *ledger) read(r *store.Reservation) {
	e := entry{r.At.UnixMicro(), r.JobID, r.Booked}
	if e.at > g.now+maxLead.Microseconds() {
		e.booked = true // if it was an admission, the database's clock has been set back since
	}
	for i := range g.lines {
		if g.lines[i].counts(r.Channel) {
			g.lines[i].entries = append(g.lines[i].entries, e)
		}
	}
}

// open makes the ledger ready after the last read.
func (g *ledger) open() {
	for i := range g.lines {
		l := &g.lines[i]
		slices.SortFunc(l.entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
		l.known = math.MaxInt64
		if last := l.place(g.now) + l.near() - 1; last < len(l.entries) {
			l.known = l.entries[last].at
		}
	}
}

// place is where an entry at that time would be put: behind those of the same time.
func (l *line) place(at int64) int {
	p, _ := slices.BinarySearchFunc(l.entries, at+1, func(e entry, at int64) int { return cmp.Compare(e.at, at) })
	return p
}

func (g *ledger) insert(channel string, e entry) {
	for i := range g.lines {
		if l := &g.lines[i]; l.counts(channel) {
			l.entries = slices.Insert(l.entries, l.place(e.at), e)
		}
	}
}

func (g *ledger) remove(channel string, job uuid.UUID) {
	clear(g.from)
	for i := range g.lines {
		if l := &g.lines[i]; l.counts(channel) {
			l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.job == job })
		}
	}
}

// judge answers one ask. own is the job's reservation, or nil.
func (g *ledger) judge(a *engine.Ask, own *store.Reservation) engine.Answer {
	started := own != nil && !own.Booked && !a.Unstarted
	if started && g.stands(own) == len(g.counting(a.Channel)) {
		return engine.Answer{Admitted: true} // a retry or a recovery keeps its slot
	}
	stands := started && g.stands(own) > 0
	if own != nil {
		g.remove(own.Channel, own.JobID)
	}
	at := g.moment(a, own)
	switch {
	case at <= g.now && !a.HasSlot:
		g.put(own)
		return engine.Answer{Admitted: true} // asked again, and counted, when it can start
	case at <= g.now:
		return g.reserve(a, at+leadOf(a.Takes).Microseconds(), false)
	case stands:
		// It still stands in the longer windows, where its first delivery must not be forgotten, so it can't book.
		g.put(own)
		return engine.Answer{At: time.UnixMicro(at)}
	case a.ExpiresIn > 0 && at >= g.now+a.ExpiresIn.Microseconds():
		// Its turn would come too late. It waits for its end without taking a slot; a booking goes, an admission stays. Due
		// at its end, it would be claimed once more by a clock that is a moment behind.
		if own != nil && !own.Booked {
			g.put(own)
		}
		return engine.Answer{At: time.UnixMicro(g.now + (a.ExpiresIn + time.Second).Microseconds())}
	default:
		return g.reserve(a, at, true)
	}
}

func (g *ledger) reserve(a *engine.Ask, at int64, booked bool) engine.Answer {
	g.insert(a.Channel, entry{at, a.JobID, booked})
	slot := &store.Reservation{JobID: a.JobID, Key: a.Key, Channel: a.Channel, At: time.UnixMicro(at), Booked: booked}
	return engine.Answer{Admitted: !booked, At: slot.At, Reserve: slot}
}

// put gives a job its place back.
func (g *ledger) put(own *store.Reservation) {
	if own != nil {
		g.insert(own.Channel, entry{own.At.UnixMicro(), own.JobID, own.Booked})
	}
}

// stands tells in how many windows an admission still stands.
func (g *ledger) stands(own *store.Reservation) (n int) {
	for _, i := range g.counting(own.Channel) {
		if own.At.UnixMicro() > g.now-g.lines[i].window {
			n++
		}
	}
	return n
}

// counting lists the rules that count channel.
func (g *ledger) counting(channel string) []int {
	var rules []int
	for i := range g.lines {
		if g.lines[i].counts(channel) {
			rules = append(rules, i)
		}
	}
	return rules
}

// moment is when a job's turn comes; up to now, it may go. The job's own reservation, if it has one, has been taken out.
//
// One without a place takes the first moment at which nobody's booking is broken. One that booked, or was admitted and
// could not start, goes as soon as there is room behind what was admitted and who came before; whoever booked later gives
// way, and is asked again in its own turn. So when a line is late, each job in it books once more, and in the old order.
func (g *ledger) moment(a *engine.Ask, own *store.Reservation) int64 {
	from := g.opens(a.Channel)
	if own != nil && (own.Booked || a.Unstarted) {
		before := func(e entry) bool { // ids are given out in order
			return !e.booked || (own.Booked && bytes.Compare(e.job[:], a.JobID[:]) < 0)
		}
		kept := own.At.UnixMicro()
		age := time.Duration(g.now-kept) * time.Microsecond
		if own.Booked && from <= g.now && age >= 0 && age+a.Takes <= admissionSlack-startSlack {
			if at, ok := g.turn(a.Channel, kept, before); ok && at == kept {
				return kept
			}
		}
		if at, ok := g.turn(a.Channel, from, before); ok {
			return at
		}
	}
	at := g.earliest(a.Channel, max(from, g.from[a.Channel]))
	g.from[a.Channel] = at
	return at
}

// opens is the first moment from now on at which fewer than max admissions stand in each window. No job goes before it.
func (g *ledger) opens(channel string) int64 {
	at := g.now
	for _, i := range g.counting(channel) {
		at = max(at, g.lines[i].opens())
	}
	return at
}

func (l *line) opens() int64 {
	admitted := 0
	for _, e := range slices.Backward(l.entries) {
		if e.booked {
			continue
		}
		if admitted++; admitted == l.max {
			return e.at + l.window
		}
	}
	return math.MinInt64
}

// turn is the first moment from at on before which, within each window, there are fewer than max of those that counts
// chooses. It tells false if that is not known.
func (g *ledger) turn(channel string, at int64, counts func(entry) bool) (int64, bool) {
	rules := g.counting(channel)
	for settled := false; !settled; {
		settled = true
		for _, i := range rules {
			l := &g.lines[i]
			if next := l.turn(at, counts); next > at {
				at, settled = next, false
			}
			if at > l.known {
				return 0, false
			}
		}
	}
	return at, true
}

func (l *line) turn(at int64, counts func(entry) bool) int64 {
	n := 0
	for _, e := range slices.Backward(l.entries[:l.place(at)]) {
		if e.at <= at-l.window {
			break
		}
		if !counts(e) {
			continue
		}
		if n++; n == l.max {
			return e.at + l.window
		}
	}
	return at
}

// earliest is the first moment from at on at which one more entry breaks no rule, or, if what is known does not tell, a
// moment behind everything.
func (g *ledger) earliest(channel string, at int64) int64 {
	rules := g.counting(channel)
	for settled := false; !settled; {
		settled = true
		for _, i := range rules {
			l := &g.lines[i]
			next, known := l.next(at)
			if !known {
				next = l.end(next)
			}
			if next > at {
				at, settled = next, false
			}
		}
	}
	return at
}

// next is the first moment from at on at which one more entry keeps any max+1 in a row at least a window apart. It stops
// and tells false where the line is not known well enough to say.
func (l *line) next(at int64) (int64, bool) {
	for at <= l.known-l.window {
		p := l.place(at)
		moved := at
		for i := max(0, p-l.max); i <= p && i+l.max <= len(l.entries); i++ {
			first, last := l.span(p, at, i)
			if last-first >= l.window {
				continue
			}
			if i+l.max == p {
				moved = first + l.window // the new one is the last of them: it has to wait for the first to leave
			} else {
				moved = last // it stands among bookings that are full: past them
			}
			break
		}
		if moved == at {
			return at, true
		}
		at = moved
	}
	return at, false
}

// span is the first and the last of max+1 entries in a row, from i on, with the new one at place p.
func (l *line) span(p int, at int64, i int) (first, last int64) {
	value := func(k int) int64 {
		switch {
		case k < p:
			return l.entries[k].at
		case k == p:
			return at
		default:
			return l.entries[k-1].at
		}
	}
	return value(i), value(i + l.max)
}

// end is the first moment from at on that lies behind every entry and keeps the rule.
func (l *line) end(at int64) int64 {
	n := len(l.entries)
	if n > 0 {
		at = max(at, l.entries[n-1].at)
	}
	if n >= l.max {
		at = max(at, l.entries[n-l.max].at+l.window)
	}
	return at
}
