// Package auth knows who may call the API: keys from the settings, each bound to a tenant and to scopes.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/notifyq/notifyq"
)

// Scope is a kind of call.
type Scope string

// The scopes.
const (
	ScopeSchedule Scope = "schedule" // ask for notifications
	ScopeRead     Scope = "read"     // read jobs and attempts
	ScopeOperate  Scope = "operate"  // cancel, redrive, pause, enable
)

// Limits of a key.
const (
	MinKeyBytes = 16
	MaxKeyBytes = 256
)

// everyTenant stands in place of a tenant for a key that is bound to none.
const everyTenant = "*"

// Key is what is kept of an API key: its hash and what it may do. The key itself can't be had back, and a Key prints as
// its Name.
type Key struct {
	hash   [sha256.Size]byte
	tenant string
	scopes map[Scope]bool
}

// ParseKeys reads the setting API_KEYS: key:tenant:scope+scope, separated by commas, so that several keys may hold at
// once while they are exchanged. Nothing gives no keys.
//
// The key is 16 to 256 visible ASCII characters, of course without colon and comma. The tenant is that whose jobs the
// key sees and makes. Left empty it is the empty tenant, which has the jobs that were scheduled without one, and not the
// whole system; for that there is "*", whose holder sees every tenant's jobs, schedules in the empty tenant, and alone
// may pause channels and enable endpoints. Errors name the setting and the key's place, and hold nothing of it.
func ParseKeys(text string) ([]Key, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var keys []Key
	places := make(map[[sha256.Size]byte]int)
	for i, part := range strings.Split(text, ",") {
		place := i + 1
		key, err := parseKey(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("API_KEYS: key %d %w", place, err)
		}
		if first, ok := places[key.hash]; ok {
			return nil, fmt.Errorf("API_KEYS: key %d is the same as key %d", place, first)
		}
		places[key.hash] = place
		keys = append(keys, key)
	}
	return keys, nil
}

func parseKey(text string) (Key, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return Key{}, errors.New("must have the form key:tenant:scope+scope")
	}
	secret, tenant := parts[0], parts[1]
	switch {
	case len(secret) < MinKeyBytes || len(secret) > MaxKeyBytes:
		return Key{}, fmt.Errorf("must be %d to %d bytes", MinKeyBytes, MaxKeyBytes)
	case strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }):
		return Key{}, errors.New("must be visible ASCII")
	case len(tenant) > notifyq.MaxTenantBytes:
		return Key{}, fmt.Errorf("must have a tenant of at most %d bytes", notifyq.MaxTenantBytes)
	case !utf8.ValidString(tenant) || strings.ContainsFunc(tenant, unsafeInTenant):
		return Key{}, errors.New("must have a tenant without control characters")
	}
	scopes, err := parseScopes(parts[2])
	return Key{hash: sha256.Sum256([]byte(secret)), tenant: tenant, scopes: scopes}, err
}

func unsafeInTenant(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

func parseScopes(text string) (map[Scope]bool, error) {
	scopes := make(map[Scope]bool)
	for name := range strings.SplitSeq(text, "+") {
		switch scope := Scope(name); scope {
		case ScopeSchedule, ScopeRead, ScopeOperate:
			if scopes[scope] {
				return nil, fmt.Errorf("has the scope %s twice", scope)
			}
			scopes[scope] = true
		default:
			return nil, errors.New("must have scopes of schedule, read and operate, joined by +")
		}
	}
	return scopes, nil
}

// Find is the key that was presented. It takes as long whatever is presented, and whichever key it is.
func Find(keys []Key, presented string) (Key, bool) {
	hash := sha256.Sum256([]byte(presented))
	found := -1
	for i := range keys {
		equal := subtle.ConstantTimeCompare(hash[:], keys[i].hash[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	if found < 0 {
		return Key{}, false
	}
	return keys[found], true
}

// Allows reports whether the key has a scope.
func (k Key) Allows(scope Scope) bool { return k.scopes[scope] }

// WholeSystem reports whether the key is bound to no tenant.
func (k Key) WholeSystem() bool { return k.tenant == everyTenant }

// Client is c as far as the key may use it.
func (k Key) Client(c *notifyq.Client) *notifyq.Client {
	if k.WholeSystem() {
		return c
	}
	return c.ForTenant(k.tenant)
}

// Name tells keys apart in logs and in the table of operations, and nothing of the key can be learnt from it.
func (k Key) Name() string { return "key:" + hex.EncodeToString(k.hash[:4]) }

// Format prints the name for every verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(k.Name())) }

// LogValue is the name.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.Name()) }

// MarshalText is the name, for JSON.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.Name()), nil }

// RequireKeys refuses to serve others than the own machine without keys: it returns an error that names HOST and
// API_KEYS if there are none and host is not an address of the loopback, or localhost. The empty host is every address.
func RequireKeys(host string, keys []Key) error {
	if len(keys) > 0 || isLoopback(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")) {
		return nil
	}
	return errors.New("HOST: must be a loopback address unless API_KEYS is set")
}
