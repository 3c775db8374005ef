package dev

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/demo"
	"github.com/notifyq/notifyq/internal/devdb"
	"github.com/notifyq/notifyq/migrate"
)

// openDatabase takes the server at url, or starts one from local binaries, or from downloaded ones.
func openDatabase(ctx context.Context, url string) (*devdb.Server, error) {
	return devdb.Start(ctx, devdb.Config{URL: url, Fallbacks: []devdb.Fallback{{
		Name: "download",
		Binaries: func(ctx context.Context) (string, error) {
			cache, err := cacheFolder()
			if err != nil {
				return "", err
			}
			return download{cache: cache}.binaries(ctx)
		},
	}}})
}

// prepare migrates the schema and makes it one of -dev.
func prepare(ctx context.Context, s settings.Settings, own bool, show screen) error {
	pool, err := pgxpool.New(ctx, s.DatabaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	if !own {
		if err := refuseForeign(ctx, pool, s); err != nil {
			return err
		}
		show.database(pool.Config().ConnConfig, s.DatabaseSchema)
	}
	if _, err := migrate.Up(ctx, pool, migrate.Options{Schema: s.DatabaseSchema}); err != nil {
		return err
	}
	// At once and not with the first event: by its table the next run knows that unfinished work is a demo's.
	receiver, err := demo.NewReceiver(pool, demo.ReceiverConfig{Schema: s.DatabaseSchema})
	if err != nil {
		return err
	}
	return receiver.Setup(ctx)
}

// refuseForeign keeps -dev from doing the work of a system that happens to be in the environment: its mock provider would
// mark as sent what nobody got.
func refuseForeign(ctx context.Context, pool *pgxpool.Pool, s settings.Settings) error {
	foreign, err := demo.Foreign(ctx, pool, s.DatabaseSchema)
	if foreign {
		err = errors.New("DATABASE_URL: the schema " + s.DatabaseSchema + " has unfinished notifications or events that are no " +
			"demo's, and -dev would deliver them; unset DATABASE_URL, or set another DATABASE_SCHEMA")
	}
	return err
}
