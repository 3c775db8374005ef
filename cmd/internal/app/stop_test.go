package app

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// A balancer that keeps a connection open, and has said nothing on it yet.
func TestSilentConnectionDoesNotMakeADrainedWorkerFail(t *testing.T) {
	t.Parallel()
	p := launch(t, settings.RoleWorker, fast(dbtest.New(t))...)
	dialer := &net.Dialer{}
	connection, err := dialer.DialContext(t.Context(), "tcp", p.address)
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	code, _ := p.get("/livez") // which was accepted after it
	require.Equal(t, 200, code)
	require.Zero(t, p.end())
	require.Contains(t, p.stdout(), "process.probes_cut_off")
	require.Contains(t, p.stdout(), "process.stopped")
}

// An API has nothing to drain, and its port is closed first. What listens to probes alone has to be told before: preStop.
func TestAPITakesNoConnectionsOnceItIsToldToStop(t *testing.T) {
	t.Parallel()
	p := launch(t, settings.RoleAPI, fast(dbtest.New(t))...)
	dialer := &net.Dialer{}
	connection, err := dialer.DialContext(t.Context(), "tcp", p.address)
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	code, _ := p.get("/livez")
	require.Equal(t, 200, code)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM)) // the silent connection keeps it up for a while
	until(t, "the port is closed", func() bool { code, _ := p.get("/readyz"); return code == 0 })
	require.NoError(t, connection.Close())
	require.Zero(t, p.code())
}
