package devdb

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// shutdown is how a server is asked to end.
type shutdown int

const (
	fastShutdown      shutdown = iota // cut the connections, write everything, end
	immediateShutdown                 // end now, and recover at the next start
)

// stopTimeout is how long a server may take to end before it is ended harder.
const stopTimeout = 10 * time.Second

// process is a program that was started, until it has ended.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of the program, once done is closed
}

// startProcess runs cmd with its output appended to a file. Linux tells the program when the thread that started it
// ends, not when the process does, so that the goroutine keeps its thread until the program has ended.
func startProcess(cmd *exec.Cmd, logPath string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the program has a copy
	cmd.Stdout, cmd.Stderr = log, log

	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// wait returns the program's error.
func (p *process) wait() error {
	<-p.done
	return p.err
}

// stop ends a server as asked, and harder if it does not end: that a server is gone matters more than how.
func (p *process) stop(how shutdown) error {
	if how == fastShutdown && p.end(fastShutdown) {
		return nil
	}
	if p.end(immediateShutdown) {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	<-p.done
	return nil
}

// end asks, and reports whether the server ended in time.
func (p *process) end(how shutdown) bool {
	// An error is that of a process that has ended, or one that can't be asked; either way the clock decides.
	_ = askToEnd(p.cmd, how)
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-p.done:
		return true
	case <-timeout.C:
		return false
	}
}
