package e2e_test

import (
	"testing"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// The API's keys, by what they may do.
const (
	shop       = "shop-0123456789abcdef"        // a tenant's, for everything
	shopNext   = "shop-next-0123456789abcdef"   // the same tenant's next one, beside the first while they are exchanged
	shopWriter = "shop-writer-0123456789abcdef" // schedules only
	shopReader = "shop-reader-0123456789abcdef" // reads only
	rival      = "rival-0123456789abcdef"       // another tenant's, for everything
	owner      = "owner-0123456789abcdef"       // the whole system's
)

const apiKeys = shop + ":shop:schedule+read+operate," + shopNext + ":shop:schedule+read+operate," +
	shopWriter + ":shop:schedule," + shopReader + ":shop:read," +
	rival + ":rival:schedule+read+operate," + owner + ":*:schedule+read+operate"

// system is an API and workers on one database.
type system struct {
	t         *testing.T
	db        *dbtest.DB
	environ   []string
	api       *process
	workers   []*process
	processes []*process
}

// assemble starts an API and workers on a database of the test's own. Settings are NAME=value; what is not set is quick.
// When the test is over all processes are stopped, before the database's invariants are checked.
func assemble(t *testing.T, workers int, settings ...string) *system {
	t.Helper()
	return assembleOn(t, dbtest.New(t), workers, settings...)
}

func assembleOn(t *testing.T, db *dbtest.DB, workers int, settings ...string) *system {
	t.Helper()
	s := &system{t: t, db: db}
	// Of a name that is there twice the first one counts.
	s.environ = append(
		settings, "DATABASE_URL="+db.URL, "DATABASE_SCHEMA="+db.Schema, "DATABASE_POOL_MAX=4", "PORT=0", "LOG_LEVEL=debug",
		"API_KEYS="+apiKeys, "WORKER_POLL_INTERVAL_MS=50", "WEBHOOK_POLL_INTERVAL_MS=50", "RECOVERY_INTERVAL_MS=200",
		"BASE_RETRY_DELAY_MS=20", "MAX_RETRY_DELAY_MS=100", "WORKER_SHUTDOWN_TIMEOUT_MS=30000",
	)
	t.Cleanup(func() { requireEndOf(t, s.processes) })
	s.api = s.launch("notifyq-api")
	for range workers {
		s.workers = append(s.workers, s.launch("notifyq-worker"))
	}
	for _, p := range s.processes {
		p.listens()
	}
	return s
}

// worker starts one more, with settings that may differ from the others'.
func (s *system) worker(settings ...string) *process {
	s.t.Helper()
	p := s.start("notifyq-worker", settings...)
	s.workers = append(s.workers, p)
	return p
}

func (s *system) start(name string, settings ...string) *process {
	s.t.Helper()
	p := s.launch(name, settings...)
	p.listens()
	return p
}

func (s *system) launch(name string, settings ...string) *process {
	s.t.Helper()
	p := launch(s.t, name, append(settings, s.environ...))
	s.processes = append(s.processes, p)
	return p
}

// logged counts the workers' lines with this message, of one job unless jobID is empty.
func (s *system) logged(msg, jobID string) (count int) {
	for _, p := range s.workers {
		count += p.logged(msg, jobID)
	}
	return count
}

// table is the qualified name of one of the database's tables.
func (s *system) table(name string) string { return s.db.Schema + "." + name }
