package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notifyq/notifyq/internal/schema"
)

// State is which migrations a schema has.
type State struct {
	// Current is the schema's version, 0 if there is no schema. It may be above Latest.
	Current int
	// Latest is this release's version.
	Latest     int
	Migrations []Migration
}

// Migration is one step of this release.
type Migration struct {
	Version int
	Name    string
	Applied bool
}

// Status reads which migrations a schema has. A schema that does not exist has none.
func Status(ctx context.Context, pool *pgxpool.Pool, opts Options) (State, error) {
	state, err := status(ctx, pool, opts)
	if err != nil {
		return State{}, fmt.Errorf("migrate: %w", err)
	}
	return state, nil
}

func status(ctx context.Context, pool *pgxpool.Pool, opts Options) (State, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return State{}, err
	}
	all, err := migrations(ctx, opts.Schema)
	if err != nil {
		return State{}, err
	}
	current, err := installed(ctx, pool, opts.Schema)
	if err != nil {
		return State{}, err
	}
	s := State{Current: current, Latest: schema.Version}
	for _, m := range all {
		v := int(m.Sequence)
		s.Migrations = append(s.Migrations, Migration{Version: v, Name: m.Name, Applied: v <= current})
	}
	return s, nil
}

// Validate returns nil if the pool's role can work with the schema, and otherwise an error that is ErrSchema and says
// what is missing. A schema ahead of this release is fine and logged.
func Validate(ctx context.Context, pool *pgxpool.Pool, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	version, err := schema.Check(ctx, pool, opts.Schema)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	logAhead(ctx, opts, version)
	return nil
}

// installed is the schema's version, 0 if there is no schema.
func installed(ctx context.Context, db schema.Querier, name string) (int, error) {
	version, err := schema.Installed(ctx, db, name)
	var unfit *schema.Error
	if errors.As(err, &unfit) && (unfit.Problem == schema.SchemaMissing || unfit.Problem == schema.VersionMissing) {
		return 0, nil
	}
	return version, err
}

func logAhead(ctx context.Context, opts Options, version int) {
	if version <= schema.Version {
		return
	}
	opts.Logger.WarnContext(ctx, "the schema is ahead of this release", "schema", opts.Schema, "version", version,
		"known", schema.Version)
}
