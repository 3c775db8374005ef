package migrate

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/tern/v2/migrate"

	"github.com/notifyq/notifyq/internal/schema"
)

//go:embed sql/*.sql
var files embed.FS

// load reads the migrations for a schema. Its name is the only thing that the files leave open.
func load(m *migrate.Migrator, schemaName string) error {
	folder, err := fs.Sub(files, "sql")
	if err != nil {
		return err
	}
	m.Data["Schema"] = schema.Quote(schemaName)
	if err := m.LoadMigrations(folder); err != nil {
		return fmt.Errorf("load the migrations: %w", err)
	}
	return nil
}

// migrations reads them without a database.
func migrations(ctx context.Context, schemaName string) ([]*migrate.Migration, error) {
	m, err := migrate.NewMigrator(ctx, nil, versionTable(schemaName))
	if err != nil {
		return nil, err
	}
	if err := load(m, schemaName); err != nil {
		return nil, err
	}
	return m.Migrations, nil
}

// versionTable is quoted, because tern splices it into its statements. That it then does not find an existing one by
// name costs nothing: it creates it if it does not exist.
func versionTable(schemaName string) string {
	return schema.Quote(schemaName) + "." + schema.VersionTable
}

// SQL returns all migrations as text for another tool, with the bookkeeping that makes Up, Status and Validate
// understand the result. It is for an empty schema, and is to be run in one transaction (psql -1). An empty name means
// notifyq.
func SQL(schemaName string) (string, error) {
	opts, err := Options{Schema: schemaName}.withDefaults()
	if err != nil {
		return "", fmt.Errorf("migrate: %w", err)
	}
	all, err := migrations(context.Background(), opts.Schema)
	if err != nil {
		return "", fmt.Errorf("migrate: %w", err)
	}
	var b strings.Builder
	table := versionTable(opts.Schema)
	fmt.Fprintf(&b, "-- notifyq's schema, version %d. Run it in one transaction.\n\n", schema.Version)
	fmt.Fprintf(&b, "create schema if not exists %s;\n", schema.Quote(opts.Schema))
	fmt.Fprintf(&b, "create table %s (version int4 not null primary key);\n", table)
	fmt.Fprintf(&b, "insert into %s (version) values (0);\n", table)
	for _, m := range all {
		fmt.Fprintf(&b, "\n-- %s\n\n%s\n\nupdate %s set version = %d;\n", m.Name, m.UpSQL, table, m.Sequence)
	}
	return b.String(), nil
}
