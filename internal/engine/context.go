package engine

import (
	"context"
	"sync"
	"time"
)

// deliveryContext is context.WithDeadline for calls that mostly end without having looked at it: the timer and the entry
// in the parent are made when somebody asks for Done, which saves a tenth of what a job costs in Go.
type deliveryContext struct {
	parent   context.Context
	deadline time.Time

	mu     sync.Mutex
	inner  context.Context // nil until somebody asked for Done
	cancel context.CancelFunc
	ended  bool
}

func newDeliveryContext(parent context.Context, deadline time.Time) *deliveryContext {
	return &deliveryContext{parent: parent, deadline: deadline}
}

func (c *deliveryContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *deliveryContext) Done() <-chan struct{} { return c.real().Done() }

func (c *deliveryContext) Err() error { return c.real().Err() }

// Value goes through the real context, once there is one, so that the context package knows its own and needs no goroutine
// for a child.
func (c *deliveryContext) Value(key any) any {
	c.mu.Lock()
	inner := c.inner
	c.mu.Unlock()
	if inner != nil {
		return inner.Value(key)
	}
	return c.parent.Value(key)
}

func (c *deliveryContext) real() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(c.parent, c.deadline)
		if c.ended {
			c.cancel()
		}
	}
	return c.inner
}

// end cancels it.
func (c *deliveryContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}
