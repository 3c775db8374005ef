package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
)

const notificationExample = `{
  "idempotencyKey": "order-1234-confirmation",
  "recipient": "ann@example.com",
  "channel": "EMAIL",
  "payload": {"subject": "Your order", "text": "It is on its way."}
}`

func (a *api) scheduleEndpoint() endpoint {
	location := map[string]string{"Location": "The path of the job"}
	return endpoint{
		op: huma.Operation{
			OperationID: "schedule-notification", Method: http.MethodPost, Path: "/notifications", Summary: "Schedule a notification",
			Description: "Stores a notification and answers once it is committed. The same request under the same idempotency " +
				"key gives the same job; it is safe to repeat after any failure.",
			Tags: []string{tagNotifications},
		},
		scope: auth.ScopeSchedule,
		body: &bodyType{
			model: notificationBody{}, words: notificationWords(), example: notificationExample, maxBytes: maxBodyBytes,
		},
		successes: []success{
			{status: http.StatusCreated, words: "Stored", body: jobBody{}, headers: location},
			{
				status: http.StatusOK, words: "The same request was stored before; the job as it is now", body: jobBody{},
				headers: map[string]string{"Location": location["Location"], headerReplayed: "true"},
			},
		},
		problems: []int{http.StatusConflict},
		serve:    a.schedule,
	}
}

const headerReplayed = "Idempotent-Replayed"

func (a *api) schedule(ctx context.Context, c *call) (reply, error) {
	n, broken := a.decodeNotification("body", c.body)
	if broken != nil {
		return reply{}, breaks(broken)
	}
	scheduled, err := c.client.Schedule(ctx, n)
	if err != nil {
		return reply{}, err
	}
	header := [][2]string{{"Location", "/notifications/" + scheduled.ID.String()}}
	if scheduled.Replayed {
		header = append(header, [2]string{headerReplayed, "true"})
		return reply{status: http.StatusOK, body: newJobBody(&scheduled.Job), header: header}, nil
	}
	return reply{status: http.StatusCreated, body: newJobBody(&scheduled.Job), header: header}, nil
}

func (a *api) batchEndpoint() endpoint {
	return endpoint{
		op: huma.Operation{
			OperationID: "schedule-notifications", Method: http.MethodPost, Path: "/notifications/batch",
			Summary: "Schedule up to 1,000 notifications",
			Description: "Stores all that are valid in one transaction, and answers each at its place. The answer is a 200 " +
				"also if none is.",
			Tags: []string{tagNotifications},
		},
		scope: auth.ScopeSchedule,
		body: &bodyType{
			model: batchBody{}, example: `{"notifications": [` + notificationExample + `]}`, maxBytes: maxBatchBytes,
		},
		successes: []success{{status: http.StatusOK, words: "One result for each notification, in order", body: resultsBody{}}},
		serve:     a.scheduleBatch,
	}
}

// resultsBody is the answer to a batch.
type resultsBody struct {
	_       struct{}     `additionalProperties:"true"`
	Results []resultBody `json:"results" nullable:"false"`
}

func (a *api) scheduleBatch(ctx context.Context, c *call) (reply, error) {
	items, err := decodeBatch(c.body)
	if err != nil {
		return reply{}, err
	}
	results := make([]resultBody, len(items))
	notifications, places := make([]notifyq.Notification, 0, len(items)), make([]int, 0, len(items))
	for i, item := range items {
		n, broken := a.decodeNotification("notification", item)
		if broken != nil {
			results[i] = refusedResult(breaks(broken))
			continue
		}
		notifications, places = append(notifications, n), append(places, i)
	}
	scheduled, err := c.client.ScheduleMany(ctx, notifications)
	if err != nil {
		return reply{}, err
	}
	for i := range scheduled {
		s := &scheduled[i]
		if s.Err != nil {
			results[places[i]] = refusedResult(s.Err)
			continue
		}
		results[places[i]] = resultBody{ID: s.ID.String(), Replayed: &s.Replayed}
	}
	return reply{body: resultsBody{Results: results}}, nil
}
