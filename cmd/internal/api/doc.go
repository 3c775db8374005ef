// Package api is the HTTP API of notifyq-api: its routes, their document, and the way from bytes to a call of the
// library and back. It holds no rule of its own about notifications; what it adds is the door.
//
// A route is an endpoint: one value that says who may call it, which parameters and which body it takes, what it answers,
// and what it does. The OpenAPI document is made from the same values by huma, and so are the patterns of the mux. huma
// does not take in requests: it would accept duplicate members, other spellings of names and broken UTF-8, and repeat
// submitted values in its errors. A request passes these gates, each with its own problem, before anything is stored:
//
//	key and scope         401, 403     access.go; without keys, where it comes from: 403
//	query                 400          query.go
//	type and size         415, 413     body.go
//	strict JSON           400          internal/strictjson
//	names and kinds       400          decode.go and the request of the endpoint
//	the library's rules   400, 409     failure.go gives fields the names that they have here
//
// Names are exact. A member that is given is meant: null is refused, except within a payload, and as a payload, where it
// is a value like any other. Whole numbers are written as such, so 1.0 and 1e3 are not. Times are RFC 3339 with upper-case
// T and Z, an offset, and up to nine digits of a second's fraction.
package api
