package app

import (
	"fmt"
	"io"

	"github.com/notifyq/notifyq/cmd/internal/settings"
)

// usage prints everything that there is to set.
func (p Process) usage(w io.Writer) {
	what := "serves the HTTP API"
	if p.Role == settings.RoleWorker {
		what = "delivers notifications; over HTTP it has only /health, /livez, /readyz and /metrics"
	}
	name := p.name()
	_, _ = fmt.Fprintf(w, "%s %s.\n\nUsage:\n", name, what)
	line := func(call, meaning string) { _, _ = fmt.Fprintf(w, "  %-36s  %s\n", name+" "+call, meaning) }
	line("", "run until SIGTERM or SIGINT; a second signal ends it at once")
	if p.Dev != nil {
		line("-dev", "run a whole system with nothing set up: PostgreSQL, API, worker, receiver")
	}
	line("migrate up", "create the schema, or bring it up to date")
	line("migrate status", "tell which migrations the schema has")
	line("migrate sql", "print the migrations for another tool; needs no database")
	line("healthcheck [path]", "ask the process at HOST and PORT, by default for /livez; for containers")
	line("-version", "print the version")
	line("-help", "print this")
	_, _ = fmt.Fprint(w, `
Exit codes:
  0  stopped in good order, or done
  1  failed: the port is taken, the database refuses, a migration failed, not healthy, or the time to stop was over
     before everything was (what was left is taken over by other workers)
  2  wrong settings or arguments; every problem is printed on a line that begins with the setting's name

While the database is away, or its schema is not there yet, the process runs, /readyz answers 503, and it goes on by
itself. Settings are read from the environment; an empty one is not set. A name below stands before its default.
`)
	if p.Dev != nil {
		_, _ = fmt.Fprint(w, `
With DATABASE_URL set, -dev works in that database instead of one of its own: it migrates DATABASE_SCHEMA, delivers what
is due there, and leaves what was made. It refuses a schema with unfinished work that no -dev has made. PROVIDER and
WEBHOOK_URL are taken, too, where they are set.
`)
	}
	settings.Help(w)
}
