package timing

import (
	"slices"
	"time"
)

// Alarm rings at the times it was set for. It keeps the nearest ones only: it shortens a wait that polling would end.
type Alarm struct {
	times []time.Time // ascending
	timer *time.Timer
}

// alarmsKept and alarmHorizon bound the memory of an alarm; alarmGrain is how close two times may be to count as one.
const (
	alarmsKept   = 256
	alarmHorizon = time.Hour
	alarmGrain   = time.Millisecond
)

// Set adds a time; zero, past the horizon or near another one is ignored.
func (a *Alarm) Set(t time.Time) {
	if t.IsZero() || time.Until(t) > alarmHorizon {
		return
	}
	i, found := slices.BinarySearchFunc(a.times, t, time.Time.Compare)
	if found || (i > 0 && t.Sub(a.times[i-1]) < alarmGrain) || (i < len(a.times) && a.times[i].Sub(t) < alarmGrain) {
		return
	}
	a.times = slices.Insert(a.times, i, t)
	a.times = a.times[:min(len(a.times), alarmsKept)]
}

// Ring is ready when the nearest time has come; nil, which never is, without one.
func (a *Alarm) Ring() <-chan time.Time {
	if len(a.times) == 0 {
		return nil
	}
	if a.timer == nil {
		a.timer = time.NewTimer(time.Until(a.times[0]))
	} else {
		a.timer.Reset(time.Until(a.times[0]))
	}
	return a.timer.C
}

// Rang forgets the times that have come.
func (a *Alarm) Rang(now time.Time) {
	i := 0
	for i < len(a.times) && !a.times[i].After(now) {
		i++
	}
	a.times = slices.Delete(a.times, 0, i)
}
