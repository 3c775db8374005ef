package strictjson

import (
	"bytes"
	"slices"
)

// Canonical is AppendCanonical to nothing.
func Canonical(b []byte) []byte {
	return AppendCanonical(make([]byte, 0, len(b)), b)
}

// AppendCanonical appends the canonical form of b, which Check must have accepted; anything else may panic. Two values
// have the same canonical form if and only if they are the same JSON up to the order of members, white space and the
// spelling of escapes:
//
//   - members are sorted by the bytes of their unescaped names;
//   - there is no white space between tokens;
//   - strings escape only what must be: the quote, the backslash, and control characters in their shortest way;
//   - numbers stay as they were written, so that 1.0 differs from 1 and 1e2 from 100.
//
// The canonical form is itself accepted by Check, within the same limit of depth. Sorting copies a member once for
// every object around it, so that the time is linear for any given depth, but for the sorting of names.
func AppendCanonical(dst, b []byte) []byte {
	c := canonizer{in: b, out: dst}
	c.value()
	return c.out
}

type canonizer struct {
	in  []byte
	pos int
	out []byte
	// scratch holds the members of an object while they are put in order.
	scratch []byte
}

// token skips white space and is the first byte after it.
func (c *canonizer) token() byte {
	for isSpace(c.in[c.pos]) {
		c.pos++
	}
	return c.in[c.pos]
}

func (c *canonizer) value() {
	switch c.token() {
	case '{':
		c.object()
	case '[':
		c.array()
	case '"':
		c.text()
	default:
		c.literal()
	}
}

// literal copies a number or a word: all up to a delimiter.
func (c *canonizer) literal() {
	start := c.pos
	for c.pos < len(c.in) && !isSpace(c.in[c.pos]) && c.in[c.pos] != ',' && c.in[c.pos] != ']' && c.in[c.pos] != '}' {
		c.pos++
	}
	c.out = append(c.out, c.in[start:c.pos]...)
}

func (c *canonizer) array() {
	c.pos++
	c.out = append(c.out, '[')
	for c.token() != ']' {
		if c.in[c.pos] == ',' {
			c.pos++
			c.out = append(c.out, ',')
		}
		c.value()
	}
	c.pos++
	c.out = append(c.out, ']')
}

// member is one member of an object: its unescaped name, and where it begins and ends in the output.
type member struct {
	name       []byte
	start, end int
}

func compareMembers(a, b member) int { return bytes.Compare(a.name, b.name) }

func (c *canonizer) object() {
	c.pos++
	c.out = append(c.out, '{')
	var few [fewNames]member
	members := few[:0]
	for c.token() != '}' {
		if c.in[c.pos] == ',' {
			c.pos++
			c.token()
			c.out = append(c.out, ',')
		}
		members = append(members, c.member())
	}
	c.pos++
	if !slices.IsSortedFunc(members, compareMembers) {
		c.sort(members)
	}
	c.out = append(c.out, '}')
}

func (c *canonizer) member() member {
	start := len(c.out)
	name := c.text()
	c.token()
	c.pos++
	c.out = append(c.out, ':')
	c.value()
	return member{name: name, start: start, end: len(c.out)}
}

// sort rewrites the members at the end of the output in the order of their names.
func (c *canonizer) sort(members []member) {
	start := members[0].start
	c.scratch = append(c.scratch[:0], c.out[start:]...)
	c.out = c.out[:start]
	slices.SortFunc(members, compareMembers)
	for i, m := range members {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, c.scratch[m.start-start:m.end-start]...)
	}
}

// text copies a string and returns what it stands for: a piece of the input if there are no escapes.
func (c *canonizer) text() []byte {
	c.pos++
	start, escaped := c.pos, false
	for c.in[c.pos] != '"' {
		if c.in[c.pos] == '\\' {
			escaped = true
			c.pos++
		}
		c.pos++
	}
	content := c.in[start:c.pos]
	c.pos++
	if escaped {
		content = appendUnescaped(make([]byte, 0, len(content)), content)
		c.out = appendQuoted(c.out, content)
		return content
	}
	c.out = append(c.out, '"')
	c.out = append(c.out, content...)
	c.out = append(c.out, '"')
	return content
}

// appendQuoted appends content as a string in its one spelling.
func appendQuoted(dst, content []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, b := range content {
		switch {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b >= ' ':
			dst = append(dst, b)
		case shortEscapes[b] != 0:
			dst = append(dst, '\\', shortEscapes[b])
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&0xf])
		}
	}
	return append(dst, '"')
}

var shortEscapes = [' ']byte{'\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}
