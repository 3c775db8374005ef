package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestValidName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"notifyq": true, "_": true, "a1_b2": true, "order": true, "pgmine": true, strings.Repeat("a", 63): true,
		"": false, "1a": false, "A": false, "a-b": false, "a.b": false, `a"b`: false, "a b": false, "ä": false, "a\x00": false,
		"pg_catalog": false, "pg_": false, "information_schema": false, strings.Repeat("a", 64): false,
	} {
		if got := ValidName(name); got != want {
			t.Errorf("ValidName(%q) = %t, want %t", name, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"order": `"order"`, `a"b`: `"a""b"`} {
		if got := Quote(name); got != want {
			t.Errorf("Quote(%q) = %s, want %s", name, got, want)
		}
	}
}

func TestErrorsAreErrUnfitAndTellTheirProblem(t *testing.T) {
	t.Parallel()
	for problem := NameInvalid; problem <= ObjectMissing; problem++ {
		err := fmt.Errorf("wrapped: %w", &Error{Problem: problem, Schema: "s", Object: "o", Right: "r", Role: "u"})
		if !errors.Is(err, ErrUnfit) {
			t.Errorf("%v is not ErrUnfit", err)
		}
		if strings.Contains(err.Error(), "problem") {
			t.Errorf("problem %d has no text: %v", problem, err)
		}
	}
}
