package api

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table is for people who look for what holds a rule. A test that was renamed must not be missed.
func TestCasesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	known := map[string]bool{}
	err := filepath.WalkDir("../../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
			known[found[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	table, err := os.ReadFile("cases.md")
	require.NoError(t, err)
	cases := regexp.MustCompile(`(?m)^\| C\d+ .*$`).FindAllString(string(table), -1)
	require.Len(t, cases, 38)
	for _, row := range cases {
		names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(row, -1)
		require.NotEmpty(t, names, row)
		for _, name := range names {
			require.True(t, known[name[1]], "%s is no test: %s", name[1], row)
		}
	}
}
