package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// mounted is a route that something else serves. Probes and scrapers carry no API key, and what they get names no job.
type mounted struct {
	handler  http.Handler
	op       huma.Operation
	answers  map[int]string
	problems []int
}

// mount puts in what is served by others.
func (a *api) mount() {
	healthy := map[int]string{http.StatusOK: "Healthy", http.StatusServiceUnavailable: "Not healthy"}
	for _, m := range []mounted{
		{a.cfg.Health, huma.Operation{
			OperationID: "get-health", Method: http.MethodGet, Path: "/health", Summary: "Process and database",
		}, healthy, nil},
		{a.cfg.Health, huma.Operation{
			OperationID: "get-livez", Method: http.MethodGet, Path: "/livez", Summary: "Process",
		}, map[int]string{http.StatusOK: "Alive"}, nil},
		{a.cfg.Health, huma.Operation{
			OperationID: "get-readyz", Method: http.MethodGet, Path: "/readyz", Summary: "Ready for requests",
		}, healthy, nil},
		{a.cfg.Metrics, huma.Operation{
			OperationID: "get-metrics", Method: http.MethodGet, Path: "/metrics", Summary: "Metrics",
			Description: "Prometheus text, or JSON if the request accepts application/json.",
		}, map[int]string{http.StatusOK: "The metrics"}, []int{http.StatusServiceUnavailable}},
		{a.cfg.Demo, huma.Operation{
			OperationID: "receive-demo-webhook", Method: http.MethodPost, Path: "/webhooks/mock", Summary: "Receive an event (demo)",
			Description: "A receiver to try webhooks with. It checks the signature, keeps the ids of events and counts repetitions.",
			Tags:        []string{tagWebhooks},
		}, map[int]string{http.StatusOK: "Received"}, []int{
			http.StatusBadRequest, http.StatusUnauthorized, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
			http.StatusServiceUnavailable,
		}},
	} {
		if m.handler != nil {
			a.handle(a.mountedOperation(m), m.handler.ServeHTTP)
		}
	}
}

func (a *api) mountedOperation(m mounted) *huma.Operation {
	op := m.op
	if op.Tags == nil {
		op.Tags = []string{tagHealth}
	}
	op.Security = []map[string][]string{}
	op.Responses = map[string]*huma.Response{}
	for status, words := range m.answers {
		op.Responses[statusText(status)] = &huma.Response{Description: words}
	}
	for _, status := range append(m.problems, http.StatusInternalServerError) {
		op.Responses[statusText(status)] = a.documentProblem(status)
	}
	return &op
}
