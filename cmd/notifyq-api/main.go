// Command notifyq-api serves the HTTP API, or, with -dev, is a whole system with nothing set up. Run it with -help for its
// settings.
package main

import (
	"os"

	"github.com/notifyq/notifyq/cmd/internal/app"
	"github.com/notifyq/notifyq/cmd/internal/dev"
	"github.com/notifyq/notifyq/cmd/internal/settings"
)

func main() {
	os.Exit(app.Main(app.Process{
		Role: settings.RoleAPI, Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr,
		Dev: dev.Run,
	}))
}
