package timing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAlarmRingsAtTheNearestTimes(t *testing.T) {
	t.Parallel()
	var a Alarm
	now := time.Now()
	require.Nil(t, a.Ring())
	a.Set(time.Time{})
	a.Set(now.Add(2 * alarmHorizon))
	require.Empty(t, a.times)
	for i := 3 * alarmsKept; i > 0; i-- {
		a.Set(now.Add(time.Duration(i) * 10 * time.Millisecond))
	}
	require.Len(t, a.times, alarmsKept)
	require.Equal(t, now.Add(10*time.Millisecond), a.times[0], "the nearest are kept")
	a.Set(a.times[0].Add(alarmGrain / 2))
	require.Len(t, a.times, alarmsKept, "near another one it is not needed")
	<-a.Ring()
	a.Rang(now.Add(20 * time.Millisecond))
	require.Equal(t, now.Add(30*time.Millisecond), a.times[0])
}
