package api

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/notifyq/notifyq/cmd/internal/httpserver"
	"github.com/notifyq/notifyq/internal/strictjson"
)

// Limits of bodies.
const (
	maxBodyBytes  = 128 << 10
	maxBatchBytes = 8 << 20
	// maxBodyDepth is far above a payload's 64 levels, so that it is the library that speaks of payloads, and far below
	// what would be a strain.
	maxBodyDepth = 1000
)

// bodyType is what an endpoint takes.
type bodyType struct {
	model    any               // a value of the type that documents it
	words    map[string]string // on its members, beside those in tags
	example  string
	maxBytes int64
	optional bool // there may be none
}

// readBody reads a body that is strict JSON, or nothing where that is allowed. A nil type takes none.
func readBody(w http.ResponseWriter, r *http.Request, t *bodyType, s *share) ([]byte, error) {
	if t == nil {
		return nil, refuseBody(w, r, s)
	}
	body, err := readAll(w, r, t.maxBytes, s)
	switch {
	case err != nil:
		return nil, err
	case len(body) == 0 && t.optional && !typed(r):
		return nil, nil
	}
	if err := checkType(r); err != nil || len(body) == 0 && t.optional {
		return nil, err
	}
	err = strictjson.Check(body, strictjson.Limits{MaxDepth: maxBodyDepth})
	var broken *strictjson.Error
	if errors.As(err, &broken) {
		return nil, &refusal{
			status: http.StatusBadRequest, code: codeInvalidJSON, detail: "The body is not JSON as it has to be.",
			errors: []httpserver.FieldError{{Field: "body", Rule: broken.Rule}},
		}
	}
	return bytes.Trim(body, " \t\r\n"), err
}

// refuseBody is for endpoints without a body: one that is passed over in silence was meant to do something.
func refuseBody(w http.ResponseWriter, r *http.Request, s *share) error {
	if r.ContentLength == 0 {
		return nil
	}
	if _, err := readAll(w, r, 0, s); err == nil {
		return nil // chunks, but none
	}
	refused := invalidRequest("body", "must not be given")
	refused.header = closing()
	return refused
}

// typed tells whether a request says what its body is, though it may have none.
func typed(r *http.Request) bool {
	return len(r.Header.Values("Content-Type"))+len(r.Header.Values("Content-Encoding")) > 0
}

// checkType takes application/json in UTF-8 and nothing that would have to be unpacked.
func checkType(r *http.Request) error {
	refused := &refusal{
		status: http.StatusUnsupportedMediaType, code: codeUnsupportedMediaType,
		detail: "The body must be application/json in UTF-8, without a content encoding.",
		header: [][2]string{{"Accept", "application/json"}},
	}
	if len(r.Header.Values("Content-Encoding")) > 0 {
		return refused
	}
	given := r.Header.Values("Content-Type")
	if len(given) != 1 {
		return refused
	}
	mediaType, params, err := mime.ParseMediaType(given[0])
	if err != nil || mediaType != "application/json" {
		return refused
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return refused
		}
	}
	return nil
}

// readAll reads at most maxBytes, whatever length was announced. Memory is taken as bytes arrive.
func readAll(w http.ResponseWriter, r *http.Request, maxBytes int64, s *share) ([]byte, error) {
	if r.ContentLength > maxBytes {
		return nil, tooLarge(maxBytes)
	}
	var body bytes.Buffer
	if r.ContentLength > 0 {
		const trusted = 8 << 10
		body.Grow(int(min(r.ContentLength, trusted)) + bytes.MinRead)
	}
	limited := http.MaxBytesReader(w, r.Body, maxBytes)
	_, err := body.ReadFrom(s.reader(limited))
	var larger *http.MaxBytesError
	var network net.Error
	switch {
	case err == nil:
		return body.Bytes(), nil
	case errors.As(err, &larger):
		return nil, tooLarge(maxBytes)
	case errors.Is(err, errNoMemory):
		// To the end, since a client that is cut off while it sends does not see the answer; but keeping nothing.
		body = bytes.Buffer{}
		s.giveBack()
		_, _ = io.Copy(io.Discard, limited)
		return nil, overloaded()
	case errors.As(err, &network) && network.Timeout():
		return nil, &refusal{
			status: http.StatusRequestTimeout, code: codeRequestTimeout, detail: "The body took too long.", header: closing(),
		}
	default: // the client left, or its chunks are none
		return nil, &refusal{
			status: http.StatusBadRequest, code: codeIncompleteBody, detail: "The body did not arrive whole.", header: closing(),
		}
	}
}

func tooLarge(maxBytes int64) error {
	return &refusal{
		status: http.StatusRequestEntityTooLarge, code: codeBodyTooLarge,
		detail: "The body must be at most " + strconv.FormatInt(maxBytes, 10) + " bytes.", header: closing(),
	}
}

// overloaded asks to come back soon: those who have the memory need a second or two each.
func overloaded() error {
	return &refusal{
		status: http.StatusServiceUnavailable, code: codeOverloaded, detail: "Too many large bodies are on their way. Try again.",
		header: [][2]string{{"Retry-After", "2"}},
	}
}

// closing ends the connection after the answer: what is left of the body is not worth reading.
func closing() [][2]string { return [][2]string{{"Connection", "close"}} }
