package notifyqtest

import (
	"context"
	"crypto/rand"
	"runtime/pprof"
	"strings"
	"time"
)

// leakTimeout is how long goroutines may take to end after a test. Servers and closed connections need a moment.
const leakTimeout = 10 * time.Second

// withoutLeaks runs f and returns the stacks of the goroutines that it started, directly or not, and that do not end.
// They are known by a profiler label, which goroutines inherit: unlike a count, it is not confused by what other tests
// do at the same time.
func withoutLeaks(f func()) string { return leaksWithin(leakTimeout, f) }

func leaksWithin(timeout time.Duration, f func()) string {
	mark := rand.Text()
	pprof.Do(context.Background(), pprof.Labels("notifyqtest", mark), func(context.Context) { f() })
	deadline := time.Now().Add(timeout)
	for {
		left := goroutinesOf(mark)
		if left == "" || time.Now().After(deadline) {
			return left
		}
		time.Sleep(pollEvery)
	}
}

// goroutinesOf is the part of the goroutine profile that bears the mark.
func goroutinesOf(mark string) string {
	var profile strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	var found []string
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, mark) {
			found = append(found, stack)
		}
	}
	return strings.Join(found, "\n\n")
}
