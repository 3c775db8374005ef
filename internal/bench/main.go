package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case interrupted:
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 1 && args[0] == childArg {
		return beChild(ctx)
	}
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&o.quick, "quick", false, "small numbers and one round, to see that everything runs")
	flags.IntVar(&o.rounds, "rounds", 3, "how often each contender is measured, in turn with the others")
	flags.StringVar(&o.only, "only", "", "measure only these, separated by commas: "+strings.Join(names(measurements(options{})), ", "))
	flags.StringVar(&o.json, "json", "", "write the figures of all rounds to this `file`, too")
	flags.BoolVar(&o.graphile, "graphile", true, "measure graphile-worker, too, where there is npm")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.rounds < 1 {
		return errors.New("-rounds must be at least 1")
	}
	if o.quick {
		o.rounds = 1
	}
	return o.run(ctx)
}
