package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/httpserver"
	"github.com/notifyq/notifyq/internal/store"
)

// Codes of problems, beside those of httpserver. They are part of the contract.
const (
	codeInvalidJSON          = "invalid_json"
	codeInvalidRequest       = "invalid_request"
	codeUnauthorized         = "unauthorized"
	codeMissingScope         = "missing_scope"
	codeTenantKey            = "tenant_key"
	codeUnknownHost          = "unknown_host"
	codeCrossOrigin          = "cross_origin"
	codeKeyReused            = "idempotency_key_reused"
	codeNotCancellable       = "not_cancellable"
	codeNotRedrivable        = "not_redrivable"
	codeRequestTimeout       = "request_timeout"
	codeIncompleteBody       = "incomplete_body"
	codeBodyTooLarge         = "body_too_large"
	codeUnsupportedMediaType = "unsupported_media_type"
	codeUnavailable          = "database_unavailable"
	codeOverloaded           = "overloaded"
)

// retryAfter is when to come back while the database is away, in seconds.
const retryAfter = "5"

// refusal is an error that knows its problem.
type refusal struct {
	status int
	code   string
	detail string
	errors []httpserver.FieldError
	header [][2]string
	// current is the status of the job that is the reason.
	current notifyq.Status
}

func (f *refusal) Error() string { return f.code }

func invalidRequest(field, rule string) *refusal {
	return breaks([]httpserver.FieldError{{Field: field, Rule: rule}})
}

func breaks(rules []httpserver.FieldError) *refusal {
	return &refusal{
		status: http.StatusBadRequest, code: codeInvalidRequest, detail: "The request breaks a rule.", errors: rules,
	}
}

// fail answers with the problem that err is.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		w.WriteHeader(httpserver.StatusClientGone)
		return
	}
	f := refusalOf(err)
	if f.status >= http.StatusInternalServerError {
		httpserver.Explain(r.Context(), store.Describe(err))
	}
	for _, line := range f.header {
		w.Header().Set(line[0], line[1])
	}
	httpserver.WriteProblem(w, r, httpserver.Problem{
		Status: f.status, Code: f.code, Detail: f.detail, Errors: f.errors, CurrentStatus: string(f.current),
	})
}

// refusalOf is the one place that says what the library's errors are in HTTP.
func refusalOf(err error) *refusal {
	var known *refusal
	var invalid *notifyq.InvalidError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &invalid):
		return breaks([]httpserver.FieldError{fieldError(invalid)})
	case errors.Is(err, notifyq.ErrKeyReused):
		return &refusal{
			status: http.StatusConflict, code: codeKeyReused, detail: "The idempotency key was used for another request.",
		}
	case errors.Is(err, notifyq.ErrNotFound):
		return &refusal{status: http.StatusNotFound, code: httpserver.CodeNotFound, detail: "There is nothing of this name."}
	case errors.Is(err, notifyq.ErrNotCancellable):
		return &refusal{
			status: http.StatusConflict, code: codeNotCancellable, detail: "Only a pending notification can be cancelled.",
		}
	case errors.Is(err, notifyq.ErrNotRedrivable):
		return &refusal{
			status: http.StatusConflict, code: codeNotRedrivable,
			detail: "Only a failed or dead-lettered notification that has neither expired nor been erased can be retried.",
		}
	case errors.Is(err, notifyq.ErrSchema):
		return &refusal{
			status: http.StatusServiceUnavailable, code: codeUnavailable,
			detail: "The database does not have the schema that this server needs, or lacks a right on it.",
			header: [][2]string{{"Retry-After", retryAfter}},
		}
	case databaseAway(err):
		return &refusal{
			status: http.StatusServiceUnavailable, code: codeUnavailable, detail: "The database does not answer. Try again.",
			header: [][2]string{{"Retry-After", retryAfter}},
		}
	default:
		return &refusal{
			status: http.StatusInternalServerError, code: httpserver.CodeInternal, detail: "Something went wrong here.",
		}
	}
}

// fieldError gives a field of the library the name that it has in JSON, and leaves nothing of Go in its rule.
func fieldError(e *notifyq.InvalidError) httpserver.FieldError {
	switch e.Field {
	case "Delay":
		return httpserver.FieldError{Field: "delaySeconds", Rule: e.Rule}
	case "RecipientKey":
		return httpserver.FieldError{Field: "recipient", Rule: e.Rule}
	case "Cursor":
		return httpserver.FieldError{Field: "cursor", Rule: "must be the nextCursor of a page of the same list"}
	default:
		return httpserver.FieldError{Field: strings.ToLower(e.Field[:1]) + e.Field[1:], Rule: e.Rule}
	}
}

// databaseAway tells an error that goes away when the database is back, or less busy. What the server did not say, and
// no mistake of ours explains, is a connection that broke or was never made; pgx has no type for some of these.
func databaseAway(err error) bool {
	if code := store.Code(err); code != "" {
		return store.IsReadOnly(err) || awayState(code)
	}
	return !store.IsMisfit(err)
}

func awayState(code string) bool {
	switch code {
	case "28000", "28P01", "3D000", "40001", "40P01", "55P03": // refused, conflicts that last, locked
		return true
	}
	switch code[:min(2, len(code))] {
	case "08", "53", "57", "58": // connection, resources, the operator's doing, the system
		return true
	default:
		return false
	}
}
