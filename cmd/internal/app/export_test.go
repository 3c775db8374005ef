package app

import "context"

// Run is what Main does, without signals.
func (p Process) Run(ctx context.Context) int { return p.main(ctx) }
