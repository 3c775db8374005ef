//go:build ignore

// Command tests reads what go test -json writes, and prints a line for each package, the reason of each skipped test,
// and all that a failing test or package said. Its last line counts: "N passed, 0 failed". It writes that line to the
// file given as its argument, too, and exits with 1 if anything failed.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is a line of go test -json; see go doc test2json and, for ImportPath, go help buildjson.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
	// FailedBuild is the ImportPath of the build that made a package fail.
	FailedBuild string
}

type key struct{ pkg, test string }

type summary struct {
	out                     io.Writer
	said                    map[key]*strings.Builder // what tests said that have not passed yet
	builds                  map[string]*strings.Builder
	passedIn, failedIn      map[string]int // tests, by package
	passed, failed, skipped int
}

func main() {
	s := &summary{
		out:      os.Stdout,
		said:     map[key]*strings.Builder{},
		builds:   map[string]*strings.Builder{},
		passedIn: map[string]int{},
		failedIn: map[string]int{},
	}
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if s.passed == 0 && s.failed == 0 {
		fmt.Fprintln(os.Stderr, "no test was run")
		os.Exit(1)
	}
	line := fmt.Sprintf("%d passed, %d failed\n", s.passed, s.failed)
	if err := os.WriteFile(os.Args[1], []byte(line), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if s.skipped > 0 {
		fmt.Fprintf(s.out, "%d skipped\n", s.skipped)
	}
	fmt.Fprint(s.out, line)
	if s.failed > 0 {
		os.Exit(1)
	}
}

func (s *summary) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(s.out, lines.Text())
			continue
		}
		s.take(e)
	}
	return lines.Err()
}

func (s *summary) take(e event) {
	id := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		s.buildOutput(e)
	case "output":
		if s.said[id] == nil {
			s.said[id] = &strings.Builder{}
		}
		s.said[id].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
	}
}

func (s *summary) buildOutput(e event) {
	if s.builds[e.ImportPath] == nil {
		s.builds[e.ImportPath] = &strings.Builder{}
	}
	s.builds[e.ImportPath].WriteString(e.Output)
}

func (s *summary) endTest(e event) {
	id := key{e.Package, e.Test}
	switch e.Action {
	case "pass":
		s.passed++
		s.passedIn[e.Package]++
	case "fail":
		s.failed++
		s.failedIn[e.Package]++
		fmt.Fprintf(s.out, "FAIL %s %s (%.1f s)\n%s", e.Package, e.Test, e.Elapsed, s.text(id))
	case "skip":
		s.skipped++
		fmt.Fprintf(s.out, "skip %s %s: %s\n", e.Package, e.Test, s.reason(id))
	}
	delete(s.said, id)
}

// endPackage prints a line; and all that was said if the package fails, also by tests that never ended because of a
// panic or a timeout. A package that fails without a failing test counts as one.
func (s *summary) endPackage(e event) {
	var own []key
	for id := range maps.Keys(s.said) {
		if id.pkg == e.Package {
			own = append(own, id)
		}
	}
	slices.SortFunc(own, func(a, b key) int { return strings.Compare(a.test, b.test) })
	switch e.Action {
	case "pass":
		fmt.Fprintf(s.out, "ok   %s: %d passed (%.1f s)\n", e.Package, s.passedIn[e.Package], e.Elapsed)
	case "fail":
		fmt.Fprintf(s.out, "FAIL %s (%.1f s)\n", e.Package, e.Elapsed)
		if e.FailedBuild != "" && s.builds[e.FailedBuild] != nil {
			fmt.Fprint(s.out, s.builds[e.FailedBuild])
		}
		for _, id := range own {
			fmt.Fprint(s.out, s.text(id))
		}
		if s.failedIn[e.Package] == 0 {
			s.failed++
		}
	}
	for _, id := range own {
		delete(s.said, id)
	}
}

func (s *summary) text(id key) string {
	if s.said[id] == nil {
		return ""
	}
	return s.said[id].String()
}

// reason is what a skipped test said, without the lines of the framework, in one line.
func (s *summary) reason(id key) string {
	var reason []string
	for line := range strings.Lines(s.text(id)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			reason = append(reason, line)
		}
	}
	return strings.Join(reason, " ")
}
