package timing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/timing"
)

func TestDatabaseBackoffIsBoundedAndNeverZero(t *testing.T) {
	t.Parallel()
	for n := 1; n < 1000; n++ {
		require.GreaterOrEqual(t, timing.Backoff(n, 0), 50*time.Millisecond)
		require.LessOrEqual(t, timing.Backoff(n, 1), 5*time.Second)
	}
}

func TestFullLooksTakeATenthOfTheTimeAtMost(t *testing.T) {
	t.Parallel()
	var f timing.FullLook
	require.True(t, f.Due(time.Now(), false), "the first claim is one")
	f.Took(time.Now().Add(-2 * time.Second)) // 2 s, over an index full of dead entries
	now := time.Now()
	require.False(t, f.Due(now.Add(17*time.Second), true))
	require.True(t, f.Due(now.Add(19*time.Second), true))
	f.Took(time.Now())
	now = time.Now()
	require.True(t, f.Due(now.Add(time.Millisecond), true), "after a short claim, at once")
	require.False(t, f.Due(now.Add(900*time.Millisecond), false))
	require.True(t, f.Due(now.Add(1100*time.Millisecond), false), "and every second")
}
