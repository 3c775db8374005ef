//go:build !unix

package devdb

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// account is the user that the server runs as: here always that of this process.
type account struct{}

func serverAccount() (*account, error) { return nil, nil }

func (a *account) own(string) error { return nil }

func processAttributes(*account) *syscall.SysProcAttr { return nil }

// askToEnd has pg_ctl do it, which knows how to signal a server on this system.
func askToEnd(cmd *exec.Cmd, how shutdown) error {
	mode := "fast"
	if how == immediateShutdown {
		mode = "immediate"
	}
	control := exec.CommandContext(context.Background(), filepath.Join(filepath.Dir(cmd.Path), executable("pg_ctl")), "stop", "-W", "-m", mode,
		"-D", filepath.Join(cmd.Dir, "data"))
	control.Env = cmd.Env
	return control.Run()
}

func killGroup(cmd *exec.Cmd) error { return cmd.Process.Kill() }

// lockFolder can't be done here, so that no folder is ever taken for stale.
func lockFolder(path string) (*os.File, error) { return os.Create(filepath.Join(path, lockName)) }

func folderIsStale(string) bool { return false }
