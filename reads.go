package notifyq

import (
	"context"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/grouping"
)

// reads lets calls of Get that come at the same time share a statement, whatever their tenants: each keeps to its own.
type reads = grouping.Group[uuid.UUID, Job]

func newReads(c *Client) *reads { return &reads{Run: c.readTogether} }

// readTogether answers each call with its job, or with ErrNotFound.
func (c *Client) readTogether(ctx context.Context, calls []*grouping.Call[uuid.UUID, Job]) bool {
	ids := make([]uuid.UUID, len(calls))
	for i, call := range calls {
		ids[i] = call.Ask
	}
	rows, err := c.store.Jobs(ctx, c.pool, nil, ids...)
	found := make(map[uuid.UUID]int, len(rows))
	for i := range rows {
		found[rows[i].ID] = i
	}
	for _, call := range calls {
		i, ok := found[call.Ask]
		switch {
		case err != nil:
			call.Err = err
		case !ok:
			call.Err = ErrNotFound
		default:
			call.Answer = jobFromRow(&rows[i])
		}
	}
	return true
}
