package smtp

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Limits of RFC 5321, section 4.5.3.1: a path of 256 with its angle brackets.
const (
	maxAddressBytes = 254
	maxLocalBytes   = 64
	maxDomainBytes  = 253
	maxLabelBytes   = 63
)

// The rules of an address. Their texts never hold the address.
var (
	errAddressForm   = errors.New("must be a plain address, local@domain")
	errAddressLength = errors.New("must be at most 254 bytes, 64 of them before the @")
	errAddressLocal  = errors.New("has characters before the @ that a plain address can't have")
	errDomain        = errors.New("has no valid domain")
)

// address is a checked addr-spec.
type address struct {
	wire string // with the domain in ASCII: what is written to the server
	utf8 bool   // the local part is not ASCII: the server must offer SMTPUTF8
}

// parseAddress takes an addr-spec and nothing around it. It is stricter than RFC 5321 on purpose: quoted local parts
// carried ESMTP parameters past other checks (CVE-2025-59937), and no mailbox that gets notifications needs them.
func parseAddress(s string) (address, error) {
	local, domain, found := strings.Cut(s, "@")
	if !found || local == "" || domain == "" || !utf8.ValidString(s) {
		return address{}, errAddressForm
	}
	if len(local) > maxLocalBytes || len(s) > maxAddressBytes {
		return address{}, errAddressLength
	}
	if !isDotAtom(local) {
		return address{}, errAddressLocal
	}
	ascii, err := asciiDomain(domain)
	if err != nil {
		return address{}, err
	}
	a := address{wire: local + "@" + ascii, utf8: !isASCII(local)}
	if len(a.wire) > maxAddressBytes {
		return address{}, errAddressLength
	}
	return a, nil
}

// isDotAtom is the dot-atom of RFC 5322, widened by RFC 6532 to letters, marks, digits and symbols outside ASCII. What
// is invisible or turns the writing direction (U+200B, U+202E) is none of these. U+FFFD is what a decoder leaves of bytes
// that were not UTF-8: not what was meant.
func isDotAtom(local string) bool {
	if local[0] == '.' || local[len(local)-1] == '.' || strings.Contains(local, "..") {
		return false
	}
	for _, r := range local {
		if r < utf8.RuneSelf {
			if !isAtext(byte(r)) && r != '.' {
				return false
			}
			continue
		}
		if !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.S) || r == utf8.RuneError {
			return false
		}
	}
	return true
}

func isAtext(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' ||
		strings.IndexByte("!#$%&'*+-/=?^_`{|}~", b) >= 0
}

// asciiDomain checks a domain and gives its ASCII form. One that is ASCII already is returned as it is.
func asciiDomain(domain string) (string, error) {
	ascii := domain
	if !isASCII(domain) {
		// The mapping below drops what is invisible: exam<U+200B>ple would go to example.
		for _, r := range domain {
			if r >= utf8.RuneSelf && !unicode.In(r, unicode.L, unicode.M, unicode.N) {
				return "", errDomain
			}
		}
		var err error
		if ascii, err = idna.Lookup.ToASCII(domain); err != nil {
			return "", errDomain
		}
	}
	if ascii == "" || len(ascii) > maxDomainBytes {
		return "", errDomain
	}
	for label := range strings.SplitSeq(ascii, ".") {
		if !isLabel(label) {
			return "", errDomain
		}
	}
	return ascii, nil
}

// isLabel holds for letters, digits and inner hyphens.
func isLabel(label string) bool {
	if label == "" || len(label) > maxLabelBytes || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		b := label[i]
		if !('a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-') {
			return false
		}
	}
	return true
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isHeaderSafe holds for valid UTF-8 in which nothing ends a line or controls a terminal: no C0, DEL or C1 (U+0085 is
// a line end to some), no line or paragraph separator.
func isHeaderSafe(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return false
		}
	}
	return true
}
