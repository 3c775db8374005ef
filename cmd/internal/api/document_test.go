package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

func everything(c *Config) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	c.Health, c.Metrics, c.Demo = ok, ok, ok
}

// document is the OpenAPI document as a client gets it.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct {
		Schemas         map[string]schema
		SecuritySchemes map[string]any
	}
}

type operation struct {
	OperationID string
	Summary     string
	Tags        []string
	Parameters  []struct{ Name, In string }
	RequestBody struct {
		Content map[string]struct {
			Schema  map[string]any
			Example json.RawMessage
		}
	}
	Responses map[string]struct {
		Description string
		Content     map[string]struct{ Schema map[string]any }
		Headers     map[string]any
	}
}

type schema struct {
	Properties map[string]any
	Required   []string
}

func (s *server) document(t *testing.T) (d document) {
	t.Helper()
	a := s.get(t, "/openapi.json")
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.NoError(t, json.Unmarshal([]byte(a.body), &d))
	return d
}

func TestDocumentAndRoutesAgree(t *testing.T) {
	t.Parallel()
	s := serve(t, everything)
	d := s.document(t)
	require.Equal(t, "3.1.0", d.OpenAPI)
	var documented []string
	ids := map[string]bool{}
	for path, operations := range d.Paths {
		for method, op := range operations {
			method = strings.ToUpper(method)
			documented = append(documented, method+" "+path)
			require.NotEmpty(t, op.Summary)
			require.NotEmpty(t, op.Tags)
			require.False(t, ids[op.OperationID], op.OperationID)
			ids[op.OperationID] = true
			target := strings.NewReplacer("{id}", "01890000-0000-7000-8000-000000000001", "{channel}", "EMAIL", "{name}", "x").Replace(path)
			a := s.do(t, method, target, "")
			require.NotEqual(t, http.StatusMethodNotAllowed, a.status, method+path)
			if a.status == http.StatusNotFound {
				require.Contains(t, a.body, "of this name", "the route is there, and the job is not")
			}
			require.Contains(t, slices.Collect(maps.Keys(op.Responses)), statusText(a.status), method+path)
		}
	}
	cfg := Config{Client: s.client, Docs: true}
	everything(&cfg)
	a, err := newAPI(cfg)
	require.NoError(t, err)
	open := slices.DeleteFunc(slices.Clone(a.patterns), func(p string) bool { return strings.HasPrefix(p, "GET /docs") || p == "GET /openapi.json" })
	require.ElementsMatch(t, open, documented)
	contract := []string{
		"POST /notifications", "POST /notifications/batch", "GET /notifications/{id}", "GET /notifications/{id}/attempts", "GET /notifications",
		"DELETE /notifications/{id}", "POST /notifications/{id}/retry", "POST /notifications/retry", "POST /channels/{channel}/pause",
		"POST /channels/{channel}/resume", "GET /webhook-endpoints", "POST /webhook-endpoints/{name}/enable", "GET /health", "GET /livez",
		"GET /readyz", "GET /metrics", "POST /webhooks/mock",
	}
	require.ElementsMatch(t, contract, documented)
}

func TestDocumentedExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	_, err := s.db.Pool.Exec(t.Context(), "insert into "+s.db.Schema+".webhook_endpoints (name, target) values ('x', '')")
	require.NoError(t, err)
	tried := 0
	for path, operations := range s.document(t).Paths {
		for method, op := range operations {
			for _, content := range op.RequestBody.Content {
				if strings.Contains(path, "{id}") {
					continue
				}
				tried++
				target := strings.NewReplacer("{channel}", "EMAIL", "{name}", "x").Replace(path)
				a := s.do(t, strings.ToUpper(method), target, string(content.Example))
				require.Less(t, a.status, 300, path+a.body)
				if path == "/notifications/batch" {
					require.NotContains(t, a.body, "error")
				}
			}
		}
	}
	require.Equal(t, 6, tried)
}

// The types that document bodies are not those that read them. Every member must be known, and nothing else.
func TestDocumentedMembersAreThoseThatAreRead(t *testing.T) {
	t.Parallel()
	a, err := newAPI(Config{Client: new(notifyq.Client)})
	require.NoError(t, err)
	read := map[string]func(string) error{
		"notificationBody": func(s string) error {
			_, broken := a.decodeNotification("body", []byte(s))
			return orNil(broken != nil, breaks(broken))
		},
		"bulkRetryBody": func(s string) error { _, err := decodeBulkRetry([]byte(s)); return err },
		"enableBody":    func(s string) error { _, err := decodeEnable([]byte(s)); return err },
		"reasonBody":    func(s string) error { _, err := decodeReason([]byte(s)); return err },
		"batchBody":     func(s string) error { _, err := decodeBatch([]byte(s)); return err },
	}
	seen := map[string]bool{}
	for _, e := range a.endpoints() {
		if e.body == nil {
			continue
		}
		model := reflect.TypeOf(e.body.model)
		decode := read[model.Name()]
		require.NotNil(t, decode, model.Name())
		seen[model.Name()] = true
		for i := range model.NumField() {
			name, _, _ := strings.Cut(model.Field(i).Tag.Get("json"), ",")
			require.NotContains(t, faults(decode(`{"`+name+`":1}`)), "body", name)
		}
		require.Contains(t, faults(decode(`{"somethingElse":1}`)), "body")
	}
	require.Len(t, seen, len(read))
}

func orNil(is bool, err error) error {
	if is {
		return err
	}
	return nil
}

func faults(err error) (fields []string) {
	if err == nil {
		return nil
	}
	for _, f := range refusalOf(err).errors {
		fields = append(fields, f.Field)
	}
	return fields
}

// The job has exactly the members of the contract.
func TestJobHasTheDocumentedMembers(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	want := strings.Fields(`id status tenant recipient channel priority scheduledAt nextAttemptAt expiresAt attemptCount
		maxAttempts lastError reason providerId sentAt failedAt deadLetteredAt cancelledAt redriveCount lastRedrivenAt createdAt updatedAt`)
	slices.Sort(want)
	job := s.schedule(t, body())
	require.Equal(t, want, slices.Sorted(maps.Keys(job)))
	d := s.document(t)
	require.Equal(t, want, slices.Sorted(maps.Keys(d.Components.Schemas["Job"].Properties)))
	require.ElementsMatch(t, want, d.Components.Schemas["Job"].Required)
	item := s.get(t, "/notifications").object(t)["items"].([]any)[0]
	require.Equal(t, job, item)
}

func TestAnswersFitTheirSchemas(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.made(t, "1", "ok@example.test")
	failed := s.made(t, "2", "invalid@example.test", "expiresAt", `"2200-01-01T00:00:00Z"`)
	s.made(t, "3", "ok@example.test", "delaySeconds", "60")
	s.deliver(t)
	a, err := newAPI(Config{Client: s.client})
	require.NoError(t, err)
	registry := a.huma.OpenAPI().Components.Schemas
	fits := func(model, text string) {
		t.Helper()
		var value any
		require.NoError(t, json.Unmarshal([]byte(text), &value))
		result := &huma.ValidateResult{}
		huma.Validate(registry, registry.Map()[model], huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, value, result)
		require.Empty(t, result.Errors, text)
	}
	fits("Page", s.get(t, "/notifications?limit=2").body)
	fits("Page", s.get(t, "/notifications?idempotencyKey=none").body)
	fits("Job", s.get(t, "/notifications/"+failed).body)
	fits("Attempts", s.get(t, "/notifications/"+failed+"/attempts").body)
	fits("Results", s.post(t, "/notifications/batch", `{"notifications":[`+body()+`,{}]}`).body)
	fits("BulkRetried", s.post(t, "/notifications/retry", "").body)
	fits("Channel", s.post(t, "/channels/SMS/pause", "").body)
	fits("Problem", s.get(t, "/notifications/x").body)
	fits("Problem", s.do(t, http.MethodDelete, "/notifications/"+failed, "").body)
}

func TestDocsPageLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	index := s.get(t, "/docs")
	require.Equal(t, "text/html; charset=utf-8", index.header.Get("Content-Type"))
	require.NotRegexp(t, `(?i)https?:|<style|style=|<script>|\son\w+=`, index.body)
	sources := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(index.body, -1)
	require.Len(t, sources, 5)
	for _, source := range sources {
		a := s.get(t, "/"+source[1])
		require.Equal(t, http.StatusOK, a.status, source[1])
		require.NotEmpty(t, a.body)
		require.Regexp(t, `^(text|application)/(css|javascript)|^image/png`, a.header.Get("Content-Type"))
		require.Contains(t, a.header.Get("Content-Security-Policy"), "script-src 'self'")
		if strings.HasSuffix(source[1], ".css") {
			require.NotRegexp(t, `@import|url\(\s*["']?(https?:)?//`, a.body)
		}
	}
	s.get(t, "/docs/nothing.js").requireProblem(t, http.StatusNotFound, "not_found")
}

func TestDocsCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *Config) { c.Docs = false })
	for _, target := range []string{"/docs", "/openapi.json", "/docs/swagger-ui.css", "/docs/start.js"} {
		s.get(t, target).requireProblem(t, http.StatusNotFound, "not_found")
	}
}

func TestMountedHandlersNeedNoKey(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *Config) { manyKeys(t)(c); everything(c) })
	for _, target := range []string{"/health", "/livez", "/readyz", "/metrics"} {
		require.Equal(t, http.StatusOK, s.get(t, target+"?verbose=1").status)
	}
	require.Equal(t, http.StatusOK, s.post(t, "/webhooks/mock", "{}").status)
	require.Equal(t, 1, strings.Count(s.logs.String(), "http.request"), "probes that succeed are not logged")
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := New(Config{})
	require.Error(t, err)
	_, err = New(Config{Client: new(notifyq.Client), Timeout: -1})
	require.Error(t, err)
	h, err := New(Config{Client: new(notifyq.Client)})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/nope", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
}
