package webhook

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
)

// errAddress is all that a refused address leads to. Nothing was asked of the address, so nothing is told of it.
var errAddress = errors.New("the address is not allowed")

// global6 is where public IPv6 addresses are. Loopback, mapped, translated, private, link-local, site-local and
// multicast ones are all outside.
var global6 = netip.MustParsePrefix("2000::/3")

// special holds what is not the public internet, from the IANA registries of special-purpose addresses. The predicates of
// net/netip miss half of it: 100.64.0.1 and 2002:7f00:1:: count as global there.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this network; 0.0.0.0 connects to the machine itself
	netip.MustParsePrefix("10.0.0.0/8"),       // private
	netip.MustParsePrefix("100.64.0.0/10"),    // carrier-grade NAT
	netip.MustParsePrefix("127.0.0.0/8"),      // loopback
	netip.MustParsePrefix("168.63.129.16/32"), // a cloud's own services, at a public address
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local, and the metadata services of clouds
	netip.MustParsePrefix("172.16.0.0/12"),    // private
	netip.MustParsePrefix("192.0.0.0/24"),     // IETF protocols
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation
	netip.MustParsePrefix("192.88.99.0/24"),   // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),   // private
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation
	netip.MustParsePrefix("224.0.0.0/4"),      // multicast
	netip.MustParsePrefix("240.0.0.0/4"),      // reserved, and broadcast
	netip.MustParsePrefix("2001::/23"),        // IETF protocols: Teredo, benchmarks, ORCHID
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // 6to4, which holds an IPv4 address
	netip.MustParsePrefix("3fff::/20"),        // documentation
}

// guard decides which addresses may be connected to.
type guard struct{ allow []netip.Prefix }

// allows reports whether an address is public, or an exception of the operator's.
func (g guard) allows(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() {
		return false
	}
	for _, prefix := range g.allow {
		if prefix.Contains(addr) {
			return true
		}
	}
	if addr.Is6() && !global6.Contains(addr) {
		return false
	}
	for _, prefix := range special {
		if prefix.Contains(addr) {
			return false
		}
	}
	return true
}

// control is for net.Dialer: it runs for each address that a name resolved to, before the connection is made. A check of
// the name alone would look at one answer of a resolver, and the connection would go to the next.
func (g guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" || !g.allows(to.Addr()) {
		return errAddress
	}
	return nil
}
