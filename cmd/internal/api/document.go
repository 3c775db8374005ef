package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notifyq/notifyq/cmd/internal/httpserver"
)

// Tags of the document.
const (
	tagNotifications = "notifications"
	tagChannels      = "channels"
	tagWebhooks      = "webhooks"
	tagHealth        = "health"
)

const securityScheme = "apiKey"

const about = "Schedules notifications, and reads and operates on the jobs that they become.\n\n" +
	"Errors are problems (RFC 9457) with a `code`, the `errors` of fields, and the `requestId`. They never repeat what was " +
	"submitted.\n\n" +
	"Input is strict: names are exact, members and parameters that are not documented are refused, and so are duplicates, " +
	"null, and anything after the JSON value. Whole numbers are written without fraction and exponent; times are RFC 3339 " +
	"with an offset."

func newDocument() *huma.OpenAPI {
	namer := func(t reflect.Type, hint string) string {
		return strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Body")
	}
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info:    &huma.Info{Title: "notifyq", Version: "1", Description: about},
		Tags: []*huma.Tag{
			{Name: tagNotifications}, {Name: tagChannels}, {Name: tagWebhooks}, {Name: tagHealth},
		},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", namer),
			SecuritySchemes: map[string]*huma.SecurityScheme{securityScheme: {
				Type: "http", Scheme: "bearer", Description: "An API key. Where the server has none set, none is needed, " +
					"but requests must call it by an address of the loopback or by a name without a dot, and not come from pages of other sites.",
			}},
		},
	}
}

// document is the operation of an endpoint with all that can be told from it.
func (a *api) document(e endpoint) *huma.Operation {
	op := e.op
	op.Description = strings.TrimSpace(op.Description + " Needs the scope " + string(e.scope) + ".")
	if e.wholeSystem {
		op.Description += " Not for keys that are bound to a tenant."
	}
	op.Security = []map[string][]string{{securityScheme: {}}}
	op.Parameters = append(a.pathParameters(op.Path), queryParameters(e.query)...)
	if e.body != nil {
		op.RequestBody = a.documentBody(e.body)
	}
	op.Responses = map[string]*huma.Response{}
	for _, s := range e.successes {
		op.Responses[statusText(s.status)] = a.documentSuccess(s)
	}
	for _, status := range e.allProblems() {
		op.Responses[statusText(status)] = a.documentProblem(status)
	}
	return &op
}

func (a *api) documentBody(t *bodyType) *huma.RequestBody {
	reference := a.schemaOf(t.model)
	schema := a.huma.OpenAPI().Components.Schemas.SchemaFromRef(reference.Ref)
	for name, words := range t.words {
		schema.Properties[name].Description = words
	}
	return &huma.RequestBody{
		Required: !t.optional,
		Content: map[string]*huma.MediaType{
			"application/json": {Schema: reference, Example: json.RawMessage(t.example)},
		},
	}
}

// allProblems are those that an endpoint can answer with.
func (e *endpoint) allProblems() []int {
	statuses := []int{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError,
		http.StatusServiceUnavailable,
	}
	if e.body != nil {
		statuses = append(statuses, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType)
	}
	statuses = append(statuses, e.problems...)
	slices.Sort(statuses)
	return statuses
}

func (a *api) documentSuccess(s success) *huma.Response {
	response := &huma.Response{
		Description: s.words,
		Content:     map[string]*huma.MediaType{"application/json": {Schema: a.schemaOf(s.body)}},
		Headers:     requestIDHeader(),
	}
	for name, words := range s.headers {
		response.Headers[name] = stringHeader(words)
	}
	return response
}

func (a *api) documentProblem(status int) *huma.Response {
	response := &huma.Response{
		Description: http.StatusText(status),
		Content: map[string]*huma.MediaType{
			httpserver.ContentTypeProblem: {Schema: a.schemaOf(httpserver.Problem{})},
		},
		Headers: requestIDHeader(),
	}
	switch status {
	case http.StatusUnauthorized:
		response.Headers["WWW-Authenticate"] = stringHeader("Bearer")
	case http.StatusServiceUnavailable:
		response.Headers["Retry-After"] = stringHeader("Seconds to wait")
	}
	return response
}

func requestIDHeader() map[string]*huma.Header {
	return map[string]*huma.Header{
		httpserver.HeaderRequestID: stringHeader("The request's id: the caller's own, if it is log-safe"),
	}
}

func stringHeader(words string) *huma.Header {
	return &huma.Header{Description: words, Schema: &huma.Schema{Type: huma.TypeString}}
}

func (a *api) schemaOf(value any) *huma.Schema {
	t := reflect.TypeOf(value)
	return a.huma.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// pathParameters documents what stands in braces.
func (a *api) pathParameters(path string) []*huma.Param {
	var params []*huma.Param
	for segment := range strings.SplitSeq(path, "/") {
		if !strings.HasPrefix(segment, "{") {
			continue
		}
		name := strings.Trim(segment, "{}")
		schema := &huma.Schema{Type: huma.TypeString}
		if name == "id" {
			schema.Format = "uuid"
		}
		params = append(params, &huma.Param{Name: name, In: "path", Required: true, Schema: schema})
	}
	return params
}

func queryParameters(known []parameter) []*huma.Param {
	params := make([]*huma.Param, len(known))
	for i, p := range known {
		params[i] = &huma.Param{Name: p.name, In: "query", Description: p.words, Schema: p.schema}
	}
	return params
}

func statusText(status int) string { return strconv.Itoa(status) }
