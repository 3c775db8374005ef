package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/devdb"
	"github.com/notifyq/notifyq/migrate"
)

// database is a migrated schema for notifyq and one for the shop, both of this run's own.
type database struct {
	server *devdb.Server
	pool   *pgxpool.Pool
	schema string // notifyq's
	shop   string // the shop's
}

func openDatabase(ctx context.Context, url string) (_ *database, err error) {
	server, err := devdb.Start(ctx, devdb.Config{URL: url})
	if err != nil {
		return nil, fmt.Errorf("%w\nSet DATABASE_URL to a PostgreSQL, or install its server (Debian and Ubuntu: apt-get install postgresql)", err)
	}
	db := &database{server: server, schema: fmt.Sprintf("notifyq_quickstart_%d", os.Getpid())}
	db.shop = db.schema + "_shop"
	defer func() {
		if err != nil {
			err = errors.Join(err, db.close())
		}
	}()
	if db.pool, err = pgxpool.New(ctx, server.URL()); err != nil {
		return nil, err
	}
	if _, err = migrate.Up(ctx, db.pool, migrate.Options{Schema: db.schema}); err != nil {
		return nil, err
	}
	_, err = db.pool.Exec(ctx, fmt.Sprintf(`
		create schema %[1]s;
		create table %[1]s.orders (id bigint primary key, customer text not null, placed_at timestamptz not null default now())`, db.shop))
	return db, err
}

// close drops what this run made, and stops the server if it is ours.
//
//nolint:contextcheck // it cleans up after an interrupted run too
func (db *database) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	if db.pool != nil {
		for _, schema := range []string{db.shop, db.schema} {
			_, dropErr := db.pool.Exec(ctx, "drop schema if exists "+pgx.Identifier{schema}.Sanitize()+" cascade")
			err = errors.Join(err, dropErr)
		}
		db.pool.Close()
	}
	return errors.Join(err, db.server.Stop())
}
