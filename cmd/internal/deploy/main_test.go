// Package deploy_test checks what a team runs notifyq with against the code: image, compose file, Kubernetes example,
// alerts, dashboard and runbook. There is no package to go with it.
package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// read is a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

// decode is strict: a key that is not in T is an error, and so is one that is there twice.
func decode[T any](t *testing.T, text string) (out T) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&out))
	return out
}

// goSettings are what the Go runtime reads.
var goSettings = []string{"GOMEMLIMIT", "GOMAXPROCS"}

// load reads an environment as a binary does, and fails for what it does not know.
func load(t *testing.T, role settings.Role, env map[string]string) settings.Settings {
	t.Helper()
	known := settingNames(t)
	environ := make([]string, 0, len(env))
	for name, value := range env {
		require.True(t, slices.Contains(known, name) || slices.Contains(goSettings, name), "there is no setting %s", name)
		environ = append(environ, name+"="+value)
	}
	s, err := settings.Load(environ, settings.Options{Role: role})
	require.NoError(t, err)
	require.Empty(t, s.Warnings)
	return s
}

func settingNames(t *testing.T) (names []string) {
	t.Helper()
	var help strings.Builder
	settings.Help(&help)
	for _, found := range regexp.MustCompile(`(?m)^ {2}([A-Z][A-Z_]+) `).FindAllStringSubmatch(help.String(), -1) {
		names = append(names, found[1])
	}
	require.Greater(t, len(names), 30)
	return names
}

// roleOf tells which binary a command runs, and whether it is a subcommand.
func roleOf(t *testing.T, command []string) (role settings.Role, once bool) {
	t.Helper()
	require.NotEmpty(t, command)
	switch command[0] {
	case "/notifyq-api":
		role = settings.RoleAPI
	case "/notifyq-worker":
		role = settings.RoleWorker
	default:
		t.Fatalf("%s is not in the image", command[0])
	}
	if len(command) > 1 {
		require.Equal(t, []string{"migrate", "up"}, command[1:])
	}
	return role, len(command) > 1
}
