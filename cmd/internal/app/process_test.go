package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// patience is for what other processes do. Nothing that passes waits for its end.
const patience = 30 * time.Second

// runAs, in the environment, makes the test binary one of ours.
const runAs = "NOTIFYQ_TEST_RUN_AS"

func TestMain(m *testing.M) {
	if role := os.Getenv(runAs); role != "" {
		os.Exit(Main(Process{
			Role: settings.Role(role), Args: os.Args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr,
		}))
	}
	dbtest.Main(m)
}

// running is a process at work.
type running struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	stderr  bytes.Buffer
	exited  chan struct{}

	mu      sync.Mutex
	output  strings.Builder
	waiters map[string]chan struct{} // closed when a line with that msg was seen
}

// launch starts a process with these settings and nothing else in its environment, and waits until it listens.
func launch(t *testing.T, role settings.Role, environ ...string) *running {
	t.Helper()
	p := &running{t: t, exited: make(chan struct{}), waiters: map[string]chan struct{}{}}
	p.cmd = exec.CommandContext(context.Background(), os.Args[0])
	p.cmd.Env = append([]string{"PORT=0", runAs + "=" + string(role)}, environ...)
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	started := p.waiter("process.started")
	go p.follow(stdout)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
	p.await(started, "process.started")
	return p
}

func (p *running) follow(stdout io.Reader) {
	defer close(p.exited)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var line struct{ Msg, Address string }
		_ = json.Unmarshal(lines.Bytes(), &line)
		p.mu.Lock()
		fmt.Fprintln(&p.output, lines.Text())
		if line.Address != "" {
			p.address = line.Address
		}
		if w, ok := p.waiters[line.Msg]; ok {
			close(w)
			delete(p.waiters, line.Msg)
		}
		p.mu.Unlock()
	}
	_ = p.cmd.Wait()
}

// waiter is closed by the next line with that message.
func (p *running) waiter(msg string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := make(chan struct{})
	p.waiters[msg] = w
	return w
}

func (p *running) await(signal <-chan struct{}, what string) {
	p.t.Helper()
	select {
	case <-signal:
		return
	case <-p.exited:
	case <-time.After(patience):
	}
	select {
	case <-signal: // just before the end
	default:
		p.t.Fatalf("no %s:\n%s%s", what, p.stdout(), p.stderr.String())
	}
}

func (p *running) stdout() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// end sends a signal and returns the exit code.
func (p *running) end() int {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	return p.code()
}

func (p *running) code() int {
	p.t.Helper()
	p.await(p.exited, "end")
	return p.cmd.ProcessState.ExitCode()
}

// get asks the process. 0 is no answer.
func (p *running) get(path string, header ...string) (int, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+path, nil)
	require.NoError(p.t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	require.NoError(p.t, err)
	return answer.StatusCode, string(body)
}

// until waits for another process to have done something.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, patience, 20*time.Millisecond, what)
}
