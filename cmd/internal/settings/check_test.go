package settings

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSettingsThatGoTogether(t *testing.T) {
	t.Parallel()
	worker, api, dev := Options{Role: RoleWorker}, Options{Role: RoleAPI}, Options{Role: RoleAPI, Dev: true}
	for _, c := range []struct {
		environ string
		o       Options
		problem string // its beginning; empty for none
	}{
		{"", worker, "DATABASE_URL: is required"},
		{"", api, "DATABASE_URL: is required"},
		{"", dev, ""},
		{"DATABASE_URL=canary", dev, "DATABASE_URL: must be"},
		{dsn + " PROVIDER_TIMEOUT_MS=5000 JOB_VISIBILITY_TIMEOUT_SECONDS=5", worker, "PROVIDER_TIMEOUT_MS: must be at least"},
		{dsn + " PROVIDER_TIMEOUT_MS=4901 JOB_VISIBILITY_TIMEOUT_SECONDS=5", worker, "PROVIDER_TIMEOUT_MS"},
		{dsn + " PROVIDER_TIMEOUT_MS=4900 JOB_VISIBILITY_TIMEOUT_SECONDS=5", worker, ""},
		{dsn + " JOB_VISIBILITY_TIMEOUT_SECONDS=10", api, "PROVIDER_TIMEOUT_MS"},
		{dsn + " WORKER_CONCURRENCY=20 WORKER_BATCH_SIZE=19", worker, "WORKER_BATCH_SIZE: must be at least WORKER_CONCURRENCY"},
		{dsn + " BASE_RETRY_DELAY_MS=2 MAX_RETRY_DELAY_MS=1", worker, "MAX_RETRY_DELAY_MS: must be at least"},
		{dsn + " PROVIDER=http", worker, "PROVIDER_URL: is required"},
		{dsn + " PROVIDER=http", api, ""}, // the API needs no secret of the worker's
		{"PROVIDER=http", dev, "PROVIDER_URL: is required"},
		{dsn + " PROVIDER=smtp SMTP_FROM=a@b.example", worker, "SMTP_URL: is required"},
		{dsn + " PROVIDER=smtp SMTP_URL=smtp://h", worker, "SMTP_FROM: is required"},
		{dsn + " PROVIDER=smtp SMTP_URL=smtp://h SMTP_FROM=canary", worker, "SMTP_FROM: must be one address"},
		{dsn + " PROVIDER=smtp SMTP_URL=smtp://h SMTP_FROM=a@b.example", worker, ""},
		{dsn + " PROVIDER=smtp SMTP_URL=smtp://h SMTP_FROM=a@b.example CHANNELS=SMS", worker, "CHANNELS: must hold EMAIL"},
		{dsn + " WEBHOOK_URL=https://h.example", worker, "WEBHOOK_SECRET: is required"},
		{dsn + " WEBHOOK_URL=https://h.example", api, ""},
		{dsn + " WEBHOOK_SECRET=" + secret, worker, "WEBHOOK_URL: is required"},
		{dsn + " WEBHOOK_SECRET=" + secret, api, ""}, // the demo receiver's
		{"WEBHOOK_SECRET=" + secret, dev, ""},
		{dsn + " WEBHOOK_SECRET=" + secret + " WEBHOOK_URL=http://127.0.0.1/canary", worker, "WEBHOOK_URL: must not lead outside"},
		{dsn + " WEBHOOK_SECRET=" + secret + " WEBHOOK_URL=http://127.0.0.1/canary WEBHOOK_ALLOW_CIDRS=127.0.0.0/8", worker, ""},
		{dsn + " WEBHOOK_SECRET=" + secret + " WEBHOOK_URL=canary", worker, "WEBHOOK_URL: must begin with"},
		{dsn + " HOST=0.0.0.0", worker, ""},
		{dsn + " HOST=0.0.0.0", api, "HOST: must be a loopback address unless API_KEYS is set"},
		{dsn + " HOST=example.com", api, "HOST"},
		{dsn + " HOST=0.0.0.0 API_KEYS=" + key, api, ""},
		{dsn + " HOST=::1", api, ""},
		{dsn + " HOST=localhost", api, ""},
		{"", Options{Role: RoleWorker, Only: PartDatabase}, "DATABASE_URL: is required"},
		{dsn + " PORT=canary PROVIDER=http", Options{Role: RoleWorker, Only: PartDatabase}, ""},
		{"DATABASE_SCHEMA=x", Options{Role: RoleWorker, Only: PartSchema}, ""},
		{"DATABASE_SCHEMA=X", Options{Role: RoleWorker, Only: PartSchema}, "DATABASE_SCHEMA"},
		{"HOST=0.0.0.0", Options{Role: RoleAPI, Only: PartHTTP}, ""},
	} {
		_, err := Load(strings.Fields(c.environ), c.o)
		if c.problem == "" {
			require.NoError(t, err, c.environ)
			continue
		}
		require.ErrorContains(t, err, c.problem, c.environ)
		require.NotContains(t, err.Error(), "\n", c.environ)
		require.NotContains(t, err.Error(), "canary")
	}
}
