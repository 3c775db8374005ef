package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/notifyq/notifyq"
)

// receiver is a customer's webhook endpoint: it checks signatures and tells repeated events by their ids.
type receiver struct {
	t       *testing.T
	url     string
	secrets []string // of the sender, the newest first; the receiver knows the last one only

	mu     sync.Mutex
	events []event // in the order of their first arrival
	fails  int     // what all requests are answered, if not 0
	holds  chan struct{}
}

// event is one as it arrived first.
type event struct {
	EventID, JobID, Status string
	AttemptCount           int
	Timestamp              time.Time
	body                   string
	times                  int // how often it arrived
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, secrets: []string{secretOf("new"), secretOf("old")}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL + "/hook?customer=1"
	return r
}

func secretOf(word string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(word, 12)))
}

// settings let workers send to it.
func (r *receiver) settings() []string {
	return []string{
		"WEBHOOK_URL=" + r.url, "WEBHOOK_SECRET=" + strings.Join(r.secrets, ","), "WEBHOOK_ALLOW_CIDRS=127.0.0.0/8",
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	id, err := notifyq.VerifyWebhook(request.Header, body, r.secrets[1:], 0)
	if err != nil {
		r.t.Errorf("an event's signature: %v", err)
	}
	if plain := request.Header.Get("X-Webhook-Event-Id"); plain != id {
		r.t.Errorf("the header has the id %q, what is signed %q", plain, id)
	}
	status, hold := r.take(id, body)
	if hold != nil {
		<-hold
	}
	w.WriteHeader(status)
}

func (r *receiver) take(id string, body []byte) (status int, hold <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status = http.StatusOK
	if r.fails != 0 {
		status = r.fails
	}
	for i := range r.events {
		if e := &r.events[i]; e.EventID == id {
			e.times++
			if e.body != string(body) {
				r.t.Errorf("event %s was %s, and now is %s", id, e.body, body)
			}
			return status, r.holds
		}
	}
	e := event{body: string(body), times: 1}
	if err := json.Unmarshal(body, &e); err != nil || e.EventID != id {
		r.t.Errorf("an event that is none: %s", body)
	}
	r.events = append(r.events, e)
	return status, r.holds
}

// fail says what requests are answered; 0 is success again.
func (r *receiver) fail(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = status
}

// hold keeps requests waiting until the function that it returns is called.
func (r *receiver) hold() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hold := make(chan struct{})
	r.holds = hold
	release = sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.holds = nil
		close(hold)
	})
	r.t.Cleanup(release)
	return release
}

// of is what arrived about a job.
func (r *receiver) of(jobID string) (events []event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.JobID == jobID {
			events = append(events, e)
		}
	}
	return events
}

// awaits returns the events about a job when there are so many.
func (r *receiver) awaits(jobID string, count int) (events []event) {
	r.t.Helper()
	until(r.t, "events of job "+jobID+" are received", func() bool {
		events = r.of(jobID)
		return len(events) >= count
	})
	return events
}
