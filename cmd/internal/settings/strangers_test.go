package settings

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMistypedNamesAreWarnedOf(t *testing.T) {
	t.Parallel()
	s, err := Load([]string{
		dsn, "WORKER_CONCURENCY=canary", "database_url=canary", "DATABSE_POOL_MAX=1", "WEBHOOK_RETRIES=canary", "SMTP_URI=x",
		"HOME=/", "POST=1", "DOCKER_HOST=x", "PATH=/", "WORKER_SERVICE_HOST=10.0.0.1", "WORKER_PORT=tcp://x", "DATABASE_NAME=x",
		"WEBHOOK_PORT_80_TCP=x", "WORKER_" + strings.Repeat("X", 100) + "=1", "=x", "x",
	}, Options{Role: RoleWorker})
	require.NoError(t, err)
	require.Equal(t, []string{
		"DATABSE_POOL_MAX is no setting; is DATABASE_POOL_MAX meant?",
		"SMTP_URI is no setting; is SMTP_URL meant?",
		"WEBHOOK_RETRIES is no setting",
		"WORKER_CONCURENCY is no setting; is WORKER_CONCURRENCY meant?",
		"database_url is no setting; is DATABASE_URL meant?",
	}, s.Warnings)
}
