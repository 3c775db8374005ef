package notifyqtest

import (
	"testing"

	"github.com/notifyq/notifyq"
)

// Behaviour is how the receiver of a PublisherHarness treats what it gets.
type Behaviour int

const (
	// Accepts takes events and acknowledges them. A harness begins with it.
	Accepts Behaviour = iota
	// Rejects answers that it does not want them.
	Rejects
	// Silent takes events and never acknowledges them.
	Silent
	// Away can't be reached: connections are refused, and those that exist are cut.
	Away
)

func (b Behaviour) String() string {
	switch b {
	case Accepts:
		return "accepts"
	case Rejects:
		return "rejects"
	case Silent:
		return "silent"
	case Away:
		return "away"
	}
	return "unknown"
}

// PublisherHarness is a publisher and the receiver it sends to. The receiver should be a real one, over a real
// connection: what goes wrong goes wrong there.
type PublisherHarness interface {
	// Publisher returns the same one every time. It should give up a dead connection, and try a new one, within a few
	// seconds.
	Publisher() notifyq.Publisher
	// Behave changes the receiver from now on. The new behaviour holds when it returns. What happened under the old one
	// is not undone: an event that met a Silent receiver may be acknowledged later or never.
	Behave(Behaviour)
	// Received is what the receiver accepted so far, in order. Repeats are included, unless the receiver itself drops
	// them by their id. ID and Body at least are filled in. What it took while Silent may be there or not.
	Received() []notifyq.Event
}

// TestPublisher proves that a publisher keeps the contract of notifyq.Publisher, and of notifyq.EndpointPublisher if it
// is one. Each promise is a subtest with a harness of its own; what open starts must end with the t that it is given,
// goroutines included. The whole takes a few seconds. It is best run with -race: half of the contract is about
// concurrency.
//
//	func TestContract(t *testing.T) {
//		notifyqtest.TestPublisher(t, func(t *testing.T) notifyqtest.PublisherHarness { return newHarness(t) })
//	}
//
// It proves that
//
//   - an accepted event arrives with its id and its exact bytes, on every attempt, and Wait returns nil only then;
//   - Start does not wait for the acknowledgement, and Wait ends with its context, leaving the outcome unknown;
//   - a refusal is marked by notifyq.Rejected, and nothing is sent under a context that has ended, which is marked by
//     notifyq.NotSent;
//   - a receiver that is away or goes away leads to an error in time, never to nil, and does not have to come back to
//     another publisher;
//   - a hundred events at once arrive once each;
//   - topics, keys and bodies at their worst do not panic or hang, and do no harm to the events behind them;
//   - no error repeats an event's body or key, and Body is neither changed nor kept;
//   - no goroutine is left.
func TestPublisher(t *testing.T, open func(t *testing.T) PublisherHarness) {
	for _, check := range publisherChecks() {
		passed := false
		left := withoutLeaks(func() {
			passed = t.Run(check.name, func(t *testing.T) {
				if err := check.run(t.Context(), open(t), patient()); err != nil {
					t.Error(err)
				}
			})
		})
		// A check that fails leaves calls behind that never return; they are not news.
		if passed && left != "" {
			t.Errorf("%s: goroutines are left:\n%s", check.name, left)
		}
	}
}
