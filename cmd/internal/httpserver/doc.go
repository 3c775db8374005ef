// Package httpserver is what the binaries share of HTTP: a server with limits, that ends in good order, and the layers
// around a handler. Wrap puts them on: a request id, one log line a request, security headers, and a net under panics.
// Routes makes a mux answer what it does not know with a problem, as everything else does.
package httpserver
