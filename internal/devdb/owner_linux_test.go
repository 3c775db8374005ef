package devdb

import (
	"log/slog"
	"syscall"
	"testing"
)

func TestKilledOwnerTakesItsServerAlong(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	owner := startOwner(t, dir)
	pid := serverPID(t, dir)
	removeStale(dir, slog.Default())
	if len(entries(t, dir)) != 1 || !processRuns(pid) {
		t.Fatal("the folder of a living owner was taken for stale")
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // it was killed
	waitUntil(t, "the server has ended", func() bool { return !processRuns(pid) })

	s := start(t, Config{Dir: dir})
	if found := entries(t, dir); len(found) != 1 {
		t.Errorf("the next start left the stale folder: %v", found)
	}
	connect(t, s.URL())
}

// A test may kill the server behind our back, as the kernel does when memory runs out.
func TestServerThatWasKilledStartsAgain(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	s := start(t, Config{Dir: dir})
	for range 3 {
		pid := serverPID(t, dir)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitUntil(t, "the server has ended", func() bool { return !processRuns(pid) })
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		connect(t, s.URL())
	}
}

// A terminal's Ctrl-C goes to the process group: those who use the server get to drain before it ends.
func TestServerHasAProcessGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	start(t, Config{Dir: dir})
	pid := serverPID(t, dir)
	group, err := syscall.Getpgid(pid)
	if err != nil || group != pid {
		t.Errorf("process group %d, %v; want %d", group, err, pid)
	}
}
