package engine

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
)

// newcomers admits jobs of recipients that have nothing in their windows in one round trip, without reading what they
// have: where most recipients get little, that is nearly every job, at half the price. Where it is not, the try is a waste,
// so after a poor one, or one that met a lock which somebody holds on to, it is left alone for a while.
type newcomers struct {
	s    *starter
	skip int // admissions to go without a try
}

// poorSkip is for how many admissions a try is left out after one that admitted less than a quarter, or found a lock taken.
const poorSkip = 8

// admit returns the jobs that were admitted, and those that have to be judged.
func (n *newcomers) admit(ctx context.Context, jobs []*Job) (admitted, rest []*Job, err error) {
	if n.skip > 0 {
		n.skip--
		return nil, jobs, nil
	}
	asked, locks := n.first(jobs)
	e := n.s.e
	window, lead := e.cfg.Limits.Newcomer(n.s.takes())
	ctx, cancel := e.call(ctx)
	defer cancel()
	sent := time.Now()
	ids, err := e.cfg.Store.AdmitNew(ctx, e.cfg.Pool, locks, asked, window, lead)
	switch {
	case store.IsBusy(err):
		n.skip = poorSkip     // whoever holds on to a lock would be waited for twice each time
		return nil, jobs, nil // judging finds out whose lock it is
	case err != nil:
		return nil, jobs, err
	}
	n.s.asked = sent
	if 4*len(ids) < len(jobs) {
		n.skip = poorSkip
	}
	let := make(map[uuid.UUID]struct{}, len(ids))
	for _, id := range ids {
		let[id] = struct{}{}
	}
	for _, j := range jobs {
		if _, ok := let[j.ID]; !ok {
			rest = append(rest, j)
			continue
		}
		j.admittedAt = sent.Add(lead)
		admitted = append(admitted, j)
	}
	return admitted, rest, nil
}

// first is the first job of each recipient: the others have to be judged in its light.
func (n *newcomers) first(jobs []*Job) (asked []store.Newcomer, locks []int64) {
	seen := make(map[uuid.UUID]struct{}, len(jobs))
	for _, j := range jobs {
		key := n.s.e.cfg.Limits.Key(j.Tenant, j.RecipientKey)
		if _, ok := seen[key]; ok {
			continue
		}
		seen[key] = struct{}{}
		asked = append(asked, store.Newcomer{JobID: j.ID, Key: key, Channel: j.Channel})
		locks = append(locks, lockOf(key))
	}
	slices.Sort(locks)
	return asked, slices.Compact(locks)
}
