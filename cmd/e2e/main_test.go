// Package e2e_test starts the real binaries, an API and workers on one database, and drives them over HTTP as callers,
// gateways, receivers and operators do. It sees nothing else of them but their logs, their exit codes and, where a promise
// is about what is stored, the tables.
package e2e_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/notifyq/notifyq/cmd/internal/app"
	"github.com/notifyq/notifyq/cmd/internal/dev"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// patience is for what other processes do. Nothing that passes waits for its end.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	// The go command keeps the result of a test for as long as its binary is the same, and knows nothing of what tests build.
	runtime.KeepAlive([]any{app.Main, dev.Run})
	dbtest.Main(m)
}

// begin is how every test starts. It builds the binaries for the first one. All tests are begun before the first parallel
// one goes on, so the binaries are there until the last has ended.
func begin(t *testing.T) {
	t.Helper()
	built.hold(t)
	t.Parallel()
}

// programs are the binaries in a folder of their own, for as long as somebody holds them.
type programs struct {
	mu     sync.Mutex
	users  int
	folder string
	err    error
}

var built programs

func (p *programs) hold(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users++; p.users == 1 {
		p.folder, p.err = build(t, raceEnabled)
	}
	t.Cleanup(p.release)
	if p.err != nil {
		t.Fatal(p.err)
	}
}

func (p *programs) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		_ = os.RemoveAll(p.folder)
	}
}

func (p *programs) path(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return filepath.Join(p.folder, name)
}

// build makes the binaries, with the race detector if the tests have it: a race then is an exit code that no test takes.
func build(t *testing.T, race bool) (folder string, err error) {
	folder, err = os.MkdirTemp("", "notifyq-e2e-")
	if err != nil {
		return "", err
	}
	args := []string{"build", "-buildvcs=false", "-o", folder + string(filepath.Separator)}
	if race {
		args = append(args, "-race")
	}
	command := exec.CommandContext(t.Context(), "go", append(args, "../notifyq-api", "../notifyq-worker")...)
	if out, err := command.CombinedOutput(); err != nil {
		return folder, errors.New("build: " + err.Error() + "\n" + string(out))
	}
	return folder, nil
}

// until waits for another process to have done something.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain: " + what)
		}
	}
}
