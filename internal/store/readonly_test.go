package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// A former primary answers reads as ever. Every write to it tells that it is one, whichever of the two codes it gets.
func TestEveryWriteToAStandbyIsReadOnly(t *testing.T) {
	t.Parallel()
	server := dbtest.NewServer(t)
	db := server.New(t)
	s := New(db.Schema, Guards{Cancel: []int16{0}, Redrive: []int16{3, 4}})
	job := []NewJob{{
		Key: "k", Recipient: "r", RecipientKey: "r", Channel: "EMAIL", Payload: []byte("{}"), Fingerprint: []byte("f"),
		Priority: 2, MaxAttempts: 1,
	}}
	writes := map[string]func(ctx context.Context) error{
		"InsertCommitted": func(ctx context.Context) error {
			_, err := s.InsertCommitted(ctx, db.Pool, job, []int{0}, 0)
			return err
		},
		"Claim": func(ctx context.Context) error {
			_, err := s.Claim(ctx, db.Pool, Lease{"w", uuid.New(), time.Minute}, Lane{"EMAIL", 1, []Probe{{2, Mark{}, 1}}})
			return err
		},
		"InTx": func(ctx context.Context) error {
			return InTx(ctx, db.Pool, func(Querier) error { return nil })
		},
		"a statement of its own": func(ctx context.Context) error {
			_, err := db.Pool.Exec(ctx, "delete from "+db.Schema+".operations")
			return err
		},
	}
	server.Demote(t)
	db.Pool.Reset()
	for name, write := range writes {
		err := write(t.Context())
		require.True(t, IsReadOnly(err), "%s: %v", name, err)
		require.True(t, IsReadOnly(fmt.Errorf("wrapped: %w", err)))
		require.False(t, IsDataError(err) || IsRowError(err) || MayRepeat(err), name)
	}
	_, err := s.Jobs(t.Context(), db.Pool, nil, uuid.New())
	require.NoError(t, err, "it can be read")
	require.False(t, IsReadOnly(err))
	server.Promote(t)
	for name, write := range writes {
		require.NoError(t, write(t.Context()), name)
	}
}
