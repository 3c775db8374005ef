package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

const deepEnough = 64

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	inputs := map[string][]string{
		"scalars":                                        {`null`, `true`, `false`, `0`, `-0`, `1.5e-3`, `1E+2`, `""`, `"x"`, `[]`, `{}`},
		"white space around the value":                   {" \t\r\n{} \t\r\n", "{}\n\n\n", `{ "a" : [ 1 , 2 ] , "b" : { } }`},
		"a backslash before u0000 is text":               {`{"a":"x\\u0000y"}`, `"\\\\u0000"`},
		"surrogate pairs":                                {`"\ud83d\ude00"`, `"\uD83D\uDE00"`, `{"\ud83d\ude00":1}`, `"\udbff\udfff"`},
		"what only looks like a surrogate":               {`"\ue000"`, `"\ud7ff"`, `"\\ud800"`},
		"every escape":                                   {`"\"\\\/\b\f\n\r\t\u00e9\uFFFD"`},
		"any character as it is":                         {"\"\u20281\u2029 \u202eabc <a&b> é e\u0301 \U0001F600 \x7f \ufeff \ufffd\"", "\"\U0010ffff\""},
		"integers above 2^53 and long fractions":         {`[9007199254740993,-9223372036854775809,18446744073709551616,0.1000000000000000055511151231257827,123456789012345678901234567890]`},
		"the largest doubles":                            {`1.7976931348623157e308`, `-1.7976931348623157e+308`, `17976931348623157e292`, `0.00017976931348623157e312`, `1.797693134862315807e308`},
		"zero whatever its exponent":                     {`0e400`, `-0.000E999999999999999999999`, `0.0e99999`},
		"what rounds to zero":                            {`1e-400`, `1e-99999999999999999999`},
		"many digits of an ordinary number":              {"0." + strings.Repeat("0", 400) + "1e400", "1" + strings.Repeat("0", 400) + "e-400", strings.Repeat("9", 308)},
		"the same name in different objects":             {`[{"a":1},{"a":2}]`, `{"a":{"a":{"a":1}}}`, `{"o":{"x":1},"x":2}`},
		"names that differ in case or composition":       {`{"a":1,"A":2}`, "{\"é\":1,\"e\u0301\":2}", `{"s":1,"ſ":2}`, `{"":1," ":2}`},
		"names that differ in escaping a backslash":      {`{"\\u0061":1,"a":2}`},
		"more names than are compared with each other":   {wideObject(17), wideObject(1000)},
		"as deep as allowed":                             {nested(deepEnough, "[", "", "]"), nested(deepEnough-1, `{"a":`, "{}", "}"), nested(deepEnough, "[", "1", "]")},
		"brackets in a string are not depth":             {`"` + strings.Repeat("[", 1000) + `"`},
		"many siblings are not depth":                    {"[" + strings.Repeat("[],", 1000) + "{}]"},
		"escaped solidus and DEL":                        {`"<\/script>"`, "\"\x7f\""},
		"duplicates of values, though not of names":      {`["a","a",{"a":"a","b":"a"}]`},
		"names of one length, or one the other's prefix": {`{"ab":1,"ba":2,"a":3,"abc":4}`},
	}
	for name, group := range inputs {
		for i, input := range group {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				t.Parallel()
				if err := Check([]byte(input), Limits{MaxDepth: deepEnough}); err != nil {
					t.Fatalf("refused: %v", err)
				}
				if !json.Valid([]byte(input)) {
					t.Fatal("encoding/json refuses it")
				}
			})
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	tooDeep := "must be nested at most 64 deep"
	cases := []struct {
		name, input, rule string
		offset            int
	}{
		{"NUL escape inside a nested payload", `{"a":[{"b":"x\u0000y"}]}`, RuleNUL, 13},
		{"NUL after an escaped backslash", `{"a":"\\\u0000"}`, RuleNUL, 8},
		{"NUL escape in a name", `{"k\u0000":1}`, RuleNUL, 3},
		{"NUL escape at the end of a name", `{"idempotencyKey\u0000":"evil","idempotencyKey":"c02"}`, RuleNUL, 16},
		{"raw NUL in a string", "{\"a\":\"x\x00\"}", RuleNUL, 7},
		{"raw NUL in a name", "{\"x\x00\":1}", RuleNUL, 3},

		{"lone high surrogate", `{"s":"\ud800"}`, RuleSurrogate, 6},
		{"surrogates the wrong way round", `{"s":"\udc00\ud800"}`, RuleSurrogate, 6},
		{"half an emoji", `{"s":"\ud83d"}`, RuleSurrogate, 6},
		{"lone surrogate in a name", `{"\ud800":1}`, RuleSurrogate, 2},
		{"high surrogate before another escape", `"\ud800\n"`, RuleSurrogate, 1},
		{"high surrogate before a letter's escape", `"\ud800\u0061"`, RuleSurrogate, 1},
		{"two low surrogates", `"\udc00\udc00"`, RuleSurrogate, 1},
		{"two high surrogates", `"\ud83d\ud83d\ude00"`, RuleSurrogate, 1},
		{"high surrogate before text that looks low", `"\ud83d\\ude00"`, RuleSurrogate, 1},
		{"high surrogate before NUL", `"\ud83d\u0000"`, RuleSurrogate, 1},

		{"0xff in a string", "{\"k\":\"c05\xff\"}", RuleUTF8, 9},
		{"broken sequence", "\"\xc3\x28\"", RuleUTF8, 1},
		{"surrogate in UTF-8", "\"\xed\xa0\x80\"", RuleUTF8, 1},
		{"beyond U+10FFFF", "\"\xf5\x80\x80\x80\"", RuleUTF8, 1},
		{"overlong", "\"\xc0\x80\"", RuleUTF8, 1},
		{"cut short", "\"\xf0\x9f\x98\"", RuleUTF8, 1},
		{"0xfe in a name", "{\"\xfe\":1}", RuleUTF8, 2},
		{"0xff after the value", "{}\xff", RuleUTF8, 2},
		{"UTF-16LE with its mark", "\xff\xfe{\x00}\x00", RuleUTF8, 0},

		{"duplicate names", `{"amount":1,"amount":2}`, RuleDuplicate, 12},
		{"duplicate names in an inner object", `{"o":{"x":1,"x":2}}`, RuleDuplicate, 12},
		{"duplicate names, one with an escape", `{"ab":1,"\u0061b":2}`, RuleDuplicate, 8},
		{"duplicate names, both with escapes", `{"\u0061/":1,"a\/":2}`, RuleDuplicate, 13},
		{"duplicate names outside the basic plane", "{\"\U0001F600\":1,\"\\ud83d\\ude00\":2}", RuleDuplicate, 10},
		{"duplicate empty names", `{"":1,"":2}`, RuleDuplicate, 6},
		{"duplicate names after an inner object with the same", `{"a":{"a":1},"a":2}`, RuleDuplicate, 13},
		{"duplicate of the first among 17", strings.TrimSuffix(wideObject(16), "}") + `,"n0":1}`, RuleDuplicate, len(wideObject(16))},
		{"duplicate of the first among many", strings.TrimSuffix(wideObject(500), "}") + `,"n0":1}`, RuleDuplicate, len(wideObject(500))},
		{"duplicate of the last among many, escaped", strings.TrimSuffix(wideObject(500), "}") + `,"n\u003499":1}`, RuleDuplicate, len(wideObject(500))},

		{"one too deep", nested(deepEnough+1, "[", "", "]"), tooDeep, deepEnough},
		{"one too deep, in objects", nested(deepEnough+1, `{"a":`, "1", "}"), tooDeep, deepEnough * 5},
		{"one too deep and not empty", nested(deepEnough+1, "[", "1", "]"), tooDeep, deepEnough},
		{"one too deep, mixed", nested(deepEnough/2, `[{"":`, "[]", "}]"), tooDeep, deepEnough / 2 * len(`[{"":`)},
		{"100", nested(100, "[", "", "]"), tooDeep, deepEnough},
		{"10,001", nested(10_001, "[", "", "]"), tooDeep, deepEnough},
		{"32,000", nested(32_000, "[", "", "]"), tooDeep, deepEnough},
		{"only brackets", strings.Repeat("[", 1_000_000), tooDeep, deepEnough},

		{"a second value", `{"k":"c13a"}{"k":"c13b"}`, RuleTrailing, 12},
		{"a bracket after the value", `{}]`, RuleTrailing, 2},
		{"garbage after the value", `{} garbage`, RuleTrailing, 3},
		{"NUL after the value", "{}\x00", RuleTrailing, 2},
		{"a comma after the value", `1,`, RuleTrailing, 1},
		{"letters after a word", `nullx`, RuleTrailing, 4},
		{"a comment after the value", `{}// x`, RuleTrailing, 2},
		{"form feed after the value", "{}\f", RuleTrailing, 2},

		{"nothing", ``, RuleEmpty, 0},
		{"only white space", " \n", RuleEmpty, 2},
		{"byte order mark", "\xef\xbb\xbf{}", RuleBOM, 0},
		{"byte order mark after white space", " \xef\xbb\xbf{}", RuleSyntax, 1},
		{"UTF-16LE without its mark", "{\x00}\x00", RuleSyntax, 1},

		{"1e400", `{"a":1e400}`, RuleNumber, 5},
		{"-1e400", `-1e400`, RuleNumber, 0},
		{"1e309", `1e309`, RuleNumber, 0},
		{"just above the largest double", `1.797693134862315808e308`, RuleNumber, 0},
		{"the same in another way", `0.01797693134862315808e310`, RuleNumber, 0},
		{"400 digits", strings.Repeat("9", 400), RuleNumber, 0},
		{"an exponent beyond an int", `1e99999999999999999999`, RuleNumber, 0},
		{"an exponent of 2 to the 64", `1e18446744073709551616`, RuleNumber, 0},
		{"a small number with a huge exponent", `0.000001e99999999999999999999`, RuleNumber, 0},

		{"leading zero", `01`, RuleSyntax, 1},
		{"leading zeros, negative", `-007`, RuleSyntax, 2},
		{"no digits", `-`, RuleSyntax, 1},
		{"plus sign", `+1`, RuleSyntax, 0},
		{"no whole part", `.5`, RuleSyntax, 0},
		{"no fraction", `1.`, RuleSyntax, 2},
		{"no fraction before an exponent", `1.e5`, RuleSyntax, 2},
		{"no exponent", `1e`, RuleSyntax, 2},
		{"no exponent after its sign", `1e+`, RuleSyntax, 3},
		{"hexadecimal", `0x10`, RuleTrailing, 1},
		{"underscore", `1_000`, RuleTrailing, 1},
		{"NaN", `{"delaySeconds":NaN}`, RuleSyntax, 16},
		{"Infinity", `-Infinity`, RuleSyntax, 1},

		{"word cut short", `tru`, RuleSyntax, 3},
		{"word in capitals", `True`, RuleSyntax, 0},
		{"string without its end", `"abc`, RuleSyntax, 4},
		{"string that ends in a backslash", `"abc\`, RuleSyntax, 5},
		{"unknown escape", `"\x41"`, RuleSyntax, 2},
		{"escaped single quote", `"\'"`, RuleSyntax, 2},
		{"short \\u escape", `"\u00e"`, RuleSyntax, 6},
		{"\\u escape without hexadecimal", `"\u00g0"`, RuleSyntax, 5},
		{"pair cut short", `"\ud83d\u`, RuleSyntax, 9},
		{"capital \\U", `"\U0061"`, RuleSyntax, 2},
		{"raw line break in a string", "\"a\nb\"", RuleSyntax, 2},
		{"raw tab in a name", "{\"a\t\":1}", RuleSyntax, 3},
		{"array without its end", `[1`, RuleSyntax, 2},
		{"array that ends in a comma", `[1,]`, RuleSyntax, 3},
		{"array that begins with a comma", `[,1]`, RuleSyntax, 1},
		{"array without a comma", `[1 2]`, RuleSyntax, 3},
		{"array that ends as an object", `[1}`, RuleSyntax, 2},
		{"object without its end", `{"a":1`, RuleSyntax, 6},
		{"object that ends in a comma", `{"a":1,}`, RuleSyntax, 7},
		{"object without a colon", `{"a" 1}`, RuleSyntax, 5},
		{"object without a value", `{"a":}`, RuleSyntax, 5},
		{"object with a bare name", `{a:1}`, RuleSyntax, 1},
		{"object with a number for a name", `{1:1}`, RuleSyntax, 1},
		{"single quotes", `{'a':1}`, RuleSyntax, 1},
		{"no-break space between tokens", "{\u00a0}", RuleSyntax, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := Check([]byte(c.input), Limits{MaxDepth: deepEnough})
			var broken *Error
			if !errors.As(err, &broken) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if broken.Rule != c.rule || broken.Offset != c.offset {
				t.Fatalf("got %q at %d, want %q at %d", broken.Rule, broken.Offset, c.rule, c.offset)
			}
		})
	}
}

// A body that ends anywhere but at its end is refused, and never panics.
func TestCheckRefusesEveryPrefix(t *testing.T) {
	t.Parallel()
	whole := `{"a":[1.5e+3,"\ud83d\ude00\n",true,false,null],"b":{"c":"é"}}`
	for end := range len(whole) {
		if Check([]byte(whole[:end]), Limits{}) == nil {
			t.Errorf("accepted %s", whole[:end])
		}
	}
}

func TestCheckCountsBytesOfTheWholeInput(t *testing.T) {
	t.Parallel()
	limits := Limits{MaxBytes: 10}
	if err := Check([]byte(`"12345678"`), limits); err != nil {
		t.Fatal(err)
	}
	err := Check([]byte(`{        }  `), limits)
	var broken *Error
	if !errors.As(err, &broken) || broken.Rule != "must be at most 10 bytes" || broken.Offset != 10 {
		t.Fatalf("got %v", err)
	}
}

func TestZeroLimitsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("x", 1<<20) + `"`
	if err := Check([]byte(nested(DefaultMaxDepth, "[", long, "]")), Limits{}); err != nil {
		t.Error(err)
	}
	if Check([]byte(nested(DefaultMaxDepth+1, "[", long, "]")), Limits{}) == nil {
		t.Error("deeper than DefaultMaxDepth")
	}
}

func TestErrorHoldsNothingOfTheInput(t *testing.T) {
	t.Parallel()
	const canary = "canary"
	for _, input := range []string{
		`{"canary":1,"canary":2}`, `canary`, `"canary\x"`, `"canary`, `{}canary`, `{"canary":"\ud800canary"}`,
		"\"canary\xff\"", `{"canary":[canary]}`, `"canary\u0000"`,
	} {
		err := Check([]byte(input), Limits{})
		if err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", input, err)
		}
	}
}

func TestCheckOfOrdinaryPayloadsAllocatesNothing(t *testing.T) {
	for name, input := range benchmarkInputs() {
		if name == "wide" {
			continue
		}
		if n := testing.AllocsPerRun(100, func() { _ = Check(input, Limits{}) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func wideObject(members int) string {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"n%d":%d`, i, i)
	}
	b.WriteByte('}')
	return b.String()
}

func nested(levels int, opening, inner, closing string) string {
	return strings.Repeat(opening, levels) + inner + strings.Repeat(closing, levels)
}
