package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/migrate"
)

// migrate is the subcommand.
func (p Process) migrate(ctx context.Context, what string) int {
	part := settings.PartDatabase
	switch what {
	case "up", "status":
	case "sql":
		part = settings.PartSchema
	default:
		return p.misused("unknown command: migrate " + what + "; there are up, status and sql")
	}
	s, ok := p.load(settings.Options{Only: part})
	if !ok {
		return exitSettings
	}
	if what == "sql" {
		return p.migrateSQL(s) //nolint:contextcheck // it asks nobody
	}
	s.DatabasePoolMax = 1
	pool, err := openPool(ctx, s, p.name())
	if err != nil {
		return p.ended(err)
	}
	defer closePool(pool)
	opts := migrate.Options{Schema: s.DatabaseSchema, Logger: slog.New(slog.NewTextHandler(p.Stderr, nil))}
	if what == "up" {
		err = migrateUp(ctx, pool, opts, p.Stdout)
	} else {
		err = migrateStatus(ctx, pool, opts, p.Stdout)
	}
	if err != nil {
		_, _ = fmt.Fprintf(p.Stderr, "%s: migrate %s: %s\n", p.name(), what, explain(err))
		return exitFailed
	}
	return exitOK
}

func (p Process) migrateSQL(s settings.Settings) int {
	sql, err := migrate.SQL(s.DatabaseSchema)
	if err == nil {
		_, err = io.WriteString(p.Stdout, sql)
	}
	return p.ended(err)
}

func migrateUp(ctx context.Context, pool *pgxpool.Pool, opts migrate.Options, out io.Writer) error {
	done, err := migrate.Up(ctx, pool, opts)
	if err != nil {
		return err
	}
	if done.From == done.To {
		_, _ = fmt.Fprintf(out, "schema %s is at version %d; nothing to do\n", opts.Schema, done.To)
		return nil
	}
	_, _ = fmt.Fprintf(out, "schema %s: version %d -> %d\n", opts.Schema, done.From, done.To)
	return nil
}

func migrateStatus(ctx context.Context, pool *pgxpool.Pool, opts migrate.Options, out io.Writer) error {
	state, err := migrate.Status(ctx, pool, opts)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "schema %s: version %d of %d\n", opts.Schema, state.Current, state.Latest)
	for _, m := range state.Migrations {
		word := "pending"
		if m.Applied {
			word = "applied"
		}
		_, _ = fmt.Fprintf(out, "  %3d  %s  %s\n", m.Version, word, m.Name)
	}
	return nil
}
