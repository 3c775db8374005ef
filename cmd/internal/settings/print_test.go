package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSettingsPrintWithoutSecrets(t *testing.T) {
	t.Parallel()
	s, err := Load([]string{
		dsn, "API_KEYS=" + key, "SMTP_URL=smtp://canary:canary@localhost", "PROVIDER_URL=https://canary:canary@h/canary",
		"WEBHOOK_URL=https://h.example/canary?canary", "WEBHOOK_SECRET=" + secret, "WORKER_CONCURRENCY=7",
	}, Options{Role: RoleWorker})
	require.NoError(t, err)
	var logged bytes.Buffer
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "settings", s, "pointer", &s)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	for _, out := range []string{
		logged.String(), string(text), fmt.Sprintf("%v %+v %#v %s %q %d", s, s, s, s, s, s), fmt.Sprintf("%v %+v %#v", &s, &s, &s),
		fmt.Sprintf("%v", struct{ S Settings }{s}),
	} {
		require.NotContains(t, out, "canary")
		require.NotContains(t, out, strings.TrimPrefix(secret, "whsec_"))
		require.Contains(t, out, "WORKER_CONCURRENCY")
	}
	require.Contains(t, s.String(), "WEBHOOK_SECRET=[set]")
	require.NotContains(t, s.String(), "WEBHOOK_ALLOW_CIDRS")
}
