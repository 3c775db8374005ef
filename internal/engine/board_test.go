package engine

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/timing"
)

func boardOf(concurrency, batch int, lanes ...LaneConfig) *board {
	for i := range lanes {
		lanes[i].Concurrency = max(lanes[i].Concurrency, concurrency)
		lanes[i].Timeout = time.Second
	}
	return newBoard(Config{
		Lanes: lanes, Concurrency: concurrency, BatchSize: batch, Lease: time.Minute,
		FirstPause: time.Second, MaxPause: 4 * time.Second,
	})
}

func jobOf(channel string, priority int16) *Job {
	j := &Job{claimedAt: time.Now(), leaseFrom: time.Now(), leaseFor: time.Minute}
	j.ID, j.Channel, j.Priority = uuid.New(), channel, priority
	return j
}

func TestHighPriorityOvertakesWhatWaitsInMemory(t *testing.T) {
	t.Parallel()
	b := boardOf(1, 10, LaneConfig{Channel: "A"}, LaneConfig{Channel: "B"})
	low, normal, high := jobOf("A", 1), jobOf("B", 2), jobOf("A", 3)
	b.add([]*Job{low, normal}, time.Now())
	b.add([]*Job{high}, time.Now())
	var got []*Job
	for j, _ := b.next(time.Now()); j != nil; j, _ = b.finish(j, time.Now()) {
		got = append(got, j)
	}
	require.Equal(t, []*Job{high, normal, low}, got)
}

func TestChannelsOfOnePriorityTakeTurns(t *testing.T) {
	t.Parallel()
	b := boardOf(1, 20, LaneConfig{Channel: "A"}, LaneConfig{Channel: "B"})
	for range 3 {
		b.add([]*Job{jobOf("A", 2)}, time.Now())
	}
	for range 3 {
		b.add([]*Job{jobOf("B", 2)}, time.Now())
	}
	var got string
	for j, _ := b.next(time.Now()); j != nil; j, _ = b.finish(j, time.Now()) {
		got += j.Channel
	}
	require.Equal(t, "ABABAB", got)
}

// No channel takes all of the batch or all of the slots, however many there are.
func TestChannelLeavesRoomForTheOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lanes, concurrency, batch int }{{1, 10, 100}, {2, 10, 100}, {3, 4, 20}, {5, 5, 5}, {4, 1, 1}} {
		var lanes []LaneConfig
		for i := range c.lanes {
			lanes = append(lanes, LaneConfig{Channel: string(rune('A' + i))})
		}
		b := boardOf(c.concurrency, c.batch, lanes...)
		for _, l := range b.lanes {
			if c.concurrency >= c.lanes {
				require.Equal(t, 1, l.share.runLeast)
			}
			if c.batch >= c.lanes {
				require.Positive(t, l.share.holdLeast)
				require.LessOrEqual(t, c.lanes*l.share.holdLeast, c.batch)
			}
		}
	}
}

func TestJobsOfAShutChannelAreRefused(t *testing.T) {
	t.Parallel()
	b := boardOf(1, 10, LaneConfig{Channel: "A"}, LaneConfig{Channel: "B"})
	now := time.Now()
	_, d := b.misconfigured(b.byChannel["A"], now, 1)
	require.Equal(t, time.Second, d)
	a, other := jobOf("A", 2), jobOf("B", 2)
	require.Equal(t, []*Job{a}, b.add([]*Job{a, other}, now))
	j, _ := b.next(now)
	require.Equal(t, other, j)
	require.Len(t, b.jobs, 2, "its release is still to be written")
	b.recorded([]outcome{{job: a}})
	require.Zero(t, b.byChannel["A"].held)
	require.Empty(t, b.add([]*Job{jobOf("A", 2)}, now.Add(d)), "the pause is over")
}

func TestPausesDoubleUpToTheirBound(t *testing.T) {
	t.Parallel()
	p := pause{first: time.Second, max: 5 * time.Second}
	now := time.Now()
	for _, want := range []time.Duration{1, 2, 4, 5, 5} {
		for _, random := range []float64{0, 1} {
			again := p
			d := again.begin(now, random)
			require.Equal(t, time.Duration(float64(want*time.Second)*(1+random)/2), d)
			require.Zero(t, again.begin(now, random), "one is on")
		}
		p.begin(now, 1)
		now = p.until
	}
	p = pause{first: 5 * time.Second, max: 5 * time.Minute, count: 1 << 30}
	require.Equal(t, 5*time.Minute, p.begin(now, 1))
}

// C33, C38: the monotonic clock may stand still while the machine sleeps, the wall clock may be set back.
func TestElapsedTakesTheClockThatHasRunFurther(t *testing.T) {
	t.Parallel()
	from := time.Now()
	slept := from.Round(0).Add(time.Hour) // without a monotonic part: the wall says an hour
	require.Equal(t, time.Hour, timing.Elapsed(from, slept))
	to := from.Add(time.Minute)
	require.Equal(t, time.Minute, timing.Elapsed(from, to))
	j := jobOf("A", 2)
	j.lane = &lane{needLease: 30 * time.Second}
	require.False(t, j.needsStarter(false, time.Now()))
	require.True(t, j.needsStarter(false, slept), "after a sleep the lease is not to be trusted")
}

func TestJobThatMayNotBeRepeatedIsMarkedBeforeItStarts(t *testing.T) {
	t.Parallel()
	j := jobOf("A", 2)
	j.lane = &lane{}
	j.Park = true
	require.True(t, j.needsStarter(false, time.Now()))
	j.marked = true
	require.False(t, j.needsStarter(false, time.Now()))
	require.True(t, j.needsStarter(true, time.Now()), "a rate limit is always asked")
}

func TestOnlyOneMaySettleAJob(t *testing.T) {
	t.Parallel()
	j := jobOf("A", 2)
	require.True(t, j.settle())
	require.False(t, j.settle())
}

func TestFifoGivesBackWhatItGot(t *testing.T) {
	t.Parallel()
	var f fifo
	a, b, c := jobOf("A", 2), jobOf("A", 2), jobOf("A", 2)
	for _, j := range []*Job{a, b, c} {
		f.push(j)
	}
	require.Equal(t, a, f.pop())
	require.True(t, f.remove(b))
	require.False(t, f.remove(a), "it is out already")
	require.Equal(t, 1, f.len())
	require.Equal(t, c, f.pop())
	require.Zero(t, f.len())
	require.Zero(t, f.head, "and the memory too")
}

func TestPacerSpacesStartsAndSavesNextToNothingUp(t *testing.T) {
	t.Parallel()
	p := pacer{perSecond: 10}
	now := time.Now()
	require.True(t, p.ready(now))
	p.take(now)
	require.False(t, p.ready(now.Add(99*time.Millisecond)), "nor does the first start bring the second forward")
	require.True(t, p.ready(now.Add(100*time.Millisecond)))
	p.take(now.Add(115 * time.Millisecond))
	require.True(t, p.ready(now.Add(200*time.Millisecond)), "a timer that is late does not move what follows")
	now = now.Add(time.Hour)
	p.take(now)
	require.False(t, p.ready(now.Add(99*time.Millisecond)), "an idle hour does not allow a burst")
	p.giveBack()
	require.True(t, p.ready(now), "what did not start does not count")
}
