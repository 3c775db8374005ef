package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
)

// channelBody is a channel as it was left.
type channelBody struct {
	_       struct{} `additionalProperties:"true"`
	Channel string   `json:"channel" example:"EMAIL"`
	Paused  bool     `json:"paused"`
}

func (a *api) pauseEndpoint() endpoint {
	e := a.channelEndpoint(true)
	e.op.OperationID, e.op.Path, e.op.Summary = "pause-channel", "/channels/{channel}/pause", "Pause a channel"
	e.op.Description = "Keeps workers from claiming its jobs, of all tenants. What is claimed already goes on."
	return e
}

func (a *api) resumeEndpoint() endpoint {
	e := a.channelEndpoint(false)
	e.op.OperationID, e.op.Path, e.op.Summary = "resume-channel", "/channels/{channel}/resume", "Resume a channel"
	e.op.Description = "Undoes a pause. Resuming a channel that is not paused changes nothing."
	return e
}

func (a *api) channelEndpoint(paused bool) endpoint {
	return endpoint{
		op:          huma.Operation{Method: http.MethodPost, Tags: []string{tagChannels}},
		scope:       auth.ScopeOperate,
		wholeSystem: true,
		body:        reasonOnly(),
		successes:   []success{{status: http.StatusOK, words: "The channel", body: channelBody{}}},
		problems:    []int{http.StatusNotFound},
		serve: func(ctx context.Context, c *call) (reply, error) {
			channel := notifyq.Channel(c.path("channel"))
			if !a.serves(channel) {
				return reply{}, notifyq.ErrNotFound
			}
			reason, err := decodeReason(c.body)
			if err != nil {
				return reply{}, err
			}
			change := c.client.ResumeChannel
			if paused {
				change = c.client.PauseChannel
			}
			err = change(ctx, channel, c.operation(reason))
			return reply{body: channelBody{Channel: string(channel), Paused: paused}}, err
		},
	}
}
