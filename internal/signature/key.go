package signature

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// SecretPrefix is what the text form of a secret may begin with.
const SecretPrefix = "whsec_"

// Sizes of a secret, in bytes.
const (
	MinSecretBytes = 24
	MaxSecretBytes = 64
)

// maxSecrets bounds what a rotation can hold. Every signature is sent, and computed by each receiver.
const maxSecrets = 10

// Key is a secret, decoded. It does not print.
type Key struct{ raw []byte }

// Format prints no byte of the key, whatever the verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[key]")) }

// ParseSecrets decodes secrets, keeping their order. The error names the rule that is broken and never the value.
func ParseSecrets(secrets []string) ([]Key, error) {
	if len(secrets) == 0 {
		return nil, errors.New("must hold at least one secret")
	}
	if len(secrets) > maxSecrets {
		return nil, fmt.Errorf("must hold at most %d secrets", maxSecrets)
	}
	keys := make([]Key, len(secrets))
	for i, secret := range secrets {
		key, err := parseSecret(secret)
		if err != nil {
			return nil, err
		}
		keys[i] = key
	}
	return keys, nil
}

func parseSecret(secret string) (Key, error) {
	// What was read from a file ends in a newline.
	encoded := strings.TrimPrefix(strings.TrimSpace(secret), SecretPrefix)
	if encoded == "" {
		return Key{}, errors.New("must not hold an empty secret")
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	// The decoder skips line breaks: two secrets on two lines would become one that nobody else has.
	if err != nil || strings.ContainsAny(encoded, "\r\n") {
		return Key{}, errors.New("must hold " + SecretPrefix + " and standard base64")
	}
	if len(raw) < MinSecretBytes || len(raw) > MaxSecretBytes {
		return Key{}, fmt.Errorf("must hold secrets of %d to %d bytes, in base64", MinSecretBytes, MaxSecretBytes)
	}
	return Key{raw}, nil
}
