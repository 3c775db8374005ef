package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
)

// endpoint is one route.
type endpoint struct {
	op    huma.Operation // method, path, id, and words
	scope auth.Scope
	// wholeSystem marks what is not a tenant's: a key that is bound to one is refused.
	wholeSystem bool
	query       []parameter
	body        *bodyType // nil: it takes none
	successes   []success
	problems    []int // besides those that every endpoint has
	serve       func(ctx context.Context, c *call) (reply, error)
}

// success documents one way in which an endpoint succeeds.
type success struct {
	status  int
	words   string
	body    any // of the type that is sent
	headers map[string]string
}

// call is a request that has passed the gates.
type call struct {
	client *notifyq.Client
	actor  string
	query  url.Values
	body   []byte // strict JSON, or nothing where the endpoint allows that
	path   func(name string) string
}

// reply is what is sent of a success.
type reply struct {
	status int // 0 is 200
	body   any
	header [][2]string
}

// jobID is the {id} of the path.
func (c *call) jobID() (uuid.UUID, error) {
	text := c.path("id")
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(uuid.UUID{}.String()) { // it would also take braces, urn:uuid: and bare digits
		return uuid.Nil, invalidRequest("id", "must be a UUID")
	}
	return id, nil
}

// operation is who asked, and why.
func (c *call) operation(reason string) notifyq.Operation {
	return notifyq.Operation{Actor: c.actor, Reason: reason}
}

// add makes an endpoint reachable and documents it.
func (a *api) add(e endpoint) {
	op := a.document(e)
	a.handle(op, func(w http.ResponseWriter, r *http.Request) {
		s := &share{of: &a.bodies}
		defer s.giveBack()
		c, err := a.admit(w, r, &e, s)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), a.cfg.Timeout)
		defer cancel()
		done, err := e.serve(ctx, c)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		send(w, done)
	})
}

// admit takes a request through the gates.
func (a *api) admit(w http.ResponseWriter, r *http.Request, e *endpoint, s *share) (*call, error) {
	c := &call{path: r.PathValue}
	if err := a.authorize(c, r, e); err != nil {
		return nil, err
	}
	var err error
	if c.query, err = readQuery(r.URL.RawQuery, e.query); err != nil {
		return nil, err
	}
	if c.body, err = readBody(w, r, e.body, s); err != nil {
		return nil, err
	}
	return c, nil
}

func send(w http.ResponseWriter, done reply) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(done.body); err != nil {
		panic(err) // the bodies are structs of strings, numbers and times
	}
	body.Truncate(body.Len() - 1) // the encoder's line end
	h := w.Header()
	for _, line := range done.header {
		h.Set(line[0], line[1])
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	if done.status != 0 {
		w.WriteHeader(done.status)
	}
	_, _ = w.Write(body.Bytes()) // who no longer listens can't be told
}
