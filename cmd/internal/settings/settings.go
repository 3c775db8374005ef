// Package settings reads the settings of the binaries from the environment. One table has them all: what it says is what
// Load checks and what Help prints.
package settings

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/auth"
)

// Settings is what a binary works with: every field is checked, and has its default where nothing was set. It prints
// without secrets.
type Settings struct {
	DatabaseURL     string
	DatabaseSchema  string
	DatabasePoolMax int

	Host     string
	Port     int // 0 takes any free port
	LogLevel slog.Level
	APIKeys  []auth.Key
	Docs     bool
	Demo     bool

	Channels        []notifyq.Channel
	MaxRetries      int // attempts less one
	AmbiguousPolicy notifyq.AmbiguousPolicy

	WorkerConcurrency     int
	WorkerBatchSize       int
	WorkerPollInterval    time.Duration
	WorkerShutdownTimeout time.Duration
	VisibilityTimeout     time.Duration
	RecoveryInterval      time.Duration
	BaseRetryDelay        time.Duration
	MaxRetryDelay         time.Duration
	LowPriorityShare      float64
	RateLimitMax          int // 0 is off
	RateLimitWindow       time.Duration

	Provider        string // one of the Provider constants
	ProviderTimeout time.Duration
	MockFailureRate float64
	SMTPURL         string
	SMTPFrom        string
	ProviderURL     string

	WebhookURL          string
	WebhookSecrets      []string
	WebhookPollInterval time.Duration
	WebhookTimeout      time.Duration
	WebhookMaxAttempts  int
	WebhookAllowCIDRs   []netip.Prefix

	RetentionDays      int // 0 keeps
	EventRetentionDays int // 0 keeps

	// Warnings are for the log: names in the environment that are no settings and look like mistyped ones.
	Warnings []string
}

// The providers.
const (
	ProviderMock = "mock"
	ProviderSMTP = "smtp"
	ProviderHTTP = "http"
)

// Role is which binary reads the settings. Both take the same environment, and each value in it is checked by both; what
// is required, and what goes with what, depends on who needs it, so that a secret has to be given to that one only.
type Role string

// The roles.
const (
	RoleAPI    Role = "api"
	RoleWorker Role = "worker"
)

// Options is what decides which settings are needed.
type Options struct {
	Role Role
	// Dev is the system in one process, with a database of its own: it needs no DATABASE_URL.
	Dev bool
	// Only, if set, is all that is read, for commands that need no more.
	Only Part
}

// Part is a part of the settings.
type Part string

// The parts that a command may need alone.
const (
	PartDatabase Part = groupDatabase // with DATABASE_URL
	PartSchema   Part = "Schema"      // the same without it
	PartHTTP     Part = groupHTTP     // as they are, whatever they mean for each other
)

// reads tells whether settings of a group are read.
func (o Options) reads(group string) bool {
	return o.Only == "" || string(o.Only) == group || o.Only == PartSchema && group == groupDatabase
}

// delivers tells whether the process runs a worker.
func (o Options) delivers() bool { return o.Role == RoleWorker || o.Dev }

// answers tells whether the process runs the API.
func (o Options) answers() bool { return o.Role == RoleAPI }

// Load reads name=value entries, as os.Environ gives them; of a repeated name the first counts, as for os.Getenv. An empty
// value is none. The error joins one line for every problem, which names the setting and the rule and never the value.
func Load(environ []string, o Options) (Settings, error) {
	given := lookup(environ)
	s := &Settings{}
	rows := table(s)
	var problems []error
	broken := make(map[string]bool)
	for i := range rows {
		row := &rows[i]
		if !o.reads(row.group) {
			continue
		}
		text, set := given[row.name]
		if !set {
			text = row.fallback
		}
		if text == "" {
			continue
		}
		if err := row.read(text); err != nil {
			problems = append(problems, problem(row.name, err.Error()))
			broken[row.name] = true
		}
	}
	s.fillIn(given)
	c := &checker{s: s, o: o, given: given, broken: broken}
	c.check()
	if len(problems)+len(c.problems) > 0 {
		return Settings{}, errors.Join(append(problems, c.problems...)...)
	}
	s.Warnings = strangers(given, rows)
	return *s, nil
}

func lookup(environ []string) map[string]string {
	given := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if _, repeated := given[name]; ok && !repeated {
			given[name] = value
		}
	}
	for name, value := range given {
		if value == "" {
			delete(given, name)
		}
	}
	return given
}

// fillIn derives the defaults of what was not set from what was, as the library does, so that raising one of two does not
// break their rule.
func (s *Settings) fillIn(given map[string]string) {
	set := func(name string) bool { return given[name] != "" }
	if !set("WORKER_BATCH_SIZE") {
		s.WorkerBatchSize = max(s.WorkerBatchSize, s.WorkerConcurrency)
	} else if !set("WORKER_CONCURRENCY") {
		s.WorkerConcurrency = min(s.WorkerConcurrency, s.WorkerBatchSize)
	}
	if !set("MAX_RETRY_DELAY_MS") {
		s.MaxRetryDelay = max(s.MaxRetryDelay, s.BaseRetryDelay)
	} else if !set("BASE_RETRY_DELAY_MS") {
		s.BaseRetryDelay = min(s.BaseRetryDelay, s.MaxRetryDelay)
	}
}

// problem is one line of what is wrong.
func problem(name, rule string) error { return errors.New(name + ": " + rule) }
