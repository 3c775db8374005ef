package api

import (
	"regexp"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

const timeRule = "must be a time as in RFC 3339, with an offset, such as 2030-01-31T09:30:00Z"

// strictTime is what RFC 3339 has and time.Parse does not mind, or the other way round: commas before fractions, hours of
// one digit, offsets of 99:80. Nine digits are what a time.Time can hold.
var strictTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseTime reads a time. The zero time is refused, since it stands for none.
func parseTime(text string) (time.Time, bool) {
	if !strictTime.MatchString(text) {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	return t, err == nil && !t.IsZero()
}

// timestamp is a time as it is sent: UTC, with the six digits that the database has. The zero time is null.
type timestamp time.Time

const timestampLayout = `"2006-01-02T15:04:05.000000Z"`

// MarshalJSON implements json.Marshaler.
func (t timestamp) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return time.Time(t).UTC().AppendFormat(nil, timestampLayout), nil
}

// Schema implements huma.SchemaProvider. Fields that can be null say so in their tags.
func (timestamp) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time", Examples: []any{"2030-01-31T09:30:00.000000Z"}}
}
