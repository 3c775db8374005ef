// Package strictjson is the one place that judges JSON. It refuses what parsers disagree about (duplicate member names,
// lone surrogates, broken UTF-8, bytes after the value) and what the store can't hold (U+0000), so that what is
// checked, stored, signed and sent is the same value to everybody. It also writes the canonical form that request
// fingerprints are made of.
//
// It reads and never rewrites: what Check accepts is kept as given, digits of numbers included.
package strictjson

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// Limits bound what Check accepts.
type Limits struct {
	// MaxBytes is the length of the input, white space around the value included. Zero means no limit.
	MaxBytes int
	// MaxDepth is how deep values may be nested. The root is depth 1, whether scalar, array or object, and each array
	// or object inside another adds one: 1, [] and [1] have depth 1, [[]] has depth 2. Zero means DefaultMaxDepth.
	// Above 10,000 encoding/json refuses what Check accepts.
	MaxDepth int
}

// DefaultMaxDepth is the depth of a payload. A body that carries payloads needs room for its own levels besides.
const DefaultMaxDepth = 64

// The rules that don't depend on Limits, as an Error gives them.
const (
	RuleEmpty     = "must not be empty"
	RuleSyntax    = "must be valid JSON"
	RuleTrailing  = "must be a single JSON value with nothing after it"
	RuleBOM       = "must not begin with a byte order mark"
	RuleUTF8      = "must be valid UTF-8"
	RuleSurrogate = "must not contain lone surrogates"
	RuleNUL       = "must not contain U+0000"
	RuleDuplicate = "must not contain duplicate member names"
	RuleNumber    = "must not contain numbers outside a double's range"
)

// Error is the first rule that the input breaks. It holds nothing of the input, no member names either: both are
// personal.
type Error struct {
	// Rule is a sentence without its subject, the same for every input that breaks it.
	Rule string
	// Offset is the byte at which the rule was seen to be broken, counted from 0; the length of the input if it ends
	// too early.
	Offset int
}

func (e *Error) Error() string {
	return fmt.Sprintf("strictjson: %s (at byte %d)", e.Rule, e.Offset)
}

// Check reports whether b is exactly one JSON value (RFC 8259) in valid UTF-8, perhaps with white space around it,
// within the limits, and without lone surrogates, U+0000 in a string or name, duplicate member names in one object
// (compared after unescaping), and numbers that a double can't hold: 1e400 is refused, while 1e-400, which rounds to
// zero, and digits beyond a double's precision are not. Every error is an *Error.
//
// It takes linear time, and allocates only for objects of more than 16 members and for names with escapes.
func Check(b []byte, limits Limits) error {
	if limits.MaxBytes != 0 && len(b) > limits.MaxBytes {
		return &Error{Rule: "must be at most " + strconv.Itoa(limits.MaxBytes) + " bytes", Offset: limits.MaxBytes}
	}
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		return &Error{Rule: RuleBOM}
	}
	c := checker{b: b, maxDepth: limits.MaxDepth}
	if c.maxDepth == 0 {
		c.maxDepth = DefaultMaxDepth
	}
	c.space()
	if c.pos == len(b) {
		return c.fail(RuleEmpty, c.pos)
	}
	if err := c.value(1); err != nil {
		return err
	}
	c.space()
	if c.pos < len(b) {
		return c.fail(RuleTrailing, c.pos)
	}
	return nil
}

// checker walks the input once. Its methods start at pos and leave it behind what they read. The recursion is bounded
// by maxDepth.
type checker struct {
	b        []byte
	pos      int
	maxDepth int
}

func (c *checker) fail(rule string, at int) error {
	if rule == RuleSyntax || rule == RuleTrailing {
		if r, size := utf8.DecodeRune(c.b[at:]); r == utf8.RuneError && size == 1 {
			rule = RuleUTF8 // UTF-16, say
		}
	}
	return &Error{Rule: rule, Offset: at}
}

// peek is the next byte, or 0, which no rule allows between tokens, at the end.
func (c *checker) peek() byte {
	if c.pos < len(c.b) {
		return c.b[c.pos]
	}
	return 0
}

func (c *checker) space() {
	for c.pos < len(c.b) && isSpace(c.b[c.pos]) {
		c.pos++
	}
}

func isSpace(b byte) bool {
	return b == ' ' || b == '\n' || b == '\t' || b == '\r'
}

// value reads one value of the given depth, without white space around it.
func (c *checker) value(depth int) error {
	switch c.peek() {
	case '{':
		return c.object(depth)
	case '[':
		return c.array(depth)
	case '"':
		_, err := c.text()
		return err
	case 't':
		return c.word("true")
	case 'f':
		return c.word("false")
	case 'n':
		return c.word("null")
	default:
		return c.number()
	}
}

func (c *checker) word(word string) error {
	for i := range len(word) {
		if c.peek() != word[i] {
			return c.fail(RuleSyntax, c.pos)
		}
		c.pos++
	}
	return nil
}

func (c *checker) object(depth int) error {
	if depth > c.maxDepth {
		return c.tooDeep()
	}
	c.pos++
	c.space()
	if c.peek() == '}' {
		c.pos++
		return nil
	}
	var names nameSet
	for {
		if err := c.member(depth, &names); err != nil {
			return err
		}
		if more, err := c.next('}'); !more {
			return err
		}
	}
}

// member reads a name, which it puts into names, a colon and a value.
func (c *checker) member(depth int, names *nameSet) error {
	start := c.pos
	if c.peek() != '"' {
		return c.fail(RuleSyntax, start)
	}
	escaped, err := c.text()
	if err != nil {
		return err
	}
	name := c.b[start+1 : c.pos-1]
	if escaped {
		name = appendUnescaped(nil, name)
	}
	if !names.add(name) {
		return c.fail(RuleDuplicate, start)
	}
	c.space()
	if c.peek() != ':' {
		return c.fail(RuleSyntax, c.pos)
	}
	c.pos++
	c.space()
	return c.value(depth + 1)
}

func (c *checker) array(depth int) error {
	if depth > c.maxDepth {
		return c.tooDeep()
	}
	c.pos++
	c.space()
	if c.peek() == ']' {
		c.pos++
		return nil
	}
	for {
		if err := c.value(depth + 1); err != nil {
			return err
		}
		if more, err := c.next(']'); !more {
			return err
		}
	}
}

func (c *checker) tooDeep() error {
	return c.fail("must be nested at most "+strconv.Itoa(c.maxDepth)+" deep", c.pos)
}

// next reads what follows an element: a comma, after which there is more, or end.
func (c *checker) next(end byte) (more bool, err error) {
	c.space()
	switch c.peek() {
	case ',':
		c.pos++
		c.space()
		return true, nil
	case end:
		c.pos++
		return false, nil
	default:
		return false, c.fail(RuleSyntax, c.pos)
	}
}

// number reads a number and refuses one that a double can't hold. It counts instead of converting, since only numbers
// within a factor of ten of the largest double need the conversion.
func (c *checker) number() error {
	start := c.pos
	if c.peek() == '-' {
		c.pos++
	}
	whole := c.digits()
	if len(whole) == 0 {
		return c.fail(RuleSyntax, c.pos)
	}
	if whole[0] == '0' && len(whole) > 1 {
		return c.fail(RuleSyntax, c.pos-len(whole)+1)
	}
	var fraction []byte
	if c.peek() == '.' {
		c.pos++
		if fraction = c.digits(); len(fraction) == 0 {
			return c.fail(RuleSyntax, c.pos)
		}
	}
	exponent, err := c.exponent()
	if err != nil {
		return err
	}
	if len(whole)+exponent < 309 {
		return nil
	}
	if !inRange(whole, fraction, exponent, c.b[start:c.pos]) {
		return c.fail(RuleNumber, start)
	}
	return nil
}

func (c *checker) digits() []byte {
	start := c.pos
	for c.pos < len(c.b) && '0' <= c.b[c.pos] && c.b[c.pos] <= '9' {
		c.pos++
	}
	return c.b[start:c.pos]
}

// exponentCap keeps an exponent within 32 bits and is beyond what digits can make up for, unless there are 100 MB of
// them.
const exponentCap = 100_000_000

func (c *checker) exponent() (int, error) {
	if c.peek()|0x20 != 'e' {
		return 0, nil
	}
	c.pos++
	sign := c.peek()
	if sign == '-' || sign == '+' {
		c.pos++
	}
	digits := c.digits()
	if len(digits) == 0 {
		return 0, c.fail(RuleSyntax, c.pos)
	}
	exponent := 0
	for _, d := range digits {
		exponent = min(exponent*10+int(d-'0'), exponentCap)
	}
	if sign == '-' {
		exponent = -exponent
	}
	return exponent, nil
}

// inRange looks for the first digit that counts: with it at 10^307 or below a number fits, at 10^309 or above it
// doesn't, and between them strconv decides.
func inRange(whole, fraction []byte, exponent int, literal []byte) bool {
	position := exponent + len(whole) - 1
	if whole[0] == '0' {
		zeros := len(fraction) - len(bytes.TrimLeft(fraction, "0"))
		if zeros == len(fraction) {
			return true // it is zero
		}
		position = exponent - zeros - 1
	}
	if position != 308 {
		return position < 308
	}
	_, err := strconv.ParseFloat(string(literal), 64)
	return err == nil
}

// text reads a string from quote to quote, and tells whether it holds escapes.
func (c *checker) text() (escaped bool, err error) {
	c.pos++
	for c.pos < len(c.b) {
		b := c.b[c.pos]
		switch {
		case b >= ' ' && b < utf8.RuneSelf && b != '"' && b != '\\':
			c.pos++
		case b == '"':
			c.pos++
			return escaped, nil
		case b == '\\':
			escaped = true
			if err := c.escape(); err != nil {
				return false, err
			}
		case b == 0:
			return false, c.fail(RuleNUL, c.pos)
		case b < ' ':
			return false, c.fail(RuleSyntax, c.pos)
		default:
			r, size := utf8.DecodeRune(c.b[c.pos:])
			if r == utf8.RuneError && size == 1 {
				return false, c.fail(RuleUTF8, c.pos)
			}
			c.pos += size
		}
	}
	return false, c.fail(RuleSyntax, c.pos)
}

// escape reads one escape, or the two that make up a character outside the basic plane.
func (c *checker) escape() error {
	start := c.pos
	c.pos++
	switch c.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.pos++
		return nil
	case 'u':
		c.pos++
	default:
		return c.fail(RuleSyntax, c.pos)
	}
	unit, err := c.hex()
	if err != nil {
		return err
	}
	switch {
	case unit == 0:
		return c.fail(RuleNUL, start)
	case unit < 0xd800 || unit > 0xdfff:
		return nil
	case unit >= 0xdc00 || !bytes.HasPrefix(c.b[c.pos:], []byte(`\u`)):
		return c.fail(RuleSurrogate, start)
	}
	c.pos += len(`\u`)
	low, err := c.hex()
	if err != nil {
		return err
	}
	if low < 0xdc00 || low > 0xdfff {
		return c.fail(RuleSurrogate, start)
	}
	return nil
}

// hex reads the four digits of a \u escape.
func (c *checker) hex() (rune, error) {
	var unit rune
	for range 4 {
		digit := hexDigit(c.peek())
		if digit < 0 {
			return 0, c.fail(RuleSyntax, c.pos)
		}
		unit = unit<<4 | digit
		c.pos++
	}
	return unit, nil
}

// hexDigit is the value of a hexadecimal digit, or -1.
func hexDigit(b byte) rune {
	switch {
	case '0' <= b && b <= '9':
		return rune(b - '0')
	case 'a' <= b|0x20 && b|0x20 <= 'f':
		return rune(b|0x20-'a') + 10
	default:
		return -1
	}
}
