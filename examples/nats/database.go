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

// database holds notifyq's schema, of this run's own, and the shop's table beside its tables.
type database struct {
	server *devdb.Server
	pool   *pgxpool.Pool
	schema string
	orders string
}

func openDatabase(ctx context.Context) (_ *database, err error) {
	server, err := devdb.Start(ctx, devdb.Config{URL: os.Getenv("DATABASE_URL")})
	if err != nil {
		return nil, err
	}
	db := &database{server: server, schema: fmt.Sprintf("notifyq_nats_%d", os.Getpid())}
	db.orders = db.schema + ".orders"
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
	_, err = db.pool.Exec(ctx, "create table "+db.orders+" (id bigint primary key, item text not null)")
	return db, err
}

// close drops what this run made, and stops the server if it is ours.
//
//nolint:contextcheck // it cleans up after a run that took too long, too
func (db *database) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	if db.pool != nil {
		_, err = db.pool.Exec(ctx, "drop schema if exists "+pgx.Identifier{db.schema}.Sanitize()+" cascade")
		db.pool.Close()
	}
	return errors.Join(err, db.server.Stop())
}
