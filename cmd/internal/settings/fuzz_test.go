package settings

import (
	"strings"
	"testing"
)

func FuzzLoad(f *testing.F) {
	f.Add("PORT", "3000", true)
	f.Add("DATABASE_URL", "postgres://u:p@h/db?sslmode=require", false)
	f.Add("DATABASE_URL", "host=h password='a b'", false)
	f.Add("WEBHOOK_URL", "https://[::1]:1/x", false)
	f.Add("WEBHOOK_SECRET", secret, false)
	f.Add("API_KEYS", key, true)
	f.Add("CHANNELS", "A,B", true)
	f.Add("LOW_PRIORITY_SHARE", "0.5", true)
	f.Add("WEBHOOK_ALLOW_CIDRS", "10.0.0.0/8", true)
	f.Add("SMTP_URL", "smtp://u:p@h", true)
	f.Add("PROVIDER_URL", "https://u:p@h/x", true)
	f.Fuzz(func(t *testing.T, name, value string, api bool) {
		o := Options{Role: RoleWorker}
		if api {
			o.Role = RoleAPI
		}
		s, err := Load([]string{dsn, name + "=" + value}, o)
		if (err == nil) == (s.DatabaseURL == "") {
			t.Fatal("either settings or problems")
		}
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if known, rule, ok := strings.Cut(line, ": "); !ok || rule == "" || strings.ToUpper(known) != known {
					t.Fatalf("a line without a setting: %q", line)
				}
			}
		}
	})
}
