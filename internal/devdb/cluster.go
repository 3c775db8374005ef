package devdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	superuser = "postgres"
	// readyTimeout covers a crash recovery on a slow disk.
	readyTimeout = time.Minute
	readyPoll    = 10 * time.Millisecond
	// portTries bounds how often another process may take the port between our look and the server's bind.
	portTries = 10
	// The children of a server that was killed need a moment to notice, and the next one waits for them: 5 s at most.
	leftoverTries = 100
	leftoverPause = 50 * time.Millisecond
)

var errLeftovers = errors.New("processes of the server's previous run are left")

// cluster is a private server: its folder, and its process while it runs.
type cluster struct {
	bin      string
	folder   *folder
	account  *account
	password string
	settings map[string]string
	port     int

	mu      sync.Mutex
	process *process // nil while it is down
}

func newCluster(ctx context.Context, bin string, cfg Config) (_ *cluster, err error) {
	who, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir, err := newFolder(cfg.Dir, who)
	if err != nil {
		return nil, err
	}
	c := &cluster{bin: bin, folder: dir, account: who, password: rand.Text(), settings: serverSettings(cfg)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.remove())
		}
	}()
	if err := c.initialize(ctx); err != nil {
		return nil, err
	}
	for range portTries {
		if c.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = c.start(ctx); !errors.Is(err, errPortTaken) {
			break
		}
	}
	return c, err
}

// serverSettings go on the command line, where they are stronger than what initdb wrote.
func serverSettings(cfg Config) map[string]string {
	settings := map[string]string{
		"listen_addresses": "127.0.0.1",
		// No socket: TCP is all that is needed, and paths of temporary folders can be too long for one.
		"unix_socket_directories": "",
		"logging_collector":       "off",
	}
	if cfg.Fast {
		settings["fsync"] = "off"
		settings["synchronous_commit"] = "off"
		settings["full_page_writes"] = "off"
	}
	maps.Copy(settings, cfg.Settings)
	return settings
}

// initialize makes the data folder. Loopback is open to every user of the machine, so that connections need the
// password, which initdb reads from a file: arguments are visible to all.
func (c *cluster) initialize(ctx context.Context) error {
	passwordFile := filepath.Join(c.folder.path, "password")
	if err := c.folder.write("password", c.password); err != nil {
		return err
	}
	defer func() { _ = os.Remove(passwordFile) }() // if not here, then with the folder
	cmd := c.command(ctx, "initdb", "-D", c.data(), "-U", superuser, "--pwfile="+passwordFile, "-A", "scram-sha-256",
		"-E", "UTF8", "--locale=C", "-N")
	// Its children would go on writing to a folder that is being removed.
	cmd.Cancel = func() error { return killGroup(cmd) }
	p, err := startProcess(cmd, c.logPath())
	if err != nil {
		return err
	}
	if err := p.wait(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", errors.Join(ctx.Err(), err), c.logTail())
	}
	return nil
}

// start runs the server, if it does not run, and returns when it accepts connections.
func (c *cluster) start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil && !c.process.ended() {
		return nil
	}
	for tries := 1; ; tries++ {
		p, err := c.launch(ctx)
		if err == nil {
			c.process = p
			return nil
		}
		if tries == leftoverTries || !errors.Is(err, errLeftovers) {
			return err
		}
		time.Sleep(leftoverPause)
	}
}

func (c *cluster) launch(ctx context.Context) (*process, error) {
	args := []string{"-D", c.data(), "-p", strconv.Itoa(c.port)}
	for _, name := range slices.Sorted(maps.Keys(c.settings)) {
		args = append(args, "-c", name+"="+c.settings[name])
	}
	said := len(c.log())
	// Not ended by ctx: the server outlives its start.
	p, err := startProcess(c.command(context.WithoutCancel(ctx), "postgres", args...), c.logPath())
	if err != nil {
		return nil, err
	}
	err = c.awaitReady(ctx, p)
	switch {
	case err == nil:
		return p, nil
	case !p.ended():
		err = errors.Join(err, p.stop(immediateShutdown))
	case strings.Contains(c.log()[said:], "is still in use"):
		err = fmt.Errorf("%w: %w", errLeftovers, err)
	case !portFree(c.port):
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return nil, err
}

func (c *cluster) awaitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return fmt.Errorf("the server ended while it started: %w\n%s", p.err, c.logTail())
		case <-ctx.Done():
			return fmt.Errorf("the server did not get ready: %w\n%s", ctx.Err(), c.logTail())
		case <-tick.C:
			if c.ready(p.pid()) {
				return nil
			}
		}
	}
}

// ready reads postmaster.pid, whose first line is the process and whose eighth is its state. The file of an earlier,
// killed process may still be there.
func (c *cluster) ready(pid int) bool {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) >= 8 && strings.TrimSpace(lines[0]) == strconv.Itoa(pid) && strings.TrimSpace(lines[7]) == "ready"
}

// halt ends the server, if it runs, and keeps its data.
func (c *cluster) halt(how shutdown) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return nil
	}
	err := c.process.stop(how)
	if err == nil {
		c.process = nil
	}
	return err
}

func (c *cluster) remove() error {
	return errors.Join(c.halt(fastShutdown), c.folder.remove())
}

func (c *cluster) url() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, c.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func (c *cluster) data() string    { return filepath.Join(c.folder.path, "data") }
func (c *cluster) logPath() string { return filepath.Join(c.folder.path, "server.log") }

// command prepares a program of the server. Of the environment it gets PATH only: PGDATA, PGPORT and the like would
// change what it does, and messages are to be in English.
func (c *cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, executable(name)), args...)
	cmd.Dir = c.folder.path
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = processAttributes(c.account)
	return cmd
}

// log is what the server said so far.
func (c *cluster) log() string {
	text, err := os.ReadFile(c.logPath())
	if err != nil {
		return ""
	}
	return string(text)
}

// logTail is the end of it, for errors.
func (c *cluster) logTail() string {
	const limit = 2 << 10
	text := c.log()
	return strings.TrimSpace(text[max(0, len(text)-limit):])
}
