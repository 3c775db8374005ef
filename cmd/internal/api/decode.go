package api

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/notifyq/notifyq/cmd/internal/httpserver"
)

// decoder turns members into Go values, and gathers what is wrong with them by their names. What is wrong gives the zero
// value, which nobody uses: err is asked for first.
type decoder struct {
	whole    string   // what the members are of: body, or notification in a batch
	required []string // members that can't be left out
	broken   []httpserver.FieldError
}

func (d *decoder) fault(field, rule string) {
	d.broken = append(d.broken, httpserver.FieldError{Field: field, Rule: rule})
}

func (d *decoder) err() error {
	if d.broken == nil {
		return nil
	}
	return breaks(d.broken)
}

// unknown is a member that nobody knows. Its name is the client's, and may be anything.
func (d *decoder) unknown() {
	for _, b := range d.broken {
		if b.Field == d.whole {
			return
		}
	}
	d.fault(d.whole, "must not have other members than documented")
}

// is reports whether a value is of the kind that rule asks for.
func (d *decoder) is(kind bool, field string, value []byte, rule string) bool {
	switch {
	case kind:
		return true
	case value[0] == 'n' && slices.Contains(d.required, field):
		d.fault(field, "must not be null")
	case value[0] == 'n':
		d.fault(field, "must not be null; leave it out")
	default:
		d.fault(field, rule)
	}
	return false
}

// object reports whether a value has members.
func (d *decoder) object(value []byte) bool {
	if value[0] != '{' {
		d.fault(d.whole, "must be an object")
	}
	return value[0] == '{'
}

// complete faults required members that are not among the given ones.
func (d *decoder) complete(given ...string) {
	for _, name := range d.required {
		if !slices.Contains(given, name) {
			d.fault(name, "must be given")
		}
	}
}

func (d *decoder) text(field string, value []byte) string {
	if !d.is(value[0] == '"', field, value, "must be a string") {
		return ""
	}
	return string(unescaped(value))
}

// filter is a text that narrows something down. Empty, it would not.
func (d *decoder) filter(field string, value []byte) string {
	text := d.text(field, value)
	if string(value) == `""` {
		d.fault(field, "must not be empty")
	}
	return text
}

// integer is a whole number, and the nearest of int64 for one that is further out: no rule lets either pass.
func (d *decoder) integer(field string, value []byte) int64 {
	number, err := strconv.ParseInt(string(value), 10, 64)
	whole := err == nil || number == math.MaxInt64 || number == math.MinInt64
	d.is(whole, field, value, "must be an integer, written without fraction and exponent")
	return number
}

// count is an integer where the library takes 0 for its default. Who writes 0 does not mean that.
func (d *decoder) count(field string, value []byte, most int) int {
	number := d.integer(field, value)
	if number < 1 {
		return -1
	}
	return int(min(number, int64(most)+1))
}

func (d *decoder) number(field string, value []byte) float64 {
	number, err := strconv.ParseFloat(string(value), 64)
	d.is(err == nil, field, value, "must be a number")
	return number
}

func (d *decoder) time(field string, value []byte) time.Time {
	if !d.is(value[0] == '"', field, value, timeRule) {
		return time.Time{}
	}
	t, ok := parseTime(string(unescaped(value)))
	if !ok {
		d.fault(field, timeRule)
	}
	return t
}
