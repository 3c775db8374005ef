package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// gateway is the endpoint of PROVIDER=http. It takes everything unless it is told otherwise.
type gateway struct {
	t   *testing.T
	url string

	mu    sync.Mutex
	calls []delivery
	plans map[string][]int         // by recipient: what the next calls are answered
	fails int                      // what all calls are answered, if not 0
	holds map[string]chan struct{} // by recipient: closed when its calls may be answered
}

// delivery is one call.
type delivery struct {
	DeliveryKey, Recipient, Channel string
	Attempt                         int
	Payload                         json.RawMessage
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{t: t, plans: map[string][]int{}, holds: map[string]chan struct{}{}}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	g.url = server.URL
	return g
}

// settings let workers deliver to it.
func (g *gateway) settings() []string { return []string{"PROVIDER=http", "PROVIDER_URL=" + g.url} }

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var d delivery
	if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
		return // the worker was killed
	}
	if key := r.Header.Get("Idempotency-Key"); key != d.DeliveryKey || key == "" {
		g.t.Errorf("the header has the key %q, the body %q", key, d.DeliveryKey)
	}
	status, hold := g.take(d)
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"id": "gw-" + d.DeliveryKey, "code": "told_so"})
}

func (g *gateway) take(d delivery) (status int, hold <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, d)
	status = http.StatusOK
	if plan := g.plans[d.Recipient]; len(plan) > 0 {
		status, g.plans[d.Recipient] = plan[0], plan[1:]
	} else if g.fails != 0 {
		status = g.fails
	}
	return status, g.holds[d.Recipient]
}

// plan says what the next calls for a recipient are answered.
func (g *gateway) plan(recipient string, statuses ...int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.plans[recipient] = statuses
}

// fail says what all others are answered; 0 is success again.
func (g *gateway) fail(status int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fails = status
}

// hold keeps calls for a recipient waiting.
func (g *gateway) hold(recipient string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds[recipient] = make(chan struct{})
}

// release lets them, and those to come, have their answers.
func (g *gateway) release(recipient string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.holds[recipient])
	delete(g.holds, recipient)
}

// seen is every call for a recipient, in order. No recipient is all.
func (g *gateway) seen(recipient string) (calls []delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.calls {
		if recipient == "" || d.Recipient == recipient {
			calls = append(calls, d)
		}
	}
	return calls
}

// awaits returns when calls for a recipient have come.
func (g *gateway) awaits(recipient string, calls int) {
	g.t.Helper()
	until(g.t, "the gateway is called for "+recipient, func() bool { return len(g.seen(recipient)) >= calls })
}
