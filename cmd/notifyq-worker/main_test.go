package main

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/internal/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// The binary as it is built: it delivers, tells so in its log, and ends with 0.
func TestBinaryDeliversAndEndsWithSIGTERM(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	file := filepath.Join(t.TempDir(), "notifyq-worker")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, ".").CombinedOutput()
	require.NoError(t, err, string(out))

	client, err := notifyq.NewClient(db.Pool, notifyq.ClientConfig{Schema: db.Schema})
	require.NoError(t, err)
	_, err = client.Schedule(t.Context(), notifyq.Notification{
		IdempotencyKey: "k", Recipient: "a@example.com", Channel: notifyq.ChannelEmail, Payload: []byte(`{}`),
	})
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	worker := exec.CommandContext(ctx, file)
	worker.Env = []string{"DATABASE_URL=" + db.URL, "DATABASE_SCHEMA=" + db.Schema, "PORT=0", "LOG_LEVEL=debug"}
	stdout, err := worker.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	lines := bufio.NewReader(stdout)
	for line := ""; !strings.Contains(line, `"job.sent"`); {
		line, err = lines.ReadString('\n')
		require.NoError(t, err, "the end of the log before the delivery")
	}
	require.NoError(t, worker.Process.Signal(syscall.SIGTERM))
	_, err = io.Copy(io.Discard, lines)
	require.NoError(t, err)
	require.NoError(t, worker.Wait())
}
