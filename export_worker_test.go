package notifyq

import "time"

// What the tests of the worker see of the inside.

// WithFirstPause shortens the first pause of a misconfigured provider.
func (cfg WorkerConfig) WithFirstPause(d time.Duration) WorkerConfig {
	cfg.firstPause = d
	return cfg
}

// NextStatus is nextStatus.
func NextStatus(permanent bool, attempt, maxAttempts int) Status {
	return nextStatus(permanent, attempt, maxAttempts)
}

// Statuses lists every state in the order of its number.
func Statuses() []Status { return statuses[:] }

// Number is how s is stored.
func (s Status) Number() (int16, bool) { return s.number() }

// StatusFromNumber is the reverse of Number.
func StatusFromNumber(n int16) Status { return statusFromNumber(n) }

// WorkersMay and OperatorsMay tell whether a table of transitions allows from → to.
func WorkersMay(from, to Status) bool { return allows(automaticTransitions, from, to) }

// OperatorsMay is the same for what a person may ask for.
func OperatorsMay(from, to Status) bool { return allows(operatorTransitions, from, to) }

// allows goes through sourcesOf, which is what the guards in SQL are made of.
func allows(table map[Status][]Status, from, to Status) bool {
	number, _ := from.number()
	for _, source := range sourcesOf(table, to) {
		if source == number {
			return true
		}
	}
	return false
}
