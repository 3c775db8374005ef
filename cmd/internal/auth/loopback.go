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
	ErrUnknownHost = errors.New("the request names a host that is not of this machine")
)

// RequireLoopback is for a server without keys. Only the own machine can connect to it, but a browser there does so for
// every page that it shows: a form needs nobody's leave to be sent, and a page whose name its owner has made to lead to
// the loopback may read the answers, too. So a request must not come from another site, and has to call the server by an
// address of the loopback or by a single label such as localhost or a container's name, with any port. No owner of a
// public site has a label alone: it is looked up on the machine and in its own network.
func RequireLoopback(r *http.Request) error {
	called := url.URL{Host: r.Host}
	if host := called.Hostname(); !isLoopback(host) && !isLabel(host) {
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

// isLabel lets nothing through that could be more than one: neither dots, also those of other scripts, nor addresses.
func isLabel(host string) bool {
	for i := range len(host) {
		b := host[i]
		if (b|0x20 < 'a' || b|0x20 > 'z') && (b < '0' || b > '9') && b != '-' && b != '_' {
			return false
		}
	}
	return host != ""
}
