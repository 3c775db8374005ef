package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notifyq/notifyq/internal/devdb"
)

// bench is a run.
type bench struct {
	options
	server   *devdb.Server
	graphile string // where graphile-worker is installed; empty: nowhere
	api      string // the binary
	results  []*result
}

// result is what came out of a measurement.
type result struct {
	measurement
	rounds map[string][]figures // by contender
}

func (o options) run(ctx context.Context) error {
	selected, err := o.selected()
	if err != nil {
		return err
	}
	server, err := devdb.Start(ctx, devdb.Config{Settings: map[string]string{"max_connections": "200"}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	folder, err := os.MkdirTemp("", "notifyq-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	b := &bench{options: o, server: server}
	if err := b.prepare(ctx, folder, selected); err != nil {
		return err
	}
	at, err := b.conditions(ctx)
	if err != nil {
		return err
	}
	fmt.Println(at)
	for _, m := range selected {
		if err := b.measure(ctx, m); err != nil {
			return err
		}
	}
	if o.json == "" {
		return nil
	}
	return writeJSON(o.json, at, b.results)
}

func (o options) selected() ([]measurement, error) {
	all := measurements(o)
	if o.only == "" {
		return all, nil
	}
	var out []measurement
	for name := range strings.SplitSeq(o.only, ",") {
		i := slices.IndexFunc(all, func(m measurement) bool { return m.name == strings.TrimSpace(name) })
		if i < 0 {
			return nil, fmt.Errorf("-only: no measurement %q; there are %s", name, strings.Join(names(all), ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// prepare gets what some contenders need.
func (b *bench) prepare(ctx context.Context, folder string, selected []measurement) error {
	needs := func(do string) bool {
		return slices.ContainsFunc(selected, func(m measurement) bool {
			return slices.ContainsFunc(m.contenders, func(c contender) bool { return c.task.Do == do })
		})
	}
	if needs("notifyq http") {
		b.api = filepath.Join(folder, "notifyq-api")
		cmd := exec.CommandContext(ctx, "go", "build", "-o", b.api, "github.com/notifyq/notifyq/cmd/notifyq-api")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build notifyq-api: %w\n%s", err, said)
		}
	}
	if needs("graphile drain") && b.options.graphile && !b.quick {
		if err := installGraphile(ctx, folder); err != nil {
			fmt.Fprintln(os.Stderr, "graphile-worker is left out:", err)
			return nil
		}
		b.graphile = folder
	}
	return nil
}

// measure runs every contender in turn, so that what the machine does meanwhile meets all of them.
func (b *bench) measure(ctx context.Context, m measurement) error {
	r := &result{measurement: m, rounds: make(map[string][]figures)}
	b.results = append(b.results, r)
	for round := range b.rounds {
		for _, c := range m.contenders {
			if c.task.Do == "graphile drain" && b.graphile == "" {
				continue
			}
			fmt.Fprintf(os.Stderr, "\r\033[K%s, round %d of %d: %s …", m.name, round+1, b.rounds, c.name)
			f, err := b.contend(ctx, m, c)
			fmt.Fprint(os.Stderr, "\r\033[K")
			if err != nil {
				return fmt.Errorf("%s: %s: %w", m.name, c.name, err)
			}
			r.rounds[c.name] = append(r.rounds[c.name], f)
		}
	}
	r.print(os.Stdout)
	return nil
}

// contend runs one contender once, on a database of its own.
func (b *bench) contend(ctx context.Context, m measurement, c contender) (f figures, err error) {
	conn, err := pgx.Connect(ctx, b.server.URL())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	name := fmt.Sprintf("bench_%d", time.Now().UnixNano())
	if _, err := conn.Exec(ctx, "create database "+name); err != nil {
		return nil, err
	}
	defer func() {
		_, dropped := conn.Exec(context.WithoutCancel(ctx), "drop database "+name+" with (force)")
		err = errors.Join(err, dropped)
	}()
	u, err := url.Parse(b.server.URL())
	if err != nil {
		return nil, err
	}
	u.Path = "/" + name
	t := c.task
	t.DSN, t.Folder, t.Binary = u.String(), b.graphile, b.api
	if rate := b.median(m.relative); rate > 0 {
		t.PerSecond = m.share * rate
	}
	return runChild(ctx, t)
}

// median is the first contender's figure in an earlier measurement.
func (b *bench) median(name string) float64 {
	for _, r := range b.results {
		if r.name == name && len(r.contenders) > 0 {
			return r.median(r.contenders[0].name, r.figure)
		}
	}
	return 0
}
