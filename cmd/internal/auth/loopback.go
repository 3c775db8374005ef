package auth

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Why RequireLoopback refuses a request.
var (
	ErrCrossOrigin = errors.New("the request was made by a page of another site")
	ErrUnknownHost = errors.New("the request names a host that is not the loopback")
)

// RequireLoopback is for a server without keys. Only the own machine can connect to it, but a browser there does so for
// every page that it shows: a form needs nobody's leave to be sent, and a page whose name its owner has made to lead to
// the loopback may read the answers, too. So a request must not come from another site, and has to call the server by an
// address of the loopback, or localhost, with any port.
func RequireLoopback(r *http.Request) error {
	called := url.URL{Host: r.Host}
	if !isLoopback(called.Hostname()) {
		return ErrUnknownHost
	}
	if err := new(http.CrossOriginProtection).Check(r); err != nil {
		return ErrCrossOrigin
	}
	return nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}
