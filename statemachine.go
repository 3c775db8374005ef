package notifyq

// Status is where a job stands in its life. The words are the ones of the view notification_jobs.
type Status string

// The states of a job. SENT, FAILED, DEAD_LETTERED and CANCELLED are terminal: nothing leaves them by itself.
const (
	StatusPending      Status = "PENDING"       // waiting for its due time, a retry or a rate-limit slot
	StatusProcessing   Status = "PROCESSING"    // claimed by one worker under a lease
	StatusSent         Status = "SENT"          // the provider accepted it
	StatusFailed       Status = "FAILED"        // the provider refused it for good, or it expired
	StatusDeadLettered Status = "DEAD_LETTERED" // its attempts are used up, or its outcome is unknown and must not be repeated
	StatusCancelled    Status = "CANCELLED"     // an operator withdrew it before it was claimed
)

// statuses is every state, in the order of the numbers that stand for them in the database.
var statuses = [...]Status{
	StatusPending, StatusProcessing, StatusSent, StatusFailed, StatusDeadLettered, StatusCancelled,
}

// automaticTransitions is what workers may do. A retry, a rate-limit deferral, a release and a recovery are all
// PROCESSING to PENDING; PENDING to FAILED is a job that expired while it waited.
var automaticTransitions = map[Status][]Status{
	StatusPending:    {StatusProcessing, StatusFailed},
	StatusProcessing: {StatusPending, StatusSent, StatusFailed, StatusDeadLettered},
}

// operatorTransitions is what a person may ask for. It is a table of its own so that a new operator action can never
// widen what workers do by themselves.
var operatorTransitions = map[Status][]Status{
	StatusPending:      {StatusCancelled},
	StatusFailed:       {StatusPending},
	StatusDeadLettered: {StatusPending},
}

// Terminal reports whether nothing leaves s by itself.
func (s Status) Terminal() bool {
	return s.valid() && len(automaticTransitions[s]) == 0
}

func (s Status) valid() bool {
	_, ok := s.number()
	return ok
}

// number is how s is stored.
func (s Status) number() (int16, bool) {
	for i, known := range statuses {
		if s == known {
			return int16(i), true
		}
	}
	return 0, false
}

func statusFromNumber(n int16) Status {
	if n < 0 || int(n) >= len(statuses) {
		return ""
	}
	return statuses[n]
}

// sourcesOf lists, as stored numbers, the states from which table allows to reach target: the guard that the SQL of
// that transition carries.
func sourcesOf(table map[Status][]Status, target Status) []int16 {
	var sources []int16
	for i, from := range statuses {
		for _, to := range table[from] {
			if to == target {
				sources = append(sources, int16(i))
			}
		}
	}
	return sources
}
