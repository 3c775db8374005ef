package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/settings"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailed   = 1
	exitSettings = 2
)

// Process is what a binary is given.
type Process struct {
	Role    settings.Role
	Args    []string // without the binary's name
	Environ []string
	Stdout  io.Writer
	Stderr  io.Writer
	// Dev runs the whole system in one process. Nil: the binary has no -dev.
	Dev func(ctx context.Context, d Development) error
}

// Development is what -dev gets. The settings have no DATABASE_URL unless one was given.
type Development struct {
	Settings settings.Settings
	Stdout   io.Writer
	Stderr   io.Writer
}

// name is the binary's.
func (p Process) name() string { return "notifyq-" + string(p.Role) }

// Main does what the arguments say and returns the exit code.
func Main(p Process) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process as it would have ended without us
	return p.main(ctx)
}

func (p Process) main(ctx context.Context) int {
	flags := flag.NewFlagSet(p.name(), flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed here
	version := flags.Bool("version", false, "")
	dev := new(bool)
	if p.Dev != nil {
		dev = flags.Bool("dev", false, "")
	}
	switch err := flags.Parse(p.Args); {
	case errors.Is(err, flag.ErrHelp):
		p.usage(p.Stdout)
		return exitOK
	case err != nil:
		return p.misused(err.Error())
	case *version:
		_, _ = fmt.Fprintln(p.Stdout, p.name(), Version())
		return exitOK
	}
	switch command := flags.Arg(0); {
	case command == "":
	case *dev:
		return p.misused("-dev takes no command")
	case command == "migrate" && flags.NArg() == 2:
		return p.migrate(ctx, flags.Arg(1))
	case command == "healthcheck" && flags.NArg() <= 2:
		return p.healthcheck(ctx, flags.Arg(1))
	case command == "help" && flags.NArg() == 1:
		p.usage(p.Stdout)
		return exitOK
	default:
		return p.misused("unknown command: " + strings.Join(flags.Args(), " "))
	}
	return p.run(ctx, *dev)
}

// misused says what was wrong with the arguments.
func (p Process) misused(what string) int {
	_, _ = fmt.Fprintf(p.Stderr, "%s: %s\nTry %s -help.\n", p.name(), what, p.name())
	return exitSettings
}

// load prints the problems of settings, one a line.
func (p Process) load(o settings.Options) (settings.Settings, bool) {
	o.Role = p.Role
	s, err := settings.Load(p.Environ, o)
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			_, _ = fmt.Fprintf(p.Stderr, "%s: %s\n", p.name(), line)
		}
		return settings.Settings{}, false
	}
	return s, true
}

// run is the binary's own work, until a signal.
func (p Process) run(ctx context.Context, dev bool) int {
	s, ok := p.load(settings.Options{Dev: dev})
	if !ok {
		return exitSettings
	}
	if dev {
		redirectStray(NewLogger(p.Stderr, s.LogLevel))
		return p.ended(p.Dev(ctx, Development{s, p.Stdout, p.Stderr}))
	}
	log := NewLogger(p.Stdout, s.LogLevel)
	redirectStray(log)
	for _, warning := range s.Warnings {
		log.WarnContext(ctx, "settings.unknown", "warning", warning)
	}
	node, err := NewNode(ctx, NodeConfig{
		Name: p.name(), Settings: s, Logger: log, API: p.Role == settings.RoleAPI, Worker: p.Role == settings.RoleWorker,
	})
	if err != nil {
		_, _ = fmt.Fprintf(p.Stderr, "%s: %s\n", p.name(), err)
		return exitSettings
	}
	listener, err := node.Listen(ctx)
	if err != nil {
		node.Close()
		return p.ended(err)
	}
	err = node.Run(ctx, listener)
	if err != nil {
		log.ErrorContext(ctx, "process.failed", "name", p.name(), "error", safe(err))
	} else {
		log.InfoContext(ctx, "process.stopped", "name", p.name())
	}
	return p.ended(err)
}

// ended is the exit code for how the work ended.
func (p Process) ended(err error) int {
	if err == nil {
		return exitOK
	}
	_, _ = fmt.Fprintf(p.Stderr, "%s: %s\n", p.name(), safe(err))
	return exitFailed
}

// safe is an error's own words, or, of the database's, what may be said.
func safe(err error) string {
	if !errors.Is(err, notifyq.ErrDrainTimeout) && ofDatabase(err) {
		return explain(err)
	}
	return err.Error()
}
