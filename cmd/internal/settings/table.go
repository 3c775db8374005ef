package settings

import (
	"github.com/notifyq/notifyq"
)

// setting is a row of the table. form and meaning are for people; the fallback is read like a given value. An error of read
// is the rule, and does not hold the text.
type setting struct {
	group    string
	name     string
	fallback string
	meaning  string
	secret   bool
	value
}

// The groups of Help, in its order.
const (
	groupDatabase  = "Database"
	groupHTTP      = "HTTP and logs"
	groupJobs      = "Jobs"
	groupWorker    = "Worker"
	groupProvider  = "Provider"
	groupWebhook   = "Webhook"
	groupRetention = "Retention"
)

// Limits of the settings. Those that the library has too are the library's.
const (
	maxDelayMs  = 24 * 60 * 60 * 1000
	maxHourMs   = 60 * 60 * 1000
	daySeconds  = 24 * 60 * 60
	maxKeepDays = 3650
)

// table has every setting, bound to the fields of s.
func table(s *Settings) []setting {
	var rows []setting
	for _, part := range [][]setting{
		databaseRows(s), httpRows(s), jobRows(s), workerRows(s), providerRows(s), webhookRows(s), retentionRows(s),
	} {
		rows = append(rows, part...)
	}
	return rows
}

func databaseRows(s *Settings) []setting {
	return group(
		groupDatabase,
		row("DATABASE_URL", "", databaseURL(&s.DatabaseURL), "where PostgreSQL is; required, but with -dev, which uses it if it is set").keptSecret(),
		row("DATABASE_SCHEMA", notifyq.DefaultSchema, schemaName(&s.DatabaseSchema), "the schema with notifyq's tables"),
		row("DATABASE_POOL_MAX", "10", whole(&s.DatabasePoolMax, 1, 1000),
			"connections of the pool; a worker has three more, and two for the webhook"),
	)
}

func httpRows(s *Settings) []setting {
	return group(
		groupHTTP,
		row("HOST", "127.0.0.1", host(&s.Host), "the address to listen on; 0.0.0.0 or :: for all"),
		row("PORT", "3000", whole(&s.Port, 0, 65535), "the port to listen on; 0 takes any free one"),
		row("LOG_LEVEL", "info", level(&s.LogLevel), "the least that is logged"),
		row("API_KEYS", "", apiKeys(&s.APIKeys),
			"who may call the API; without any it listens on loopback only").keptSecret(),
		row("DOCS", "true", boolean(&s.Docs), "serve /openapi.json and /docs"),
		row("DEMO", "false", boolean(&s.Demo), "serve the demo receiver, POST /webhooks/mock"),
	)
}

func jobRows(s *Settings) []setting {
	return group(
		groupJobs,
		row("CHANNELS", "EMAIL,SMS,PUSH", channels(&s.Channels), "the channels that the API accepts and the worker serves"),
		row("MAX_RETRIES", "3", whole(&s.MaxRetries, 0, notifyq.MaxAttemptsLimit-1),
			"attempts less one of a notification that does not say"),
		row("AMBIGUOUS_POLICY", string(notifyq.AmbiguousRetry),
			word(&s.AmbiguousPolicy, notifyq.AmbiguousRetry, notifyq.AmbiguousPark),
			"what becomes of a delivery of unknown outcome, where the notification does not say"),
	)
}

func workerRows(s *Settings) []setting {
	return group(
		groupWorker,
		row("WORKER_CONCURRENCY", "10", whole(&s.WorkerConcurrency, 1, 10_000), "deliveries at once"),
		row("WORKER_BATCH_SIZE", "100", whole(&s.WorkerBatchSize, 1, 10_000),
			"jobs held at most; at least WORKER_CONCURRENCY"),
		row("WORKER_POLL_INTERVAL_MS", "1000", millis(&s.WorkerPollInterval, 10, maxHourMs),
			"how often an idle worker looks for due jobs"),
		row("WORKER_SHUTDOWN_TIMEOUT_MS", "10000", millis(&s.WorkerShutdownTimeout, 1, maxHourMs),
			"what running deliveries get at a stop; kill the process 5 s later at the earliest"),
		row("JOB_VISIBILITY_TIMEOUT_SECONDS", "300", seconds(&s.VisibilityTimeout, 1, daySeconds),
			"how long a claim holds; longer than PROVIDER_TIMEOUT_MS"),
		row("RECOVERY_INTERVAL_MS", "30000", millis(&s.RecoveryInterval, 100, maxDelayMs),
			"how often claims that ran out are looked for"),
		row("BASE_RETRY_DELAY_MS", "1000", millis(&s.BaseRetryDelay, 1, maxDelayMs),
			"the wait after the first failure; doubled after each further one"),
		row("MAX_RETRY_DELAY_MS", "300000", millis(&s.MaxRetryDelay, 1, maxDelayMs),
			"where the doubling ends; at least BASE_RETRY_DELAY_MS"),
		row("LOW_PRIORITY_SHARE", "0", fraction(&s.LowPriorityShare, 0.9),
			"part of each claim that lower priorities may take first"),
		row("RATE_LIMIT_MAX", "0", whole(&s.RateLimitMax, 0, 10_000),
			"deliveries a recipient gets in each window; 0 is no limit"),
		row("RATE_LIMIT_WINDOW_SECONDS", "3600", seconds(&s.RateLimitWindow, 1, 31*daySeconds), "the window"),
	)
}

func providerRows(s *Settings) []setting {
	return group(
		groupProvider,
		row("PROVIDER", ProviderMock, word(&s.Provider, ProviderMock, ProviderSMTP, ProviderHTTP), "who delivers"),
		row("PROVIDER_TIMEOUT_MS", "10000", millis(&s.ProviderTimeout, 1, maxDelayMs),
			"bounds a delivery; shorter than JOB_VISIBILITY_TIMEOUT_SECONDS by 100 ms"),
		row("MOCK_FAILURE_RATE", "0", fraction(&s.MockFailureRate, 1), "mock: part of the attempts that fail transiently"),
		row("SMTP_URL", "", smtpURL(&s.SMTPURL), "smtp: the server").keptSecret(),
		row("SMTP_FROM", "", sender(&s.SMTPFrom), "smtp: the sender"),
		row("PROVIDER_URL", "", providerURL(&s.ProviderURL), "http: where deliveries are posted").keptSecret(),
	)
}

func webhookRows(s *Settings) []setting {
	return group(
		groupWebhook,
		row("WEBHOOK_URL", "", webhookURL(&s.WebhookURL),
			"where events of finished jobs are posted; without it none are recorded").keptSecret(),
		row("WEBHOOK_SECRET", "", webhookSecrets(&s.WebhookSecrets),
			"what signs them, the newest first").keptSecret(),
		row("WEBHOOK_POLL_INTERVAL_MS", "1000", millis(&s.WebhookPollInterval, 10, maxHourMs),
			"how often an idle relay looks for due events"),
		row("WEBHOOK_TIMEOUT_MS", "15000", millis(&s.WebhookTimeout, 1, maxHourMs), "bounds a request"),
		row("WEBHOOK_MAX_ATTEMPTS", "10", whole(&s.WebhookMaxAttempts, 1, notifyq.MaxAttemptsLimit),
			"after how many failures an event is given up"),
		row("WEBHOOK_ALLOW_CIDRS", "", cidrs(&s.WebhookAllowCIDRs),
			"addresses outside the public internet that may be posted to"),
	)
}

func retentionRows(s *Settings) []setting {
	return group(
		groupRetention,
		row("RETENTION_DAYS", "0", whole(&s.RetentionDays, 0, maxKeepDays), "finished jobs go after this; 0 keeps them"),
		row("EVENT_RETENTION_DAYS", "0", whole(&s.EventRetentionDays, 0, maxKeepDays),
			"published events go after this; 0 keeps them"),
	)
}

func group(name string, rows ...setting) []setting {
	for i := range rows {
		rows[i].group = name
	}
	return rows
}

func row(name, fallback string, v value, meaning string) setting {
	return setting{name: name, fallback: fallback, meaning: meaning, value: v}
}

func (s setting) keptSecret() setting {
	s.secret = true
	return s
}
