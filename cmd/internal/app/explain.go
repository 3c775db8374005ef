package app

import (
	"errors"
	"net"
	"syscall"

	"github.com/notifyq/notifyq/internal/schema"
	"github.com/notifyq/notifyq/internal/store"
	"github.com/notifyq/notifyq/migrate"
)

// explain is what may be said of an error of the database, and what to do about it. PostgreSQL's own words can quote
// values, and those of connections hold users and hosts.
func explain(err error) string {
	var (
		unfit  *schema.Error
		errno  syscall.Errno
		lookup *net.DNSError
	)
	switch {
	case errors.As(err, &unfit):
		return unfit.Error()
	case errors.Is(err, migrate.ErrPooled):
		return "DATABASE_URL: leads through a connection pooler such as PgBouncer; migrations need the server itself"
	case errors.Is(err, migrate.ErrLocked):
		return migrate.ErrLocked.Error() + ", or something else holds a lock on a table; try again when it is done"
	}
	switch code := store.Code(err); code {
	case "28P01", "28000":
		return "DATABASE_URL: the server refuses the user or the password (" + code + ")"
	case "3D000":
		return "DATABASE_URL: the database does not exist (" + code + ")"
	case "42501":
		return "the role lacks a right: to create the schema, or to change its tables (" + code + ")"
	case "":
	default:
		return store.Describe(err)
	}
	switch {
	case errors.As(err, &lookup):
		return "DATABASE_URL: the host's name can't be looked up"
	case errors.As(err, &errno):
		return "DATABASE_URL: no connection to the server: " + errno.Error()
	case errors.Is(err, migrate.ErrSchema):
		return "the database can't be used: it must be PostgreSQL 14 or later, not read-only, and let the role create the schema"
	default:
		return store.Describe(err)
	}
}
