package devdb

import "syscall"

// processAttributes has the kernel end the server when this process dies. Its own process group keeps Ctrl-C in a
// terminal from ending it before those who use it have drained.
func processAttributes(who *account) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: who.credential(), Pdeathsig: syscall.SIGQUIT}
}
