// Package traceparent knows the one form in which a trace goes on over the queue: the traceparent of W3C Trace Context.
package traceparent

import "regexp"

// Header is the name that it travels under in HTTP.
const Header = "Traceparent"

var form = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// Valid tells whether a text has the form. Version, trace and parent are not looked into: who reads them may know more
// than we do.
func Valid(text string) bool { return form.MatchString(text) }
