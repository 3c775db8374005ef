package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

var fuzzLimits = Limits{MaxBytes: 1 << 16, MaxDepth: 16}

// FuzzCheck compares Check with encoding/json, and with rules read from encoding/json's tokens.
func FuzzCheck(f *testing.F) {
	f.Fuzz(func(t *testing.T, input []byte) {
		before := bytes.Clone(input)
		err := Check(input, fuzzLimits)
		if !bytes.Equal(before, input) {
			t.Fatal("the input was changed")
		}
		if err == nil {
			requireStrict(t, input)
			return
		}
		requireReason(t, input, err)
	})
}

// requireStrict fails if input, which Check accepted, breaks a rule.
func requireStrict(t *testing.T, input []byte) {
	t.Helper()
	if !utf8.Valid(input) {
		t.Error("not UTF-8")
	}
	value := decode(t, input)
	again, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(value, decode(t, again)) {
		t.Error("does not survive a round trip")
	}
	tree, err := parse(input)
	if err != nil {
		t.Fatal(err)
	}
	facts := tree.facts()
	if facts.duplicates || facts.nul || facts.infinite || facts.depth > fuzzLimits.MaxDepth {
		t.Errorf("%+v", facts)
	}
	// encoding/json reads a lone surrogate as U+FFFD.
	spelled := strings.Contains(strings.ToLower(string(input)), `\ufffd`) || bytes.Contains(input, []byte("\ufffd"))
	if facts.replacement && !spelled {
		t.Error("lone surrogate")
	}
}

// requireReason fails if input does not break the rule that Check gave, as far as encoding/json can tell.
func requireReason(t *testing.T, input []byte, err error) {
	t.Helper()
	var broken *Error
	if !errors.As(err, &broken) || broken.Offset < 0 || broken.Offset > len(input) {
		t.Fatalf("%#v", err)
	}
	valid := json.Valid(input)
	tree, parseErr := parse(input)
	switch broken.Rule {
	case RuleEmpty, RuleSyntax, RuleTrailing, RuleBOM:
		if valid {
			t.Errorf("%v, but it is valid JSON", err)
		}
	case RuleUTF8:
		if utf8.Valid(input) {
			t.Errorf("%v, but it is", err)
		}
	case RuleDuplicate, RuleNUL, RuleNumber:
		facts := factsOf(tree, parseErr)
		rawNUL := bytes.IndexByte(input, 0) >= 0
		if valid && !facts.duplicates && !facts.nul && !facts.infinite || !valid && broken.Rule == RuleNUL && !rawNUL && !bytes.Contains(input, []byte(`\u0000`)) {
			t.Errorf("%v, but %+v", err, facts)
		}
	case RuleSurrogate:
		if facts := factsOf(tree, parseErr); valid && !facts.replacement {
			t.Errorf("%v, but %+v", err, facts)
		}
	default:
		if facts := factsOf(tree, parseErr); valid && len(input) <= fuzzLimits.MaxBytes && facts.depth <= fuzzLimits.MaxDepth {
			t.Errorf("%v, but %+v", err, facts)
		}
	}
}

// FuzzCanonical holds the canonical form against what encoding/json makes of two inputs: equal exactly when the values
// are, the same after a change of order, white space and escapes, and stable.
func FuzzCanonical(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b []byte, seed uint64) {
		if Check(a, fuzzLimits) != nil {
			return
		}
		canonical := Canonical(a)
		if err := Check(canonical, fuzzLimits); err != nil {
			t.Fatalf("canonical form %s: %v", canonical, err)
		}
		if again := Canonical(canonical); !bytes.Equal(again, canonical) {
			t.Fatalf("not idempotent: %s, then %s", canonical, again)
		}
		if !reflect.DeepEqual(decode(t, a), decode(t, canonical)) {
			t.Fatalf("another value: %s", canonical)
		}
		tree, err := parse(a)
		if err != nil {
			t.Fatal(err)
		}
		var other respeller
		other.rand = rand.New(rand.NewPCG(seed, 0))
		other.write(tree)
		if err := Check(other.out.Bytes(), Limits{MaxDepth: fuzzLimits.MaxDepth}); err != nil {
			t.Fatalf("respelled as %s: %v", other.out.Bytes(), err)
		}
		if respelled := Canonical(other.out.Bytes()); !bytes.Equal(respelled, canonical) {
			t.Fatalf("respelled as %s: %s, not %s", other.out.Bytes(), respelled, canonical)
		}
		if Check(b, fuzzLimits) != nil {
			return
		}
		if same := reflect.DeepEqual(decode(t, a), decode(t, b)); bytes.Equal(canonical, Canonical(b)) != same {
			t.Fatalf("equality should be %v: %s, %s", same, canonical, Canonical(b))
		}
	})
}

func decode(t *testing.T, input []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("encoding/json refuses it: %v", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("encoding/json sees more than one value: %v", err)
	}
	return value
}

// node is a value as encoding/json's tokens tell it, with duplicates and the order of members kept.
type node struct {
	scalar   json.Token // or a delimiter
	names    []string
	children []*node
}

func parse(input []byte) (*node, error) {
	decoder := json.NewDecoder(bytes.NewReader(input))
	decoder.UseNumber()
	return parseNext(decoder)
}

func parseNext(decoder *json.Decoder) (*node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	parsed := &node{scalar: token}
	if token != json.Delim('{') && token != json.Delim('[') {
		return parsed, nil
	}
	for decoder.More() {
		if token == json.Delim('{') {
			name, err := decoder.Token()
			if err != nil {
				return nil, err
			}
			parsed.names = append(parsed.names, name.(string))
		}
		child, err := parseNext(decoder)
		if err != nil {
			return nil, err
		}
		parsed.children = append(parsed.children, child)
	}
	_, err = decoder.Token()
	return parsed, err
}

type facts struct {
	duplicates, nul, replacement, infinite bool
	depth                                  int
}

func factsOf(tree *node, err error) facts {
	if err != nil {
		return facts{}
	}
	return tree.facts()
}

func (n *node) facts() facts {
	var all facts
	seen := map[string]bool{}
	for _, name := range n.names {
		all.duplicates = all.duplicates || seen[name]
		seen[name] = true
		all.text(name)
	}
	for _, child := range n.children {
		of := child.facts()
		all.duplicates = all.duplicates || of.duplicates
		all.nul = all.nul || of.nul
		all.replacement = all.replacement || of.replacement
		all.infinite = all.infinite || of.infinite
		all.depth = max(all.depth, of.depth)
	}
	switch scalar := n.scalar.(type) {
	case json.Delim:
		all.depth++
	case string:
		all.text(scalar)
	case json.Number:
		_, err := strconv.ParseFloat(scalar.String(), 64)
		all.infinite = err != nil
	}
	return all
}

func (f *facts) text(s string) {
	f.nul = f.nul || strings.ContainsRune(s, 0)
	f.replacement = f.replacement || strings.ContainsRune(s, utf8.RuneError)
}

// respeller writes a value with members in random order, random white space and random escapes.
type respeller struct {
	rand *rand.Rand
	out  bytes.Buffer
}

func (r *respeller) write(n *node) {
	r.space()
	defer r.space()
	switch scalar := n.scalar.(type) {
	case json.Delim:
		r.container(n, scalar)
	case string:
		r.text(scalar)
	case nil:
		r.out.WriteString("null")
	default:
		fmt.Fprint(&r.out, scalar)
	}
}

func (r *respeller) container(n *node, opening json.Delim) {
	r.out.WriteString(opening.String())
	order := make([]int, len(n.children))
	for i := range order {
		order[i] = i
	}
	if opening == '{' {
		order = r.rand.Perm(len(n.children))
	}
	for i, child := range order {
		if i > 0 {
			r.out.WriteByte(',')
		}
		if opening == '{' {
			r.space()
			r.text(n.names[child])
			r.space()
			r.out.WriteByte(':')
		}
		r.write(n.children[child])
	}
	r.space()
	r.out.WriteByte(byte(opening) + 2) // the closing bracket
}

func (r *respeller) space() {
	for r.rand.IntN(4) == 0 {
		r.out.WriteByte(" \t\r\n"[r.rand.IntN(4)])
	}
}

func (r *respeller) text(s string) {
	r.out.WriteByte('"')
	for _, c := range s {
		if short := strings.IndexRune("\"\\/\b\f\n\r\t", c); short >= 0 && r.rand.IntN(2) == 0 {
			r.out.WriteByte('\\')
			r.out.WriteByte(`"\/bfnrt`[short])
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' && r.rand.IntN(3) > 0 {
			r.out.WriteRune(c)
			continue
		}
		for _, unit := range utf16.Encode([]rune{c}) {
			format := []string{`\u%04x`, `\u%04X`}[r.rand.IntN(2)]
			fmt.Fprintf(&r.out, format, unit)
		}
	}
	r.out.WriteByte('"')
}
