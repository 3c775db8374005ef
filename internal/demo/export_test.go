package demo

// Roll replaces the dice of the failure rate.
func (p *Provider) Roll(dice func() float64) { p.random = dice }
