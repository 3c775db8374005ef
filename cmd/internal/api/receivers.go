package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
)

// receiversBody is the answer to a list of receivers.
type receiversBody struct {
	_     struct{}       `additionalProperties:"true"`
	Items []receiverBody `json:"items" nullable:"false"`
}

func (a *api) receiversEndpoint() endpoint {
	return endpoint{
		op: huma.Operation{
			OperationID: "list-webhook-endpoints", Method: http.MethodGet, Path: "/webhook-endpoints",
			Summary:     "List the receivers of events",
			Description: "Those that were sent to, by name, at most 1,000.",
			Tags:        []string{tagWebhooks},
		},
		scope:       auth.ScopeOperate,
		wholeSystem: true,
		successes:   []success{{status: http.StatusOK, words: "The receivers", body: receiversBody{}}},
		serve: func(ctx context.Context, c *call) (reply, error) {
			statuses, err := c.client.Endpoints(ctx)
			items := make([]receiverBody, len(statuses))
			for i := range statuses {
				items[i] = newReceiverBody(&statuses[i])
			}
			return reply{body: receiversBody{Items: items}}, err
		},
	}
}

// enableBody documents how to enable a receiver.
type enableBody struct {
	PerSecond float64 `json:"perSecond,omitempty" minimum:"0" maximum:"1000000" doc:"Spaces what it missed; 0 is all now"`
	Reason    string  `json:"reason,omitempty" maxLength:"255" doc:"Why; kept with who asked"`
}

// enabledBody is what enabling did.
type enabledBody struct {
	_       struct{} `additionalProperties:"true"`
	Name    string   `json:"name" example:"default"`
	Retried int      `json:"retried" minimum:"0" doc:"How many events that it missed are to be sent again"`
	More    bool     `json:"more" doc:"There may be more that it missed: ask again"`
}

// maxEnabled is how many events a request brings back at most. That took 1 s where it was measured, of the 5 s that a
// request has.
const maxEnabled = 10_000

func (a *api) enableEndpoint() endpoint {
	return endpoint{
		op: huma.Operation{
			OperationID: "enable-webhook-endpoint", Method: http.MethodPost, Path: "/webhook-endpoints/{name}/enable",
			Summary:     "Enable a receiver of events",
			Description: "Lets events go to it again, and brings back those that it missed, up to 10,000. Repeat it while there are more.",
			Tags:        []string{tagWebhooks},
		},
		scope:       auth.ScopeOperate,
		wholeSystem: true,
		body: &bodyType{
			model: enableBody{}, example: `{"perSecond": 20, "reason": "the receiver is back"}`,
			maxBytes: maxBodyBytes, optional: true,
		},
		successes: []success{{status: http.StatusOK, words: "What was done", body: enabledBody{}}},
		problems:  []int{http.StatusNotFound},
		serve: func(ctx context.Context, c *call) (reply, error) {
			params, err := decodeEnable(c.body)
			if err != nil {
				return reply{}, err
			}
			params.Name, params.Limit, params.Operation.Actor = c.path("name"), maxEnabled, c.actor
			retried, err := c.client.EnableEndpoint(ctx, params)
			return reply{body: enabledBody{Name: params.Name, Retried: retried, More: retried == maxEnabled}}, err
		},
	}
}

func decodeEnable(body []byte) (p notifyq.EnableParams, err error) {
	if len(body) == 0 {
		return p, nil
	}
	d := decoder{whole: "body"}
	if !d.object(body) {
		return p, d.err()
	}
	for name, value := range members(body) {
		switch string(name) {
		case "perSecond":
			p.PerSecond = d.number("perSecond", value)
		case "reason":
			p.Operation.Reason = d.text("reason", value)
		default:
			d.unknown()
		}
	}
	return p, d.err()
}
