package settings

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
)

// String is every setting but the secrets, of which it tells only that they are set.
func (s Settings) String() string {
	var words []string
	for _, a := range s.attrs() {
		words = append(words, a.Key+"="+a.Value.String())
	}
	return strings.Join(words, " ")
}

// Format prints String for every verb, so that %+v and %#v show no secret.
func (s Settings) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue has what String has, with a name each.
func (s Settings) LogValue() slog.Value { return slog.GroupValue(s.attrs()...) }

// MarshalJSON is String.
func (s Settings) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

func (s Settings) attrs() []slog.Attr {
	var attrs []slog.Attr
	for _, row := range table(&s) {
		text := row.show()
		if text == "" {
			continue
		}
		if row.secret {
			text = "[set]"
		}
		attrs = append(attrs, slog.String(row.name, text))
	}
	return attrs
}
