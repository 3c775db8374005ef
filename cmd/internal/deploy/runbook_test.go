package deploy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

var headingPattern = regexp.MustCompile(`(?m)^#+ (.+)$`)

// anchors are those of a page's headings, as GitHub makes them.
func anchors(page string) (found []string) {
	page = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(page, "") // comments of shells look like headings
	for _, heading := range headingPattern.FindAllStringSubmatch(page, -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		found = append(found, strings.ReplaceAll(anchor, " ", "-"))
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docs/runbook.md", "deploy/README.md"} {
		page := read(t, name)
		there := anchors(page)
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(page, -1) {
			if anchor, ok := strings.CutPrefix(link[1], "#"); ok {
				require.Contains(t, there, anchor, name)
				continue
			}
			_, err := os.Stat(filepath.Join("../../..", filepath.Dir(name), link[1]))
			require.NoError(t, err, name)
		}
	}
}

// Every statement is run, as it stands, against a schema of its own, and taken back.
func TestRunbookStatementsRun(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	statements := 0
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(read(t, "docs/runbook.md"), -1) {
		sql := strings.NewReplacer("notifyq_app", "current_user", "notifyq.", db.Schema+".", "schema notifyq", "schema "+db.Schema,
			"'notifyq'", "'"+db.Schema+"'").Replace(block[1])
		for statement := range strings.SplitSeq(sql, ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			tx, err := db.Pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), statement)
			require.NoError(t, tx.Rollback(t.Context()))
			require.NoError(t, err, statement)
			statements++
		}
	}
	require.Greater(t, statements, 15)
}

// Whoever may list processes sees arguments. The key must not be one.
func TestRunbookKeepsTheKeyOutOfArguments(t *testing.T) {
	t.Parallel()
	var function string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(read(t, "docs/runbook.md"), -1) {
		if strings.Contains(block[1], "api() {") {
			function = block[1]
		}
	}
	require.NotEmpty(t, function)
	folder := t.TempDir()
	// It stands in for curl, and takes down what it is given.
	curl := "#!/bin/sh\nprintf '%s\\n' \"$@\" >'" + folder + "/arguments'\ncat >'" + folder + "/input'\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "curl"), []byte(curl), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "key"), []byte("canary-key\n"), 0o600))
	run := exec.CommandContext(t.Context(), "sh", "-c", function+"\napi http://HOST:3000/x -d '{}'")
	run.Env = []string{"PATH=" + folder + ":" + os.Getenv("PATH"), "NOTIFYQ_KEY_FILE=" + folder + "/key", "NOTIFYQ_KEY=canary-key"}
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	arguments, err := os.ReadFile(filepath.Join(folder, "arguments"))
	require.NoError(t, err)
	require.NotContains(t, string(arguments), "canary")
	require.Contains(t, string(arguments), "http://HOST:3000/x\n-d\n{}\n")
	input, err := os.ReadFile(filepath.Join(folder, "input"))
	require.NoError(t, err)
	require.Equal(t, "header = \"Authorization: Bearer canary-key\"\n", string(input))
}

var eventPattern = regexp.MustCompile(`^[a-z]+\.[a-z_]+$`)

// logged are the events that the code logs, and those that are warnings or errors. Where an event is handed on as a value
// it counts as one that is logged.
func logged(t *testing.T) (all, loud []string) {
	t.Helper()
	err := filepath.WalkDir("../../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && slices.Contains([]string{".git", "testdata", "examples", "deploy", "nats"}, entry.Name()) {
			return fs.SkipDir // a service that uses publishers/nats has a runbook of its own
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if event, ok := eventOf(n); ok {
					all = append(all, event)
				}
			case *ast.CallExpr:
				loud = append(loud, loudEvents(n)...)
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(loud), 30)
	return all, loud
}

func eventOf(n ast.Node) (string, bool) {
	literal, ok := n.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil && eventPattern.MatchString(text)
}

// loudEvents are those of a call of a logger's Warn or Error.
func loudEvents(call *ast.CallExpr) (found []string) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Warn", "WarnContext", "Error", "ErrorContext"}, selector.Sel.Name) {
		return nil
	}
	for _, argument := range call.Args {
		if event, ok := eventOf(argument); ok {
			found = append(found, event)
		}
	}
	return found
}

func TestRunbookExplainsEveryEventThatIsLoud(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/runbook.md")
	all, loud := logged(t)
	for _, event := range loud {
		require.True(t, strings.Contains(page, "`"+event+"`"), "the runbook does not say what %s means", event)
	}
	_, table, _ := strings.Cut(page, "## Log events")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+) \\|").FindAllStringSubmatch(table, -1) {
		for event := range strings.FieldsSeq(row[1]) {
			require.True(t, slices.Contains(all, strings.Trim(event, "`")), "nothing logs %s", event)
		}
	}
}

// Clients meet these, and ask whoever is on call.
func TestRunbookExplainsEveryCodeOfProblems(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "docs/runbook.md"), "## Problem codes")
	table, _, _ = strings.Cut(table, "\n## ")
	var codes []string
	for _, name := range []string{"cmd/internal/api/failure.go", "cmd/internal/httpserver/problem.go", "cmd/internal/metrics/metrics.go"} {
		for _, code := range regexp.MustCompile(`(?:\b[cC]ode[A-Z]\w* += |Code: )"([a-z_]+)"`).FindAllStringSubmatch(read(t, name), -1) {
			codes = append(codes, code[1])
			require.True(t, strings.Contains(table, "`"+code[1]+"`"), "the runbook does not say what %s means", code[1])
		}
	}
	require.Greater(t, len(codes), 18)
	for _, row := range regexp.MustCompile("(?m)^\\| \\d+ \\| (`[^|]+) \\|").FindAllStringSubmatch(table, -1) {
		for code := range strings.FieldsSeq(row[1]) {
			require.Contains(t, codes, strings.Trim(code, "`"), "nothing answers with it")
		}
	}
}
