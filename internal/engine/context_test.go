package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDeliveryContextIsADeadlineContext(t *testing.T) {
	type key struct{}
	cause := errors.New("given up")
	synctest.Test(t, func(t *testing.T) {
		parent, endParent := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
		newOne := func() *deliveryContext { return newDeliveryContext(parent, time.Now().Add(time.Minute)) }

		ctx := newOne()
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		require.Equal(t, time.Minute, time.Until(deadline))
		require.Equal(t, "value", ctx.Value(key{}))
		require.NoError(t, ctx.Err())
		require.Equal(t, "value", ctx.Value(key{}), "with the real one, too")
		child, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		<-child.Done()
		require.ErrorIs(t, child.Err(), context.DeadlineExceeded)
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)

		ended, asked := newOne(), newOne()
		done := asked.Done()
		ended.end()
		asked.end()
		<-done
		<-ended.Done()
		require.ErrorIs(t, ended.Err(), context.Canceled, "asked for after its end")
		require.ErrorIs(t, asked.Err(), context.Canceled)

		late := newOne()
		late.Done()
		endParent(cause)
		<-late.Done()
		require.ErrorIs(t, context.Cause(late), cause)
		require.ErrorIs(t, context.Cause(newOne()), cause)
	})
}
