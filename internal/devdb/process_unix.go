//go:build unix && !linux

package devdb

import "syscall"

// processAttributes give the server its own process group, which keeps Ctrl-C in a terminal from ending it before those
// who use it have drained.
func processAttributes(who *account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: who.credential()}
}
