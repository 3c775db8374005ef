package deploy_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/notifyq/notifyq/cmd/internal/httpserver"
	"github.com/notifyq/notifyq/cmd/internal/settings"
)

// spare is what a process has to have beyond its drain: see notifyq.WorkerConfig.
const spare = 5 * time.Second

type composeFile struct {
	Services map[string]service
	Rest     map[string]any `yaml:",inline"`
}

type service struct {
	Image           string
	Build           any
	Command         []string
	Init            bool
	ReadOnly        bool     `yaml:"read_only"`
	CapDrop         []string `yaml:"cap_drop"`
	StopGracePeriod string   `yaml:"stop_grace_period"`
	Ports           []string
	Environment     map[string]string
	Deploy          struct{ Replicas int }
	Healthcheck     struct{ Test []string }
	DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
}

// ours tells the services that run the image.
func (s service) ours() bool { return s.Image == "notifyq:local" }

func compose(t *testing.T) composeFile {
	t.Helper()
	var file composeFile
	require.NoError(t, yaml.Unmarshal([]byte(interpolated(read(t, "compose.yaml"))), &file))
	require.NotContains(t, file.Rest, "version")
	return file
}

// interpolated puts in the defaults of variables.
func interpolated(text string) string {
	return regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`).ReplaceAllString(text, "$1")
}

func TestComposeHasTheWholeSystem(t *testing.T) {
	t.Parallel()
	services := compose(t).Services
	require.ElementsMatch(t, []string{"postgres", "migrate", "api", "worker", "receiver"}, slices.Collect(maps.Keys(services)))
	require.Equal(t, 3, services["worker"].Deploy.Replicas)
	require.Contains(t, services["postgres"].Command, "log_error_verbosity=terse")
	require.Equal(t, "service_healthy", services["migrate"].DependsOn["postgres"].Condition)
	for _, name := range []string{"api", "worker", "receiver"} {
		require.Equal(t, "service_completed_successfully", services[name].DependsOn["migrate"].Condition, name)
		require.Equal(t, "/readyz", services[name].Healthcheck.Test[len(services[name].Healthcheck.Test)-1], name)
	}
	built := 0
	for name, s := range services {
		if !s.ours() {
			continue
		}
		require.True(t, s.Init, name)
		require.True(t, s.ReadOnly, name)
		require.Equal(t, []string{"ALL"}, s.CapDrop, name)
		if s.Build != nil {
			built++
		}
	}
	require.Equal(t, 1, built, "one builds the image, the others take it")
}

func TestComposePublishesOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	services := compose(t).Services
	for name, s := range services {
		for _, port := range s.Ports {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s publishes %s", name, port)
		}
	}
	require.NotEmpty(t, services["api"].Ports)
	require.NotEmpty(t, services["postgres"].Ports)
	require.Empty(t, services["worker"].Ports)
}

func TestComposeSettingsAreTakenByTheBinaries(t *testing.T) {
	t.Parallel()
	keys := 0
	for name, s := range compose(t).Services {
		if !s.ours() {
			continue
		}
		role, once := roleOf(t, s.Command)
		if once {
			require.Equal(t, []string{"DATABASE_URL"}, slices.Collect(maps.Keys(s.Environment)))
			continue
		}
		loaded := load(t, role, s.Environment)
		require.Equal(t, "0.0.0.0", loaded.Host, name)
		require.Equal(t, name == "receiver", loaded.Demo, name)
		drain := loaded.WorkerShutdownTimeout
		if role == settings.RoleAPI {
			drain = httpserver.DefaultGrace
			keys += len(loaded.APIKeys)
		}
		grace, err := time.ParseDuration(s.StopGracePeriod)
		require.NoError(t, err)
		require.GreaterOrEqual(t, grace, drain+spare, name)
	}
	require.Equal(t, 3, keys)
}

// What the head of the file says to paste has to be a key of the API.
func TestComposeShowsAKeyThatWorks(t *testing.T) {
	t.Parallel()
	text := read(t, "compose.yaml")
	shown := regexp.MustCompile(`Authorization: Bearer ([a-z-]+)`).FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, shown)
	for _, found := range shown {
		require.Contains(t, compose(t).Services["api"].Environment["API_KEYS"], found[1]+":demo:schedule+read")
	}
}

func TestComposeReceiverAndWorkersShareASecret(t *testing.T) {
	t.Parallel()
	services := compose(t).Services
	require.Equal(t, services["worker"].Environment["WEBHOOK_SECRET"], services["receiver"].Environment["WEBHOOK_SECRET"])
	require.Equal(t, "http://receiver:3000/webhooks/mock", services["worker"].Environment["WEBHOOK_URL"])
}
