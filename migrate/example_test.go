package migrate_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/migrate"
)

// A service that may create tables brings the schema up when it starts. Any number of them may start at once.
func ExampleUp() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	result, err := migrate.Up(ctx, pool, migrate.Options{Logger: slog.Default()})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("from version %d to %d\n", result.From, result.To)
}

// A team with a migration tool of its own takes the statements, and what the service's role needs.
func ExampleSQL() {
	ddl, err := migrate.SQL("notifyq")
	if err != nil {
		log.Fatal(err)
	}
	grants, err := migrate.Grants("notifyq", "app")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(os.Stderr, ddl, grants)
}
