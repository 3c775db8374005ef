package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// badPorts are those that browsers refuse, by the Fetch standard: whoever listens there speaks another protocol, and
// might take a request's body for it.
var badPorts = []uint16{
	0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
	111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532,
	540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061,
	6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
}

// parseTarget takes a URL that may be sent to. The guard looks at the host only where it says by itself what it is; names
// are its business when they have been resolved.
func parseTarget(rawURL string, g guard) (*url.URL, error) {
	if rawURL == "" {
		return nil, invalid("URL", "is required")
	}
	if len(rawURL) > maxURLBytes {
		return nil, invalid("URL", "must be at most 2,048 bytes")
	}
	u, err := url.Parse(rawURL)
	if err != nil { // the parser's own error quotes the URL
		return nil, invalid("URL", "is malformed")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, invalid("URL", "must begin with https:// or http://")
	case u.User != nil:
		return nil, invalid("URL", "must not hold a user or a password")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, invalid("URL", "must name a host")
	case strings.Contains(rawURL, "#"):
		return nil, invalid("URL", "must not have a fragment")
	case !validPort(u):
		return nil, invalid("URL", "must have a port that HTTP may use, or none")
	}
	if err := checkHost(u.Hostname(), g); err != nil {
		return nil, err
	}
	return u, nil
}

func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && !slices.Contains(badPorts, uint16(port))
}

func checkHost(host string, g guard) error {
	refused := invalid("URL", "must not lead outside the public internet; AllowCIDRs makes exceptions")
	if addr, err := netip.ParseAddr(host); err == nil {
		if !g.allows(addr) {
			return refused
		}
		return nil
	}
	if !isHostname(host) {
		return invalid("URL", "must have a host of letters, digits, '-', '_' and '.'")
	}
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	last := labels[len(labels)-1]
	switch {
	case isNumber(last):
		// 127.1, 0x7f.1, 0177.0.0.1 and 2130706433 are addresses to some resolvers and names to others.
		return invalid("URL", "must have an IP address in its usual form, or a name")
	case last == "localhost":
		if !g.allows(netip.MustParseAddr("127.0.0.1")) && !g.allows(netip.IPv6Loopback()) {
			return refused
		}
	case last == "internal", last == "local", strings.HasSuffix(strings.Join(labels, "."), "home.arpa"):
		// Names that exist in private networks only, metadata.google.internal among them.
		if len(g.allow) == 0 {
			return refused
		}
	}
	return nil
}

// isNumber reports whether a last label makes an address of a host, by the URL standard.
func isNumber(label string) bool {
	digits, base := label, 10
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		digits, base = rest, 16
	}
	if digits == "" {
		return true
	}
	return strings.IndexFunc(digits, func(r rune) bool {
		_, err := strconv.ParseUint(string(r), base, 8)
		return err != nil
	}) < 0
}

// isHostname is wider than DNS: container networks have names with underscores.
func isHostname(host string) bool {
	if len(host) > 253 {
		return false
	}
	for _, r := range host {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && r != '-' && r != '_' && r != '.' {
			return false
		}
	}
	return true
}

// targetID tells one URL from another and nothing of either.
func targetID(u *url.URL) string {
	sum := sha256.Sum256([]byte(u.String()))
	return hex.EncodeToString(sum[:16])
}
