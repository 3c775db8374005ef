package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// conditions are what the figures hold for.
type conditions struct {
	Date       string            `json:"date"`
	CPU        string            `json:"cpu"`
	Cores      int               `json:"cores"`
	Load       string            `json:"load"` // before the run: of others
	Go         string            `json:"go"`
	PostgreSQL string            `json:"postgresql"`
	Settings   map[string]string `json:"settings"` // that are not the server's defaults
	Rounds     int               `json:"rounds"`
}

func (b *bench) conditions(ctx context.Context) (conditions, error) {
	at := conditions{
		Date: time.Now().UTC().Format("2006-01-02"), CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		Load: firstWord("/proc/loadavg"), Go: runtime.Version(), Settings: make(map[string]string), Rounds: b.rounds,
	}
	conn, err := pgx.Connect(ctx, b.server.URL())
	if err != nil {
		return at, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := conn.QueryRow(ctx, "show server_version").Scan(&at.PostgreSQL); err != nil {
		return at, err
	}
	rows, err := conn.Query(ctx, `select name, setting from pg_settings where source in ('command line', 'configuration file')
		and setting is distinct from boot_val and context <> 'internal'
		and name !~ '^(lc_|log_|listen_|unix_|port$|TimeZone|DateStyle|default_text|config_|data_|hba_|ident_)'`)
	if err != nil {
		return at, err
	}
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error { at.Settings[name] = value; return nil })
	return at, err
}

func (at conditions) String() string {
	var settings []string
	for name, value := range at.Settings {
		settings = append(settings, name+" "+value)
	}
	return fmt.Sprintf("%s: %d cores (%s), load %s, %s, PostgreSQL %s with its defaults but %s; medians of %d rounds",
		at.Date, at.Cores, at.CPU, at.Load, at.Go, at.PostgreSQL, strings.Join(settings, ", "), at.Rounds)
}

func field(path, name string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstWord(path string) string {
	text, _ := os.ReadFile(path)
	word, _, _ := strings.Cut(string(text), " ")
	return word
}
