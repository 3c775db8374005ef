package grouping

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// recorder runs groups, each as soon as it may, and remembers what went together.
type recorder struct {
	Group[int, int]
	mu     sync.Mutex
	groups [][]int
	gate   chan struct{}
	apart  bool
}

func newRecorder() *recorder {
	r := &recorder{gate: make(chan struct{})}
	r.Run = r.run
	return r
}

func (r *recorder) run(ctx context.Context, calls []*Call[int, int]) bool {
	var asked []int
	for _, call := range calls {
		asked = append(asked, call.Ask)
	}
	slices.Sort(asked)
	r.mu.Lock()
	r.groups = append(r.groups, asked)
	r.mu.Unlock()
	if r.apart && len(calls) > 1 {
		return false
	}
	select {
	case <-r.gate:
	case <-ctx.Done():
	}
	for _, call := range calls {
		call.Answer, call.Err = 10*call.Ask, ctx.Err()
	}
	return true
}

// start makes the calls in order, each in a goroutine, and returns when all that can happen has.
func (r *recorder) start(ctx context.Context, asks ...int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for _, ask := range asks {
		wg.Go(func() {
			answer, err := r.Do(ctx, ask)
			if err == nil && answer != 10*ask {
				panic("an answer of another call")
			}
		})
		synctest.Wait()
	}
	return &wg
}

func TestCallsThatComeWhileOthersRunGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		calls := r.start(t.Context(), 1, 2, 3, 4, 5)
		require.Equal(t, [][]int{{1}, {2}}, r.groups, "the first two go at once")
		r.gate <- struct{}{}
		synctest.Wait()
		require.Equal(t, [][]int{{1}, {2}, {3, 4, 5}}, r.groups)
		close(r.gate)
		calls.Wait()
		synctest.Wait()
		require.Zero(t, r.running)
		r.start(t.Context(), 6).Wait()
		require.Equal(t, []int{6}, r.groups[3], "and the next again at once")
	})
}

func TestGroupsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.Size = func(int) int { return maxSize/2 + 1 }
		calls := r.start(t.Context(), 1, 2, 3, 4)
		close(r.gate)
		calls.Wait()
		for _, group := range r.groups {
			require.Len(t, group, 1)
		}
		r.Size, r.gate, r.groups = nil, make(chan struct{}), nil
		synctest.Wait()
		many := make([]int, maxCalls+3)
		calls = r.start(t.Context(), many...)
		close(r.gate)
		calls.Wait()
		require.Len(t, r.groups[2], maxCalls)
		require.Len(t, r.groups, 4)
	})
}

func TestCallsThatCannotGoTogetherGoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		r.apart = true
		calls := r.start(t.Context(), 1, 2, 3, 4)
		close(r.gate)
		calls.Wait()
		require.ElementsMatch(t, [][]int{{1}, {2}, {3, 4}, {3}, {4}}, r.groups)
	})
}

func TestCallerMayLeaveAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		stay := r.start(t.Context(), 1, 2)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := r.start(ctx, 3)
		stay2 := r.start(t.Context(), 4)
		cancel()
		waiting.Wait()
		_, err := r.Do(ctx, 5)
		require.ErrorIs(t, err, context.Canceled)
		close(r.gate)
		stay.Wait()
		stay2.Wait()
		require.Equal(t, [][]int{{1}, {2}, {4}}, r.groups, "who left before it began is not in it")
	})
}

func TestGroupEndsWithItsLastCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		var left error
		r.Run = func(ctx context.Context, calls []*Call[int, int]) bool {
			<-ctx.Done()
			left = ctx.Err()
			return true
		}
		call := r.start(ctx, 1)
		cancel()
		call.Wait()
		synctest.Wait()
		require.True(t, errors.Is(left, context.Canceled))
	})
}
