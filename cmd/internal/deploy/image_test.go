package deploy_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// instructions are those of the Dockerfile, with continued lines joined.
func instructions(t *testing.T) []string {
	t.Helper()
	text := regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(read(t, "Dockerfile"), "")
	text = regexp.MustCompile(`\s*\\\n\s*`).ReplaceAllString(text, " ")
	var list []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// last is the argument of the last instruction of a kind.
func last(t *testing.T, kind string) string {
	t.Helper()
	found := ""
	for _, line := range instructions(t) {
		if rest, ok := strings.CutPrefix(line, kind+" "); ok {
			found = rest
		}
	}
	require.NotEmpty(t, found, kind)
	return found
}

func TestImageIsStaticNotRootAndStopsByItself(t *testing.T) {
	t.Parallel()
	require.Equal(t, "scratch", last(t, "FROM"))
	require.Regexp(t, `^[1-9]\d*:[1-9]\d*$`, last(t, "USER"))
	require.Equal(t, "SIGTERM", last(t, "STOPSIGNAL"))
	require.Equal(t, "3000", last(t, "EXPOSE"))
	require.Contains(t, strings.Join(instructions(t), "\n"), "COPY --from=build /etc/ssl/certs/ca-certificates.crt")

	build := last(t, "RUN")
	for _, flag := range []string{"CGO_ENABLED=0", "-trimpath", "./cmd/notifyq-api", "./cmd/notifyq-worker"} {
		require.Contains(t, build, flag)
	}
	var command []string
	require.NoError(t, json.Unmarshal([]byte(last(t, "CMD")), &command), "the exec form, so that the binary gets the signal")
	roleOf(t, command)
	_, probe, _ := strings.Cut(last(t, "HEALTHCHECK"), " CMD ")
	require.NoError(t, json.Unmarshal([]byte(probe), &command), "the exec form, since there is no shell")
	require.Equal(t, []string{"/notifyq-api", "healthcheck", "/livez"}, command)
}

// The linker says nothing of a variable that is not there.
func TestImageSetsTheVersionThatTheBinariesPrint(t *testing.T) {
	t.Parallel()
	flag := regexp.MustCompile(`-X github\.com/notifyq/notifyq/([a-z/]+)\.([a-zA-Z]+)=\$VERSION`)
	found := flag.FindStringSubmatch(last(t, "RUN"))
	require.Len(t, found, 3)
	entries, err := os.ReadDir("../../../" + found[1])
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^var ` + found[2] + ` string`)
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, ".go") && declared.MatchString(read(t, found[1]+"/"+name)) {
			return
		}
	}
	t.Fatalf("%s declares no string variable %s", found[1], found[2])
}

func TestImageIsBuiltByTheGoOfTheWorkspace(t *testing.T) {
	t.Parallel()
	wanted := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.work"))
	require.Len(t, wanted, 2)
	require.Contains(t, instructions(t), "ARG GO_VERSION="+wanted[1])
}

func TestImageIsBuiltWithoutSecretsAndHistory(t *testing.T) {
	t.Parallel()
	ignored := strings.Split(read(t, ".dockerignore"), "\n")
	for _, name := range []string{".git", ".env*", "**/.env*"} {
		require.Contains(t, ignored, name)
	}
	for _, found := range regexp.MustCompile(`(?m)^\t\./(\S+)`).FindAllStringSubmatch(read(t, "go.work"), -1) {
		require.NotContains(t, ignored, found[1], "go.work names it")
	}
}
