package strictjson

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestCanonicalForm(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, input, want string }{
		{"white space", " {\t\"a\" : [ 1 , { } , [ ] , null ] ,\r\n\"b\":true } ", `{"a":[1,{},[],null],"b":true}`},
		{"order of members", `{"b":1,"a":{"d":[{"y":1,"x":2}],"c":3},"":0}`, `{"":0,"a":{"c":3,"d":[{"x":2,"y":1}]},"b":1}`},
		{"order of elements stays", `[3,1,2]`, `[3,1,2]`},
		{"order by unescaped names", `{"\u0062":1,"a":2,"\"":3,"!":4,"#":5,"\n":6}`, `{"\n":6,"!":4,"\"":3,"#":5,"a":2,"b":1}`},
		{"order by UTF-8, not by UTF-16", `{"\ud83d\ude00":1,"\ufb33":2}`, "{\"\ufb33\":2,\"\U0001F600\":1}"},
		{"a name before those it begins", `{"ab":1,"a":2,"a!":3}`, `{"a":2,"a!":3,"ab":1}`},
		{"numbers stay literal", `[1.0,1,1e2,1E2,100,-0,0.10,9007199254740993,123456789012345678901234567890]`, `[1.0,1,1e2,1E2,100,-0,0.10,9007199254740993,123456789012345678901234567890]`},
		{"needless escapes go", `"\u0061\/\u003c\u2028\u00e9\ud83d\ude00\u007f"`, "\"a/<\u2028é\U0001F600\x7f\""},
		{"needed escapes stay, in one spelling", `"\u0022\u005C\u0008\u000C\u000a\u000d\u0009\u001F\u000b"`, `"\"\\\b\f\n\r\t\u001f\u000b"`},
		{"text that looks like an escape", `"\\u0000\\n"`, `"\\u0000\\n"`},
		{"brackets and commas in strings", `{"b":"},]","a":"{[,"}`, `{"a":"{[,","b":"},]"}`},
		{"scalars", " -1.50 ", "-1.50"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if err := Check([]byte(c.input), Limits{}); err != nil {
				t.Fatal(err)
			}
			if got := string(Canonical([]byte(c.input))); got != c.want {
				t.Fatalf("got  %s\nwant %s", got, c.want)
			}
			if got := string(AppendCanonical([]byte("v1:"), []byte(c.input))); got != "v1:"+c.want {
				t.Fatalf("after a prefix: %s", got)
			}
		})
	}
}

func TestCanonicalTellsRequestsApart(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{`{}`, `{"x":1}`},
		{`{"a":[1,2]}`, `{"a":[2,1]}`},
		{`{"a":null}`, `{}`},
		{`1.0`, `1`},
		{`1e2`, `100`},
		{`-0`, `0`},
		{`"1"`, `1`},
		{`"null"`, `null`},
		{`[]`, `{}`},
		{`[[],[]]`, `[[[]]]`},
		{`{"a":1}`, `{"A":1}`},
		{"\"é\"", "\"e\u0301\""},
		{`"\\n"`, `"\n"`},
		{`{"a":{"b":1}}`, `{"b":{"a":1}}`},
	} {
		if a, b := string(Canonical([]byte(pair[0]))), string(Canonical([]byte(pair[1]))); a == b {
			t.Errorf("%s and %s are both %s", pair[0], pair[1], a)
		}
	}
}

// Objects beyond the members that are kept on the stack, at several levels at once.
func TestCanonicalOfWideObjects(t *testing.T) {
	t.Parallel()
	wide := func(inner string) string {
		members := make([]string, 100)
		for i, n := range rand.Perm(len(members)) {
			members[i] = fmt.Sprintf(`"%02d":%s`, n, inner)
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	once := Canonical([]byte(wide(wide("1"))))
	if again := Canonical([]byte(wide(wide("1")))); string(again) != string(once) {
		t.Fatal("the order of members shows")
	}
	if !strings.HasPrefix(string(once), `{"00":{"00":1,"01":1,`) {
		t.Fatalf("not sorted: %.40s", once)
	}
}
