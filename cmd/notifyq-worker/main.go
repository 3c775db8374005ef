// Command notifyq-worker delivers notifications, publishes their events and keeps house. Run it with -help for its
// settings.
package main

import (
	"os"

	"github.com/notifyq/notifyq/cmd/internal/app"
	"github.com/notifyq/notifyq/cmd/internal/settings"
)

func main() {
	os.Exit(app.Main(app.Process{
		Role: settings.RoleWorker, Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr,
	}))
}
