package notifyq

import (
	"fmt"
	"time"
)

// Defaults of RetryPolicy.
const (
	DefaultBaseRetryDelay = time.Second
	DefaultMaxRetryDelay  = 5 * time.Minute
)

// RetryPolicy says how long a job waits after an attempt that may be repeated: exponential backoff with equal jitter,
// capped. How often it is tried is the job's own max_attempts, not a matter of the worker.
type RetryPolicy struct {
	// BaseDelay is the full delay after the first attempt; each further attempt doubles it. Default 1 s; at least 1 ms.
	BaseDelay time.Duration
	// MaxDelay caps the doubled delay. Default 5 min; at least BaseDelay, at most 24 h.
	MaxDelay time.Duration
}

// Delay is how long to wait after the given attempt (1 is the first): d/2 plus a random part of d/2, where d is
// BaseDelay·2^(attempt−1) capped at MaxDelay. Half of d is kept so that a delay never collapses to nothing, and half is
// random so that jobs which failed together do not return together. random is in [0, 1).
func (p RetryPolicy) Delay(attempt int, random float64) time.Duration {
	d := p.BaseDelay
	for i := 1; i < attempt && d < p.MaxDelay; i++ {
		d *= 2 // at most once past MaxDelay, which is 24 h: it can't overflow
	}
	d = min(d, p.MaxDelay)
	return d/2 + time.Duration(random*float64(d-d/2))
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.BaseDelay == 0 {
		p.BaseDelay = DefaultBaseRetryDelay
	}
	if p.MaxDelay == 0 {
		p.MaxDelay = max(DefaultMaxRetryDelay, p.BaseDelay)
	}
	return p
}

func (p RetryPolicy) validate() error {
	if p.BaseDelay < time.Millisecond {
		return invalid("Retry.BaseDelay", "must be at least 1ms")
	}
	if p.MaxDelay < p.BaseDelay || p.MaxDelay > 24*time.Hour {
		return invalid("Retry.MaxDelay", fmt.Sprintf("must be between BaseDelay (%v) and 24h", p.BaseDelay))
	}
	return nil
}

// nextStatus decides what an attempt that was not accepted leads to: a permanent refusal is FAILED whatever is left of
// the budget, anything else is tried again while attempts are left and DEAD_LETTERED after that.
func nextStatus(permanent bool, attempt, maxAttempts int) Status {
	switch {
	case permanent:
		return StatusFailed
	case attempt < maxAttempts:
		return StatusPending
	default:
		return StatusDeadLettered
	}
}
