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
	"os"
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
	running                 map[key]*strings.Builder    // what each running test said
	packages                map[string]*strings.Builder // what all said, by package
	builds                  map[string]*strings.Builder
	passedIn, failedIn      map[string]int // tests, by package
	passed, failed, skipped int
}

func main() {
	s := &summary{
		out:      os.Stdout,
		running:  map[key]*strings.Builder{},
		packages: map[string]*strings.Builder{},
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
	switch e.Action {
	case "build-output":
		text(s.builds, e.ImportPath).WriteString(e.Output)
	case "run":
		text(s.running, key{e.Package, e.Test})
	case "output":
		text(s.packages, e.Package).WriteString(e.Output)
		if said := s.running[key{e.Package, e.Test}]; said != nil {
			said.WriteString(e.Output)
		}
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
	}
}

func text[K comparable](texts map[K]*strings.Builder, id K) *strings.Builder {
	if texts[id] == nil {
		texts[id] = &strings.Builder{}
	}
	return texts[id]
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
		fmt.Fprintf(s.out, "FAIL %s %s (%.1f s)\n%s", e.Package, e.Test, e.Elapsed, text(s.running, id))
	case "skip":
		s.skipped++
		fmt.Fprintf(s.out, "skip %s %s: %s\n", e.Package, e.Test, reason(text(s.running, id).String()))
	}
	delete(s.running, id)
}

// endPackage prints a line. A package that fails without a failing test counts as one, and one that ended in the middle
// of a test, by a panic or the time limit, has all its output printed: the goroutines may stand under any test's name.
func (s *summary) endPackage(e event) {
	cut := false
	for id := range s.running {
		if id.pkg == e.Package {
			cut = true
			delete(s.running, id)
		}
	}
	switch e.Action {
	case "pass":
		fmt.Fprintf(s.out, "ok   %s: %d passed (%.1f s)\n", e.Package, s.passedIn[e.Package], e.Elapsed)
	case "fail":
		fmt.Fprintf(s.out, "FAIL %s (%.1f s)\n", e.Package, e.Elapsed)
		if e.FailedBuild != "" {
			fmt.Fprint(s.out, text(s.builds, e.FailedBuild))
		}
		if s.failedIn[e.Package] == 0 {
			s.failed++
			cut = true
		}
		if cut {
			fmt.Fprint(s.out, text(s.packages, e.Package))
		}
	}
	delete(s.packages, e.Package)
}

// reason is what a skipped test said, without the lines of the framework, in one line.
func reason(said string) string {
	var reason []string
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			reason = append(reason, line)
		}
	}
	return strings.Join(reason, " ")
}
