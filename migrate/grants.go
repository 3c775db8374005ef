package migrate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq/internal/schema"
)

// Grants returns the statements that let a role work with the schema and change nothing about it, for services whose
// role is not the one that migrates. To be run by the schema's owner after every upgrade; running them again is
// harmless. An empty schema name means notifyq.
func Grants(schemaName, role string) (string, error) {
	opts, err := Options{Schema: schemaName}.withDefaults()
	if err != nil {
		return "", fmt.Errorf("migrate: %w", err)
	}
	if role == "" || strings.ContainsRune(role, 0) {
		return "", errors.New("migrate: the role must have a name")
	}
	to := pgx.Identifier{role}.Sanitize()
	within := func(names []string) string {
		qualified := make([]string, len(names))
		for i, name := range names {
			qualified[i] = schema.Quote(opts.Schema) + "." + name
		}
		return strings.Join(qualified, ", ")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "grant usage on schema %s to %s;\n", schema.Quote(opts.Schema), to)
	fmt.Fprintf(&b, "grant select on %s to %s;\n", within(append(schema.Views(), schema.VersionTable)), to)
	fmt.Fprintf(&b, "grant select, insert, update, delete on %s to %s;\n", within(schema.Tables()), to)
	fmt.Fprintf(&b, "grant execute on function %s to %s;\n", within(schema.Functions()), to)
	return b.String(), nil
}
