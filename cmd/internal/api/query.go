package api

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notifyq/notifyq/cmd/internal/httpserver"
)

// parameter is one that an endpoint takes in its query.
type parameter struct {
	name   string
	words  string
	schema *huma.Schema
}

// readQuery reads a query that has nothing but what is known, each at most once and not empty: an empty filter would be
// no filter, which is more than was asked for.
func readQuery(raw string, known []parameter) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalidRequest("query", "must be a well-formed query")
	}
	var broken []httpserver.FieldError
	for _, p := range known {
		switch given := query[p.name]; {
		case len(given) > 1:
			broken = append(broken, httpserver.FieldError{Field: p.name, Rule: "must be given once"})
		case len(given) == 1 && given[0] == "":
			broken = append(broken, httpserver.FieldError{Field: p.name, Rule: "must not be empty"})
		}
	}
	for name := range query {
		if !slices.ContainsFunc(known, func(p parameter) bool { return p.name == name }) {
			broken = append(broken, httpserver.FieldError{Field: "query", Rule: "must not have other parameters than documented"})
			break
		}
	}
	if broken != nil {
		return nil, breaks(broken)
	}
	return query, nil
}

// maxLimit is how many items the library gives, or changes, at most.
const maxLimit = 1000

// readLimit reads a number of items; 0 is none given, for which the library has a default. The rule is here because the
// library would take a 0 for that, too, and because a list by idempotency key has no limit there.
func readLimit(query url.Values) (int, error) {
	if !query.Has("limit") {
		return 0, nil
	}
	number, err := strconv.ParseUint(query.Get("limit"), 10, 31)
	if err != nil || number < 1 || number > maxLimit {
		return 0, invalidRequest("limit", "must be a whole number between 1 and 1,000")
	}
	return int(number), nil
}
