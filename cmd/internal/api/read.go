package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
)

func (a *api) getEndpoint() endpoint {
	return endpoint{
		op: huma.Operation{
			OperationID: "get-notification", Method: http.MethodGet, Path: "/notifications/{id}", Summary: "Read a job",
			Tags: []string{tagNotifications},
		},
		scope:     auth.ScopeRead,
		successes: []success{{status: http.StatusOK, words: "The job", body: jobBody{}}},
		problems:  []int{http.StatusNotFound},
		serve: func(ctx context.Context, c *call) (reply, error) {
			id, err := c.jobID()
			if err != nil {
				return reply{}, err
			}
			job, err := c.client.Get(ctx, id)
			return reply{body: newJobBody(&job)}, err
		},
	}
}

// attemptsBody is the answer to a list of attempts.
type attemptsBody struct {
	_     struct{}      `additionalProperties:"true"`
	Items []attemptBody `json:"items" nullable:"false"`
}

func (a *api) attemptsEndpoint() endpoint {
	return endpoint{
		op: huma.Operation{
			OperationID: "list-attempts", Method: http.MethodGet, Path: "/notifications/{id}/attempts",
			Summary:     "List a job's attempts",
			Description: "Over all retries by hand, oldest first.",
			Tags:        []string{tagNotifications},
		},
		scope:     auth.ScopeRead,
		successes: []success{{status: http.StatusOK, words: "The attempts", body: attemptsBody{}}},
		problems:  []int{http.StatusNotFound},
		serve: func(ctx context.Context, c *call) (reply, error) {
			id, err := c.jobID()
			if err != nil {
				return reply{}, err
			}
			attempts, err := c.client.Attempts(ctx, id)
			items := make([]attemptBody, len(attempts))
			for i := range attempts {
				items[i] = newAttemptBody(&attempts[i])
			}
			return reply{body: attemptsBody{Items: items}}, err
		},
	}
}

// pageBody is one page of a list of jobs.
type pageBody struct {
	_          struct{}  `additionalProperties:"true"`
	Items      []jobBody `json:"items" nullable:"false"`
	NextCursor *string   `json:"nextCursor" doc:"The cursor of the next page; null at the end. A page may be short before that"`
}

func (a *api) listEndpoint() endpoint {
	return endpoint{
		op: huma.Operation{
			OperationID: "list-notifications", Method: http.MethodGet, Path: "/notifications", Summary: "List jobs",
			Description: "Newest first. All filters hold together, but idempotencyKey, which stands alone and finds at most one. " +
				"In a query a plus sign means a blank: write that of a phone number as %2B.",
			Tags: []string{tagNotifications},
		},
		scope: auth.ScopeRead,
		query: listParameters(),
		successes: []success{{
			status: http.StatusOK, words: "A page", body: pageBody{},
			headers: map[string]string{"Link": `The next page, with rel="next"; absent at the end`},
		}},
		serve: a.list,
	}
}

func listParameters() []parameter {
	const least, most = 1.0, float64(maxLimit)
	text := &huma.Schema{Type: huma.TypeString}
	return []parameter{
		{"status", "Only jobs of this status", &huma.Schema{Type: huma.TypeString, Enum: []any{
			string(notifyq.StatusPending), string(notifyq.StatusProcessing), string(notifyq.StatusSent),
			string(notifyq.StatusFailed), string(notifyq.StatusDeadLettered), string(notifyq.StatusCancelled),
		}}},
		{"recipient", "Only jobs to this recipient", text},
		{"channel", "Only jobs of this channel", text},
		{"idempotencyKey", "Only the job of this idempotency key; no other filter with it", text},
		{"limit", "How many at most; 50 unless given", &huma.Schema{
			Type: huma.TypeInteger, Minimum: new(least), Maximum: new(most), Default: 50,
		}},
		{"cursor", "The nextCursor of the page before, with the same filters", text},
	}
}

func (a *api) list(ctx context.Context, c *call) (reply, error) {
	limit, err := readLimit(c.query)
	if err != nil {
		return reply{}, err
	}
	if c.query.Has("idempotencyKey") {
		return a.find(ctx, c)
	}
	page, err := c.client.List(ctx, notifyq.ListParams{
		Status: notifyq.Status(c.query.Get("status")), Recipient: c.query.Get("recipient"),
		Channel: notifyq.Channel(c.query.Get("channel")), Limit: limit, Cursor: c.query.Get("cursor"),
	})
	if err != nil {
		return reply{}, err
	}
	body := pageBody{Items: make([]jobBody, len(page.Jobs)), NextCursor: orNull(page.Next)}
	for i := range page.Jobs {
		body.Items[i] = newJobBody(&page.Jobs[i])
	}
	done := reply{body: body}
	if page.Next != "" {
		done.header = [][2]string{{"Link", nextLink(c.query, page.Next)}}
	}
	return done, nil
}

// find is a list of the one job that holds an idempotency key, or of none.
func (a *api) find(ctx context.Context, c *call) (reply, error) {
	for _, other := range []string{"status", "recipient", "channel", "cursor"} {
		if c.query.Has(other) {
			return reply{}, invalidRequest("idempotencyKey", "must be the only filter")
		}
	}
	job, err := c.client.GetByKey(ctx, c.query.Get("idempotencyKey"))
	switch {
	case errors.Is(err, notifyq.ErrNotFound):
		return reply{body: pageBody{Items: []jobBody{}}}, nil
	case err != nil:
		return reply{}, err
	}
	return reply{body: pageBody{Items: []jobBody{newJobBody(&job)}}}, nil
}

func nextLink(query url.Values, cursor string) string {
	next := maps.Clone(query)
	next.Set("cursor", cursor)
	return `</notifications?` + next.Encode() + `>; rel="next"`
}
