package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// task is what a process of its own is asked to do, so that one contender's heap, goroutines and connections are no part of
// another one's figures.
type task struct {
	Do  string // a name in children
	DSN string

	Jobs         int           `json:",omitempty"`
	PayloadBytes int           `json:",omitempty"` // 0: a short payload
	Limited      bool          `json:",omitempty"` // a limit per recipient; every recipient is another one
	Held         bool          `json:",omitempty"` // another transaction's snapshot is open meanwhile
	Workers      int           `json:",omitempty"` // processes that share the work
	Clients      int           `json:",omitempty"` // goroutines or connections
	PerSecond    float64       `json:",omitempty"` // jobs scheduled a second
	Lasting      time.Duration `json:",omitempty"`
	Finished     int           `json:",omitempty"` // jobs that finished before
	Tomorrow     int           `json:",omitempty"` // jobs that are due tomorrow
	Folder       string        `json:",omitempty"` // where graphile-worker is installed
	Binary       string        `json:",omitempty"` // notifyq-api

	// What a worker is set to. 0 is the setting for throughput.
	Concurrency int `json:",omitempty"`
	BatchSize   int `json:",omitempty"`
}

// figures is what came out, by name with the unit.
type figures map[string]float64

// childArg, as the only argument, makes this program a child: it reads a task from its standard input, and writes figures
// to its standard output.
const childArg = "child"

// children are the tasks.
func children() map[string]func(context.Context, task) (figures, error) {
	return map[string]func(context.Context, task) (figures, error){
		"notifyq drain":     drainNotifyq,
		"notifyq worker":    workNotifyq,
		"notifyq schedule":  scheduleNotifyq,
		"notifyq latency":   latencyNotifyq,
		"notifyq sustained": sustainedNotifyq,
		"notifyq idle":      idleNotifyq,
		"notifyq http":      loadHTTP,
		"river drain":       drainRiver,
		"river schedule":    scheduleRiver,
		"river latency":     latencyRiver,
		"graphile drain":    drainGraphile,
		"floor drain":       drainFloor,
	}
}

// child is a process that does a task.
type child struct {
	task   task
	cmd    *exec.Cmd
	output bytes.Buffer
}

func startChild(ctx context.Context, t task) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	input, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	c := &child{task: t, cmd: exec.CommandContext(ctx, self, childArg)}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = bytes.NewReader(input), &c.output, os.Stderr
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = 15 * time.Second
	return c, c.cmd.Start()
}

// wait returns what came out.
func (c *child) wait(ctx context.Context) (figures, error) {
	if err := c.cmd.Wait(); err != nil {
		return nil, errors.Join(ctx.Err(), fmt.Errorf("%s: %w", c.task.Do, err))
	}
	var f figures
	if err := json.Unmarshal(c.output.Bytes(), &f); err != nil {
		return nil, fmt.Errorf("%s: %w", c.task.Do, err)
	}
	return f, nil
}

func runChild(ctx context.Context, t task) (figures, error) {
	c, err := startChild(ctx, t)
	if err != nil {
		return nil, err
	}
	return c.wait(ctx)
}

// beChild is the other end.
func beChild(ctx context.Context) error {
	var t task
	if err := json.NewDecoder(os.Stdin).Decode(&t); err != nil {
		return err
	}
	do, ok := children()[t.Do]
	if !ok {
		return fmt.Errorf("no task %q", t.Do)
	}
	f, err := do(ctx, t)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}
