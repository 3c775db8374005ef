package notifyq

import (
	"context"
	"time"

	"github.com/notifyq/notifyq/internal/grouping"
	"github.com/notifyq/notifyq/internal/store"
)

// commits lets calls of Schedule that come at the same time share a transaction, since what a call costs is its commit.
// Each returns only when its notification is committed.
type commits = grouping.Group[store.NewJob, Scheduled]

// sharedLockWait is how long a shared transaction waits for somebody else's uncommitted key. Then its calls go one by one,
// so that only those wait that have to.
const sharedLockWait = 50 * time.Millisecond

func newCommits(c *Client) *commits {
	return &commits{Run: c.commitTogether, Size: func(job store.NewJob) int { return len(job.Payload) }}
}

// schedule stores one checked notification.
func (c *Client) schedule(ctx context.Context, job store.NewJob) (Scheduled, error) {
	answer, err := c.commits.Do(ctx, job)
	return answer, databaseError("schedule", err)
}

// commitTogether stores calls in one transaction. They can't share it if one's values are refused, or if its key is held
// by a transaction that is still open.
func (c *Client) commitTogether(ctx context.Context, calls []*grouping.Call[store.NewJob, Scheduled]) bool {
	b := &batch{c: c, answers: make([]Scheduled, len(calls))}
	for i, call := range calls {
		b.jobs, b.places = append(b.jobs, call.Ask), append(b.places, i)
	}
	lockWait := sharedLockWait
	if len(calls) == 1 {
		lockWait = 0
	}
	err := b.commit(ctx, lockWait)
	if err != nil && (store.IsDataError(err) || store.Code(err) == "55P03") && len(calls) > 1 {
		return false
	}
	if b.due {
		c.wakers.wake()
	}
	for i, call := range calls {
		call.Answer, call.Err = b.answers[i], err
		if err == nil {
			call.Err = call.Answer.Err
		}
	}
	return true
}
