package notifyq_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/store"
)

// claimAll claims what is due, under one token.
func (b *workerBundle) claimAll(n int) ([]store.Claimed, uuid.UUID) {
	b.t.Helper()
	token := uuid.New()
	probes := []store.Probe{{Priority: 3, Limit: n}, {Priority: 2, Limit: n}, {Priority: 1, Limit: n}}
	jobs, err := b.store.Claim(b.t.Context(), b.Pool, store.Lease{Worker: "w", Token: token, For: time.Minute},
		store.Lane{Channel: "EMAIL", Limit: n, Probes: probes})
	require.NoError(b.t, err)
	require.Len(b.t, jobs, n)
	return jobs, token
}

// Where a claim left its row is only a hint: whatever stands there, the right row is ended, and no other.
func TestRecordFindsRowsThatAreNotWhereTheirClaimsLeftThem(t *testing.T) {
	t.Parallel()
	for name, mislead := range map[string]func(b *workerBundle, jobs []store.Claimed){
		"another job of the claim is there": func(_ *workerBundle, jobs []store.Claimed) { jobs[0].Place = jobs[3].Place },
		"nothing is there":                  func(_ *workerBundle, jobs []store.Claimed) { jobs[0].Place.BlockNumber = 1 << 30 },
		"it is not known":                   func(_ *workerBundle, jobs []store.Claimed) { jobs[0].Place = store.Place{} },
		"all have changed places": func(_ *workerBundle, jobs []store.Claimed) {
			jobs[0].Place, jobs[1].Place = jobs[1].Place, jobs[0].Place
		},
		"the row was written again": func(b *workerBundle, jobs []store.Claimed) {
			b.exec(`update @notification_queue set leased_until = leased_until + interval '1 second' where id = '` + jobs[0].ID.String() + `'`)
		},
		"the table was rewritten": func(b *workerBundle, jobs []store.Claimed) {
			b.exec(`vacuum full @notification_queue`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newWorkerBundle(t)
			b.scheduleMany(4)
			jobs, token := b.claimAll(4)
			mislead(b, jobs)
			batch := &store.Batch{Worker: "w", Events: true}
			want := make([]uuid.UUID, 0, 2)
			for _, j := range jobs[:2] {
				batch.Sent = append(batch.Sent, store.Sent{ID: j.ID, Token: token, Place: j.Place, ProviderID: "p-" + j.ID.String()})
				want = append(want, j.ID)
			}
			done, err := b.store.Record(t.Context(), b.Pool, batch)
			require.NoError(t, err)
			require.ElementsMatch(t, want, done)
			require.Equal(t, 2, one[int](b, `select count(*)::int from @notification_outcomes where provider_id = 'p-' || id`))
			require.Equal(t, 2, one[int](b, `select count(*)::int from @notification_queue where status = 1`), "the others are still held")
			again, err := b.store.Record(t.Context(), b.Pool, batch)
			require.NoError(t, err)
			require.Empty(t, again)
		})
	}
}

// A job whose place is known and wrong, beside one whose place is unknown: the one that is found by id first is not taken
// for the other.
func TestRecordCountsThoseFoundByPlaceApart(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	b.scheduleMany(3)
	jobs, token := b.claimAll(3)
	jobs[0].Place.BlockNumber = 1 << 30
	jobs[2].Place = store.Place{}
	batch := &store.Batch{Worker: "w"}
	for _, j := range jobs {
		batch.Sent = append(batch.Sent, store.Sent{ID: j.ID, Token: token, Place: j.Place})
	}
	done, err := b.store.Record(t.Context(), b.Pool, batch)
	require.NoError(t, err)
	require.Len(t, done, 3)
}

func TestRecordByPlaceIsFencedByTheToken(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	b.scheduleMany(2)
	jobs, token := b.claimAll(2)
	done, err := b.store.Record(t.Context(), b.Pool, &store.Batch{Worker: "w", Sent: []store.Sent{
		{ID: jobs[0].ID, Token: uuid.New(), Place: jobs[0].Place}, {ID: jobs[1].ID, Token: token, Place: jobs[1].Place},
	}})
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{jobs[1].ID}, done)
	require.Equal(t, 1, one[int](b, `select count(*)::int from @notification_queue`))
}

// What was written by place before the second statement failed is not lost, and what it was to write is tried again.
func TestRecordThatFailsInItsSecondPartTellsSo(t *testing.T) {
	t.Parallel()
	b := newWorkerBundle(t)
	b.scheduleMany(2)
	jobs, token := b.claimAll(2)
	b.exec(`update @notification_queue set leased_until = leased_until + interval '1 second' where id = '` + jobs[0].ID.String() + `'`)
	release := b.blockRecords(jobs[0].ID)
	batch := &store.Batch{Worker: "w"}
	for _, j := range jobs {
		batch.Sent = append(batch.Sent, store.Sent{ID: j.ID, Token: token, Place: j.Place})
	}
	_, err := b.store.Record(t.Context(), b.Pool, batch)
	require.True(t, store.IsRowError(err), "%v", err)
	require.True(t, store.InPart(err))
	release()
	done, err := b.store.Record(t.Context(), b.Pool, batch)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{jobs[0].ID}, done)
	require.Equal(t, 2, one[int](b, `select count(*)::int from @notification_outcomes`))
}
