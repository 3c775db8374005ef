package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// caller asks a process over HTTP, with an API key unless it is empty.
type caller struct {
	t    *testing.T
	base string
	key  string
	http *http.Client
}

// as is a caller of the API.
func (s *system) as(key string) *caller {
	c := s.probe(s.api)
	c.key = key
	return c
}

// probe is a caller without a key, of any process.
func (s *system) probe(p *process) *caller { return newCaller(s.t, p.base()) }

func newCaller(t *testing.T, base string) *caller {
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{t: t, base: base, http: &http.Client{Transport: transport, Timeout: patience}}
}

// answer is one that was read to its end.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// try sends a request whose failure the test wants to see. Headers are name and value by turns.
func (c *caller) try(method, target, body string, headers ...string) (answer, error) {
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.base+target, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	response, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{c.t, response.StatusCode, response.Header, string(text)}, err
}

func (c *caller) do(method, target, body string, headers ...string) answer {
	c.t.Helper()
	a, err := c.try(method, target, body, headers...)
	require.NoError(c.t, err)
	return a
}

func (c *caller) get(target string, headers ...string) answer {
	c.t.Helper()
	return c.do(http.MethodGet, target, "", headers...)
}

func (c *caller) post(target, body string) answer {
	c.t.Helper()
	return c.do(http.MethodPost, target, body)
}

func (c *caller) delete(target string) answer {
	c.t.Helper()
	return c.do(http.MethodDelete, target, "")
}

// want fails unless the answer has this status.
func (a answer) want(status int) answer {
	a.t.Helper()
	require.Equal(a.t, status, a.status, a.body)
	return a
}

// refused fails unless the answer is a problem of this status and code.
func (a answer) refused(status int, code string) answer {
	a.t.Helper()
	a.want(status)
	require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"))
	var problem struct{ Code, RequestID string }
	a.into(&problem)
	require.Equal(a.t, code, problem.Code, a.body)
	require.Equal(a.t, a.header.Get("X-Request-ID"), problem.RequestID)
	return a
}

func (a answer) into(target any) {
	a.t.Helper()
	require.NoError(a.t, json.Unmarshal([]byte(a.body), target), a.body)
}

// job is one as the API shows it.
type job struct {
	ID, Status, Tenant, Recipient, Channel, Priority                string
	AttemptCount, MaxAttempts, RedriveCount                         int
	LastError, Reason, ProviderID                                   *string
	ScheduledAt                                                     time.Time
	NextAttemptAt, SentAt, FailedAt, DeadLetteredAt, LastRedrivenAt *time.Time
}

func (a answer) job() (j job) {
	a.t.Helper()
	a.into(&j)
	return j
}

type page struct {
	Items      []job
	NextCursor *string
}

// notification is the body of a request, for EMAIL and with the recipient as its key unless other members are given.
func notification(recipient string, members ...string) string {
	members = append([]string{fmt.Sprintf(`"recipient":%q`, recipient), `"payload":{"text":"hello"}`}, members...)
	for name, value := range map[string]string{"idempotencyKey": recipient, "channel": "EMAIL"} {
		given := func(member string) bool { return strings.HasPrefix(member, `"`+name+`"`) }
		if !slices.ContainsFunc(members, given) {
			members = append(members, fmt.Sprintf("%q:%q", name, value))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// schedule stores one.
func (c *caller) schedule(recipient string, members ...string) job {
	c.t.Helper()
	return c.post("/notifications", notification(recipient, members...)).want(http.StatusCreated).job()
}

func (c *caller) job(id string) job {
	c.t.Helper()
	return c.get("/notifications/" + id).want(http.StatusOK).job()
}

// ends waits until a job has a status.
func (c *caller) ends(id, status string) (j job) {
	c.t.Helper()
	until(c.t, "job "+id+" becomes "+status, func() bool {
		j = c.job(id)
		return j.Status == status
	})
	return j
}

// attempt is one as the API shows it.
type attempt struct {
	RedriveCount, Number int
	Class                string
	Error, Worker        *string
}

func (c *caller) attempts(id string) []attempt {
	c.t.Helper()
	var list struct{ Items []attempt }
	c.get("/notifications/" + id + "/attempts").want(http.StatusOK).into(&list)
	return list.Items
}
