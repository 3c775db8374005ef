package settings

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
)

const (
	dsn    = "DATABASE_URL=postgres://u:canary@h/db"
	secret = "whsec_Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5LTEyMzQ="
	other  = "whsec_b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItMTI="
	key    = "canary-0123456789:acme:schedule+read"
)

func TestDefaultsAreTheContract(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{RoleAPI, RoleWorker} {
		s, err := Load([]string{dsn, "PORT=", "UNRELATED=x"}, Options{Role: role})
		require.NoError(t, err)
		require.Equal(t, Settings{
			DatabaseURL: "postgres://u:canary@h/db", DatabaseSchema: "notifyq", DatabasePoolMax: 10,
			Host: "127.0.0.1", Port: 3000, LogLevel: slog.LevelInfo, Docs: true,
			Channels:   []notifyq.Channel{notifyq.ChannelEmail, notifyq.ChannelSMS, notifyq.ChannelPush},
			MaxRetries: 3, AmbiguousPolicy: notifyq.AmbiguousRetry,
			WorkerConcurrency: 10, WorkerBatchSize: 100, WorkerPollInterval: time.Second, WorkerShutdownTimeout: 10 * time.Second,
			VisibilityTimeout: 5 * time.Minute, RecoveryInterval: 30 * time.Second,
			BaseRetryDelay: time.Second, MaxRetryDelay: 5 * time.Minute, RateLimitWindow: time.Hour,
			Provider: ProviderMock, ProviderTimeout: 10 * time.Second,
			WebhookPollInterval: time.Second, WebhookTimeout: 15 * time.Second, WebhookMaxAttempts: 10,
		}, s)
	}
}

func TestEverySettingReachesItsField(t *testing.T) {
	t.Parallel()
	s, err := Load([]string{
		"DATABASE_URL=host=h user=u password=canary", "DATABASE_SCHEMA=s1", "DATABASE_POOL_MAX=2", "HOST=0.0.0.0", "PORT=0",
		"LOG_LEVEL=DEBUG", "API_KEYS=" + key, "DOCS=0", "DEMO=1", "CHANNELS=EMAIL,x.y-z_1", "MAX_RETRIES=0", "AMBIGUOUS_POLICY=park",
		"WORKER_CONCURRENCY=3", "WORKER_BATCH_SIZE=4", "WORKER_POLL_INTERVAL_MS=50", "WORKER_SHUTDOWN_TIMEOUT_MS=60",
		"JOB_VISIBILITY_TIMEOUT_SECONDS=7", "RECOVERY_INTERVAL_MS=800", "BASE_RETRY_DELAY_MS=9", "MAX_RETRY_DELAY_MS=10",
		"LOW_PRIORITY_SHARE=0.25", "RATE_LIMIT_MAX=11", "RATE_LIMIT_WINDOW_SECONDS=12", "PROVIDER=http", "PROVIDER_TIMEOUT_MS=13",
		"MOCK_FAILURE_RATE=1", "SMTP_URL=smtp://localhost", "SMTP_FROM=a@b.example", "PROVIDER_URL=http://h/p",
		"WEBHOOK_URL=http://10.1.2.3/w", "WEBHOOK_SECRET=" + secret + "," + other, "WEBHOOK_POLL_INTERVAL_MS=14",
		"WEBHOOK_TIMEOUT_MS=15", "WEBHOOK_MAX_ATTEMPTS=16", "WEBHOOK_ALLOW_CIDRS=10.0.0.0/8,fd00::/8", "RETENTION_DAYS=17",
		"EVENT_RETENTION_DAYS=18",
	}, Options{Role: RoleWorker})
	require.NoError(t, err)
	require.Len(t, s.APIKeys, 1)
	s.APIKeys = nil
	require.Equal(t, Settings{
		DatabaseURL: "host=h user=u password=canary", DatabaseSchema: "s1", DatabasePoolMax: 2,
		Host: "0.0.0.0", Port: 0, LogLevel: slog.LevelDebug, Demo: true,
		Channels: []notifyq.Channel{"EMAIL", "x.y-z_1"}, MaxRetries: 0, AmbiguousPolicy: notifyq.AmbiguousPark,
		WorkerConcurrency: 3, WorkerBatchSize: 4, WorkerPollInterval: 50 * time.Millisecond,
		WorkerShutdownTimeout: 60 * time.Millisecond, VisibilityTimeout: 7 * time.Second, RecoveryInterval: 800 * time.Millisecond,
		BaseRetryDelay: 9 * time.Millisecond, MaxRetryDelay: 10 * time.Millisecond, LowPriorityShare: 0.25,
		RateLimitMax: 11, RateLimitWindow: 12 * time.Second, Provider: ProviderHTTP, ProviderTimeout: 13 * time.Millisecond,
		MockFailureRate: 1, SMTPURL: "smtp://localhost", SMTPFrom: "a@b.example", ProviderURL: "http://h/p",
		WebhookURL: "http://10.1.2.3/w", WebhookSecrets: []string{secret, other}, WebhookPollInterval: 14 * time.Millisecond,
		WebhookTimeout: 15 * time.Millisecond, WebhookMaxAttempts: 16,
		WebhookAllowCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		RetentionDays:     17, EventRetentionDays: 18,
	}, s)
}

func TestBadValueIsNamedAndNotShown(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{
		"DATABASE_URL":    {"canary", " ", "postgres://u:canary@h:port/x", "mysql://canary@h/x", "host=h sslmode=canary"},
		"DATABASE_SCHEMA": {"Canary", "a b", `x"; drop`, "pg_canary", "1a", strings.Repeat("x", 64), "information_schema"},
		"DATABASE_POOL_MAX": {
			"0", "-1", "+5", " 5", "5 ", "5.0", "1e2", "0x10", "1_000", "1001", "999999999999999999999999", "five", "٥", "५",
		},
		"HOST":                           {"can ary", "127.0.0.1:80", "[::1]", "http://canary", "-canary", "canary/"},
		"PORT":                           {"-1", "65536", "http", "80,81"},
		"LOG_LEVEL":                      {"loud", "info+1", "2", "warning"},
		"API_KEYS":                       {"canary", "canary-0123456789:t:everything", key + "," + key, ",", " "},
		"DOCS":                           {"yes", "TRUE", "2", " true"},
		"DEMO":                           {"on"},
		"CHANNELS":                       {",", "EMAIL,", "EMAIL, SMS", "EMAIL,EMAIL", "1A", "canary!", strings.Repeat("x", 65)},
		"MAX_RETRIES":                    {"-1", "1000"},
		"AMBIGUOUS_POLICY":               {"canary", "Retry"},
		"WORKER_CONCURRENCY":             {"0", "10001"},
		"WORKER_BATCH_SIZE":              {"0", "10001"},
		"WORKER_POLL_INTERVAL_MS":        {"0", "9", "1s", "3600001"},
		"WORKER_SHUTDOWN_TIMEOUT_MS":     {"-1", "0", "3600001"},
		"JOB_VISIBILITY_TIMEOUT_SECONDS": {"0", "86401", "9223372036854775807"},
		"RECOVERY_INTERVAL_MS":           {"99"},
		"PROVIDER_TIMEOUT_MS":            {"0"},
		"BASE_RETRY_DELAY_MS":            {"0", "86400001"},
		"MAX_RETRY_DELAY_MS":             {"0", "86400001"},
		"LOW_PRIORITY_SHARE":             {"0.91", "-0", "NaN", "Inf", "1e-1", "0x1p-2", ".5", "0.", "0,5", " 0"},
		"RATE_LIMIT_MAX":                 {"-1", "10001"},
		"RATE_LIMIT_WINDOW_SECONDS":      {"0", "2678401"},
		"PROVIDER":                       {"canary", "SMTP"},
		"MOCK_FAILURE_RATE":              {"1.1", "2", "50%", "nan"},
		"SMTP_URL":                       {"canary", "http://canary", "smtp://canary:canary@h?x=canary", "smtp://u:canary%zz@h", "smtp://h?helo=canary..h", "smtp://h?messageIdDomain=-canary"},
		"SMTP_FROM":                      {"can\nary", "canary", "canary@", "canary@h,canary@h", "Canary <canary>"},
		"PROVIDER_URL":                   {"canary", "ftp://canary", "http://canary:canary@h/"},
		"WEBHOOK_URL":                    {"http://h/\x00canary", "canary", "ftp://canary", "http://", "http://u:canary@h/"},
		"WEBHOOK_SECRET":                 {"canary", "whsec_canary", secret + ",", "whsec_Y2FuYXJ5"},
		"WEBHOOK_POLL_INTERVAL_MS":       {"9"},
		"WEBHOOK_TIMEOUT_MS":             {"0"},
		"WEBHOOK_MAX_ATTEMPTS":           {"0", "1001"},
		"WEBHOOK_ALLOW_CIDRS":            {"canary", "10.0.0.1/8", "10.0.0.0", "10.0.0.0/8, 11.0.0.0/8", "::ffff:10.0.0.0/104"},
		"RETENTION_DAYS":                 {"-1", "3651"},
		"EVENT_RETENTION_DAYS":           {"3651"},
	} {
		for _, value := range values {
			environ := []string{name + "=" + value}
			if name != "DATABASE_URL" {
				environ = append(environ, dsn)
			}
			s, err := Load(environ, Options{Role: RoleAPI})
			require.Error(t, err, "%s=%q", name, value)
			require.Empty(t, s)
			require.True(t, strings.HasPrefix(err.Error(), name+": "), err.Error())
			require.NotContains(t, err.Error(), "\n", "one problem")
			require.NotContains(t, strings.ToLower(err.Error()), "canary")
		}
	}
	names := map[string]bool{}
	for _, row := range table(&Settings{}) {
		require.False(t, names[row.name], row.name)
		names[row.name] = true
	}
	require.Len(t, names, 37)
}

// What is not used today is tomorrow, and is printed at the start.
func TestEverySettingIsCheckedWhoeverNeedsIt(t *testing.T) {
	t.Parallel()
	for _, row := range table(&Settings{}) {
		for _, o := range []Options{{Role: RoleAPI}, {Role: RoleWorker}, {Role: RoleAPI, Dev: true}} {
			for _, garbage := range []string{"canary!,", "<canary", "canary\u202e"} {
				_, err := Load([]string{row.name + "=" + garbage, dsn}, o)
				require.ErrorContains(t, err, row.name+": ", "%s=%q", row.name, garbage)
				require.NotContains(t, err.Error(), "canary")
			}
		}
	}
}

func TestAllProblemsComeAtOnce(t *testing.T) {
	t.Parallel()
	environ := []string{"PORT=canary", "DEMO=canary", "PROVIDER=smtp", "CHANNELS=SMS", "WEBHOOK_SECRET=canary"}
	_, err := Load(environ, Options{Role: RoleWorker})
	var named []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		name, _, _ := strings.Cut(line, ":")
		named = append(named, name)
	}
	require.Equal(t, []string{
		"PORT", "DEMO", "WEBHOOK_SECRET", "DATABASE_URL", "SMTP_URL", "SMTP_FROM", "CHANNELS", "WEBHOOK_URL",
	}, named)
}

// Raising one of two must not break the rule between them where the other was left alone.
func TestDefaultsFollowWhatIsSet(t *testing.T) {
	t.Parallel()
	for environ, want := range map[string][4]int{
		"WORKER_CONCURRENCY=500":                    {500, 500, 1000, 300_000},
		"WORKER_CONCURRENCY=50":                     {50, 100, 1000, 300_000},
		"WORKER_BATCH_SIZE=5":                       {5, 5, 1000, 300_000},
		"WORKER_BATCH_SIZE=50":                      {10, 50, 1000, 300_000},
		"BASE_RETRY_DELAY_MS=600000":                {10, 100, 600_000, 600_000},
		"MAX_RETRY_DELAY_MS=500":                    {10, 100, 500, 500},
		"BASE_RETRY_DELAY_MS=1 MAX_RETRY_DELAY_MS=": {10, 100, 1, 300_000},
	} {
		s, err := Load(append(strings.Fields(environ), dsn), Options{Role: RoleWorker})
		require.NoError(t, err, environ)
		require.Equal(t, want, [4]int{
			s.WorkerConcurrency, s.WorkerBatchSize, int(s.BaseRetryDelay.Milliseconds()), int(s.MaxRetryDelay.Milliseconds()),
		}, environ)
	}
}

func TestFirstOfARepeatedNameCounts(t *testing.T) {
	t.Parallel()
	s, err := Load([]string{dsn, "PORT=1", "PORT=2"}, Options{Role: RoleWorker})
	require.NoError(t, err)
	require.Equal(t, 1, s.Port)
}
