package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
)

// reasonBody documents a change that may say why.
type reasonBody struct {
	Reason string `json:"reason,omitempty" maxLength:"255" doc:"Why; kept with who asked" example:"the provider is back"`
}

const reasonExample = `{"reason": "the provider is back"}`

func reasonOnly() *bodyType {
	return &bodyType{model: reasonBody{}, example: reasonExample, maxBytes: maxBodyBytes, optional: true}
}

// decodeReason reads a reasonBody, or none.
func decodeReason(body []byte) (reason string, err error) {
	if len(body) == 0 {
		return "", nil
	}
	d := decoder{whole: "body"}
	if !d.object(body) {
		return "", d.err()
	}
	for name, value := range members(body) {
		switch string(name) {
		case "reason":
			reason = d.text("reason", value)
		default:
			d.unknown()
		}
	}
	return reason, d.err()
}

func (a *api) cancelEndpoint() endpoint {
	return endpoint{
		op: huma.Operation{
			OperationID: "cancel-notification", Method: http.MethodDelete, Path: "/notifications/{id}", Summary: "Cancel a job",
			Description: "Ends a pending job: it is never delivered. Cancelling it again changes nothing.",
			Tags:        []string{tagNotifications},
		},
		scope:     auth.ScopeOperate,
		query:     []parameter{{"reason", "Why; kept with who asked. At most 255 bytes", &huma.Schema{Type: huma.TypeString}}},
		successes: []success{{status: http.StatusOK, words: "The job, cancelled", body: jobBody{}}},
		problems:  []int{http.StatusNotFound, http.StatusConflict},
		serve: func(ctx context.Context, c *call) (reply, error) {
			id, err := c.jobID()
			if err != nil {
				return reply{}, err
			}
			job, err := c.client.Cancel(ctx, id, c.operation(c.query.Get("reason")))
			return changed(job, err)
		},
	}
}

func (a *api) retryEndpoint() endpoint {
	return endpoint{
		op: huma.Operation{
			OperationID: "retry-notification", Method: http.MethodPost, Path: "/notifications/{id}/retry", Summary: "Retry a job",
			Description: "Sends a failed or dead-lettered job back to the queue, due now, with a fresh budget of attempts and the " +
				"same delivery key.",
			Tags: []string{tagNotifications},
		},
		scope:     auth.ScopeOperate,
		body:      reasonOnly(),
		successes: []success{{status: http.StatusOK, words: "The job, pending", body: jobBody{}}},
		problems:  []int{http.StatusNotFound, http.StatusConflict},
		serve: func(ctx context.Context, c *call) (reply, error) {
			id, err := c.jobID()
			if err != nil {
				return reply{}, err
			}
			reason, err := decodeReason(c.body)
			if err != nil {
				return reply{}, err
			}
			job, err := c.client.Redrive(ctx, id, c.operation(reason))
			return changed(job, err)
		},
	}
}

// changed answers with a job, or with its status where that is why it could not be changed.
func changed(job notifyq.Job, err error) (reply, error) {
	if errors.Is(err, notifyq.ErrNotCancellable) || errors.Is(err, notifyq.ErrNotRedrivable) {
		conflict := refusalOf(err)
		conflict.current = job.Status
		return reply{}, conflict
	}
	return reply{body: newJobBody(&job)}, err
}

// bulkRetryBody documents which jobs to retry.
type bulkRetryBody struct {
	Status    string    `json:"status,omitempty" enum:"DEAD_LETTERED,FAILED" default:"DEAD_LETTERED"`
	Recipient string    `json:"recipient,omitempty" minLength:"1" maxLength:"320" doc:"Only jobs to this recipient"`
	Since     time.Time `json:"since,omitempty" doc:"Only jobs that ended at this time or later"`
	Limit     int       `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"100" doc:"How many at most"`
	PerSecond float64   `json:"perSecond,omitempty" minimum:"0" maximum:"1000000" doc:"Spaces due times; 0 is all now"`
	Reason    string    `json:"reason,omitempty" maxLength:"255" doc:"Why; kept with who asked"`
}

// bulkRetriedBody is what a bulk retry did.
type bulkRetriedBody struct {
	_         struct{} `additionalProperties:"true"`
	Retried   int      `json:"retried" minimum:"0"`
	Remaining int      `json:"remaining" minimum:"0" doc:"How many the same request would still find, counted up to 100,000"`
}

func (a *api) bulkRetryEndpoint() endpoint {
	return endpoint{
		op: huma.Operation{
			OperationID: "retry-notifications", Method: http.MethodPost, Path: "/notifications/retry", Summary: "Retry many jobs",
			Description: "Oldest first. Repeat it until nothing remains. Calls at the same time share the jobs.",
			Tags:        []string{tagNotifications},
		},
		scope: auth.ScopeOperate,
		body: &bodyType{
			model: bulkRetryBody{}, example: `{"limit": 500, "perSecond": 20, "reason": "the provider is back"}`,
			maxBytes: maxBodyBytes, optional: true,
		},
		successes: []success{{status: http.StatusOK, words: "What was done", body: bulkRetriedBody{}}},
		serve: func(ctx context.Context, c *call) (reply, error) {
			params, err := decodeBulkRetry(c.body)
			if err != nil {
				return reply{}, err
			}
			params.Operation.Actor = c.actor
			done, err := c.client.RedriveMany(ctx, params)
			return reply{body: bulkRetriedBody{Retried: done.Retried, Remaining: done.Remaining}}, err
		},
	}
}

func decodeBulkRetry(body []byte) (p notifyq.RedriveParams, err error) {
	if len(body) == 0 {
		return p, nil
	}
	d := decoder{whole: "body"}
	if !d.object(body) {
		return p, d.err()
	}
	for name, value := range members(body) {
		switch field := string(name); field {
		case "status":
			p.Status = notifyq.Status(d.filter(field, value))
		case "recipient":
			p.Recipient = d.filter(field, value)
		case "since":
			p.Since = d.time(field, value)
		case "limit":
			p.Limit = d.count(field, value, maxLimit)
		case "perSecond":
			p.PerSecond = d.number(field, value)
		case "reason":
			p.Operation.Reason = d.text(field, value)
		default:
			d.unknown()
		}
	}
	return p, d.err()
}
