package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/notifyq/notifyq/cmd/internal/settings"
)

// healthcheckTimeout is longer than the process waits for its database.
const healthcheckTimeout = 3 * time.Second

// healthcheck asks the process next door, for images that hold nothing else that could.
func (p Process) healthcheck(ctx context.Context, path string) int {
	if path == "" {
		path = "/livez"
	}
	if !slices.Contains([]string{"/livez", "/readyz", "/health"}, path) {
		return p.misused("healthcheck asks for /livez, /readyz or /health")
	}
	s, ok := p.load(settings.Options{Only: settings.PartHTTP})
	if !ok {
		return exitSettings
	}
	ctx, cancel := context.WithTimeout(ctx, healthcheckTimeout)
	defer cancel()
	return p.ended(get(ctx, "http://"+net.JoinHostPort(Reachable(s.Host), strconv.Itoa(s.Port))+path))
}

// Reachable is the own machine's address for one that means all of its addresses.
func Reachable(host string) string {
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil || !addr.IsUnspecified():
		return host
	case addr.Is4():
		return "127.0.0.1"
	default:
		return "::1"
	}
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true} // and no proxy
	answer, err := transport.RoundTrip(req)
	if err != nil {
		return errors.New("no answer")
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	return nil
}
