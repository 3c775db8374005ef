package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// output is written by a process and read by a test.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// With nothing set up, not even a database: what -dev prints can be pasted, the walkthrough passes, and after Ctrl-C
// nothing is left.
func TestDevNeedsNothingAndLeavesNothing(t *testing.T) {
	begin(t)
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is needed")
		}
	}
	// Not t.TempDir, which no other user can enter. Started by root, PostgreSQL runs as another user.
	scratch, err := os.MkdirTemp("", "notifyq-e2e-dev-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(scratch) })
	require.NoError(t, os.Chmod(scratch, 0o755))
	stdout, stderr := &output{}, &output{}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), built.path("notifyq-api"), "-dev")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + scratch, "PORT=0",
		"WORKER_POLL_INTERVAL_MS=50", "WEBHOOK_POLL_INTERVAL_MS=50",
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test has failed
		<-ended
	})
	ready := regexp.MustCompile(`(?m)^  curl -sS (http://\S+)/readyz$`)
	until(t, "it says what to try", func() bool {
		select {
		case <-ended:
			t.Fatal(stdout.String() + stderr.String())
		default:
		}
		return ready.MatchString(stdout.String())
	})
	base := ready.FindStringSubmatch(stdout.String())[1]
	until(t, "it is ready", func() bool { return newCaller(t, base).get("/readyz").status == 200 })

	pasted := 0
	for text := range strings.Lines(stdout.String()) {
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "curl ") {
			out, err := exec.CommandContext(t.Context(), "bash", "-c", text+" --fail-with-body").CombinedOutput()
			require.NoError(t, err, "%s: %s", text, out)
			pasted++
		}
	}
	require.GreaterOrEqual(t, pasted, 5)
	walkthrough := filepath.Join("..", "..", "examples", "curl", "walkthrough.sh")
	out, err := exec.CommandContext(t.Context(), "bash", walkthrough, base).CombinedOutput()
	require.NoError(t, err, string(out))
	require.True(t, strings.HasSuffix(string(out), "ok\n"), string(out))
	until(t, "its receiver has the events", func() bool { return strings.Contains(stderr.String(), `"demo.received"`) })

	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	require.Zero(t, cmd.ProcessState.ExitCode(), stdout.String()+stderr.String())
	require.Contains(t, stdout.String(), "nothing is left behind")
	left, err := os.ReadDir(scratch)
	require.NoError(t, err)
	require.Empty(t, left)
}
