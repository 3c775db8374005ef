package httpserver

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// ContentTypeProblem is what every error is sent as (RFC 9457).
const ContentTypeProblem = "application/problem+json"

// Codes of problems that do not depend on what a server does.
const (
	CodeNotFound         = "not_found"
	CodeMethodNotAllowed = "method_not_allowed"
	CodeInternal         = "internal_error"
)

// Problem is the one form of an error. It names fields and rules, and never holds a value that was submitted.
type Problem struct {
	_         struct{}     `additionalProperties:"true"`
	Type      string       `json:"type" doc:"Always about:blank; code tells problems apart" example:"about:blank"`
	Title     string       `json:"title" doc:"The HTTP status in words" example:"Bad Request"`
	Status    int          `json:"status" doc:"The HTTP status" example:"400"`
	Detail    string       `json:"detail" doc:"What is wrong, for people" example:"The request breaks a rule."`
	Code      string       `json:"code" doc:"What is wrong, for programs" example:"invalid_request"`
	Errors    []FieldError `json:"errors" nullable:"false" doc:"The fields that broke a rule; may be empty"`
	RequestID string       `json:"requestId" doc:"As in X-Request-ID" example:"r-17"`
	// CurrentStatus is that of the job that a conflict is about.
	CurrentStatus string `json:"currentStatus,omitempty" doc:"Of the job that a conflict is about" example:"SENT"`
}

// FieldError is one broken rule.
type FieldError struct {
	_     struct{} `additionalProperties:"true"`
	Field string   `json:"field" doc:"A member, a parameter, or body or query for the whole" example:"recipient"`
	Rule  string   `json:"rule" doc:"What must hold" example:"must be at most 320 bytes"`
}

// WriteProblem answers with p, and fills in its type, title and request id.
func WriteProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	p.Type, p.Title, p.RequestID = "about:blank", http.StatusText(p.Status), RequestID(r.Context())
	if p.Errors == nil {
		p.Errors = []FieldError{}
	}
	if entry := entryOf(r.Context()); entry != nil {
		entry.code = p.Code
	}
	body, err := json.Marshal(p)
	if err != nil { // strings and numbers only
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", ContentTypeProblem)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // who no longer listens can't be told
}

// NotFound answers every request with a 404.
func NotFound(w http.ResponseWriter, r *http.Request) {
	WriteProblem(w, r, Problem{
		Status: http.StatusNotFound, Code: CodeNotFound, Detail: "There is nothing here.",
	})
}
