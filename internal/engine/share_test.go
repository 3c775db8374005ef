package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With fewer places than channels nothing can be set aside, but each has its turn.
func TestChannelsTakeTurnsWhereThereIsNoPlaceForAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ batch, lanes int }{{1, 2}, {1, 3}, {2, 3}, {2, 5}, {4, 5}, {5, 5}, {4, 9}} {
		t.Run(fmt.Sprintf("%d of %d", c.batch, c.lanes), func(t *testing.T) {
			t.Parallel()
			var lanes []LaneConfig
			for i := range c.lanes {
				lanes = append(lanes, LaneConfig{Channel: fmt.Sprintf("C%d", i), Concurrency: c.batch})
			}
			b := boardOf(c.batch, c.batch, lanes...)
			e := &Engine{board: b}
			claimer := &claimer{e: e}
			claimed := make(map[string]int)
			now := time.Now()
			for range 200 {
				now = now.Add(time.Minute)
				caps := b.room(now)
				var jobs []*Job
				for l, n := range caps {
					claimed[l.Channel] += n
					for range n {
						jobs = append(jobs, jobOf(l.Channel, 2))
					}
				}
				claimer.took(jobs, taking{caps: caps, reserved: map[*lane]int{}})
				b.add(jobs, now)
				for j, _ := b.next(now); j != nil; {
					next, _ := b.finish(j, now)
					b.recorded([]outcome{{job: j}})
					j = next
				}
			}
			for _, l := range lanes {
				require.Greater(t, claimed[l.Channel], 200*c.batch/c.lanes/2, "%v", claimed)
			}
		})
	}
}
