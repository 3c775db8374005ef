package traceparent

import (
	"strings"
	"testing"
)

func TestOnlyItsFormIsValid(t *testing.T) {
	t.Parallel()
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for text, want := range map[string]bool{
		trace: true, "cc" + trace[2:]: true,
		"": false, "00-SECRET": false, trace + "-x": false, trace + "\n": false, " " + trace: false, trace[1:]: false,
		strings.ToUpper(trace): false, strings.ReplaceAll(trace, "-", "_"): false,
	} {
		if Valid(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}
