package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is one of the binaries at work.
type process struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	killed bool // by the test, so that its exit code says nothing

	mu      sync.Mutex
	address string // where it listens, once it has said so
	lines   []line
	stderr  bytes.Buffer
}

// line is one of its log.
type line struct {
	Msg, Address, JobID string
	text                string
}

// launch starts a binary with these settings and nothing else in its environment.
func launch(t *testing.T, name string, environ []string) *process {
	t.Helper()
	return launchFile(t, built.path(name), environ)
}

func launchFile(t *testing.T, path string, environ []string) *process {
	t.Helper()
	p := &process{t: t, name: filepath.Base(path), exited: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), path)
	p.cmd.Env = environ
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go p.follow(stdout)
	return p
}

// listens waits until it can be asked.
func (p *process) listens() {
	p.t.Helper()
	until(p.t, p.name+" listens", func() bool { return p.hasExited() || p.base() != "" })
	if p.base() == "" {
		p.t.Fatal(p.name + " did not start")
	}
}

func (p *process) follow(stdout io.Reader) {
	defer close(p.exited)
	scanner := bufio.NewScanner(stdout)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		l := line{text: scanner.Text()}
		_ = json.Unmarshal(scanner.Bytes(), &l)
		p.mu.Lock()
		p.lines = append(p.lines, l)
		if l.Msg == "process.started" {
			p.address = l.Address
		}
		p.mu.Unlock()
	}
	_ = p.cmd.Wait()
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// base is where it is asked, or nothing.
func (p *process) base() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address == "" {
		return ""
	}
	return "http://" + p.address
}

// logged counts the lines with this message, of one job unless jobID is empty.
func (p *process) logged(msg, jobID string) (count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.Msg == msg && (jobID == "" || l.JobID == jobID) {
			count++
		}
	}
	return count
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var text strings.Builder
	for _, l := range p.lines {
		text.WriteString(l.text + "\n")
	}
	return text.String()
}

// terminate asks it to stop, once: a second signal would end it at once.
func (p *process) terminate() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
}

// stopping has it asked, and waits until it knows.
func (p *process) stopping() {
	p.t.Helper()
	p.terminate()
	until(p.t, p.name+" is stopping", func() bool { return p.logged("process.stopping", "") == 1 })
}

// kill ends it without its knowledge.
func (p *process) kill() {
	p.t.Helper()
	p.killed = true
	require.NoError(p.t, p.cmd.Process.Kill())
	<-p.exited
}

// code waits for its end.
func (p *process) code() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// requireEndOf stops what still runs, all at once, and fails the test unless every process that it did not kill has ended
// in good order and has said nothing but its log.
func requireEndOf(t *testing.T, processes []*process) {
	for _, p := range processes {
		if t.Failed() {
			_ = p.cmd.Process.Kill() // it may wait for something that the test held back
		} else if !p.hasExited() && p.logged("process.stopping", "") == 0 {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	for _, p := range processes {
		select {
		case <-p.exited:
		case <-time.After(patience):
			t.Errorf("%s does not end", p.name)
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
		if code := p.cmd.ProcessState.ExitCode(); !t.Failed() && !p.killed && (code != 0 || p.stderr.Len() > 0) {
			t.Errorf("%s ended with %d: %s", p.name, code, p.stderr.String())
		}
	}
	if t.Failed() {
		for _, p := range processes {
			t.Logf("%s, %v:\n%s%s", p.name, p.cmd.ProcessState, p.log(), p.stderr.String())
		}
	}
}
