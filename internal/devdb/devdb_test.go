package devdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerDir); dir != "" {
		beOwner(dir)
	}
	goleak.VerifyTestMain(m)
}

func TestStopLeavesNoProcessAndNoFolder(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	s := start(t, Config{Dir: dir})
	pid := serverPID(t, dir)
	if !processRuns(pid) {
		t.Fatalf("no process %d while the server should run", pid)
	}
	// A connection that is open must not keep it from ending.
	connect(t, s.URL())
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if processRuns(pid) {
		t.Errorf("process %d still runs", pid)
	}
	if left := entries(t, dir); len(left) > 0 {
		t.Errorf("left in the folder: %v", left)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("a stopped server could be started again, although its data is gone")
	}
}

func TestServerIsAsConfigured(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Settings: map[string]string{"max_connections": "37", "synchronous_commit": "on"}})
	conn := connect(t, s.URL())
	for name, want := range map[string]string{
		"server_encoding":         "UTF8",
		"lc_collate":              "C",
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		"fsync":                   "off",
		"full_page_writes":        "off",
		"synchronous_commit":      "on", // Settings are stronger than Fast
		"max_connections":         "37",
		"password_encryption":     "scram-sha-256",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "select current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestNoOneConnectsWithoutThePassword(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig(start(t, Config{}).URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"", "postgres"} {
		cfg.Password = password
		if conn, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
			_ = conn.Close(t.Context())
			t.Errorf("password %q was accepted", password)
		}
	}
}

func TestCommittedRowSurvivesCrash(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Settings: map[string]string{"synchronous_commit": "on"}})
	url := s.URL()
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), "create table kept as select 42 as answer"); err != nil {
		t.Fatal(err)
	}
	for name, halt := range map[string]func() error{"crash": s.Crash, "shutdown": s.Shutdown} {
		for range 2 { // twice, because a server that is down is left alone
			if err := halt(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if c, err := pgx.Connect(t.Context(), url); err == nil {
			_ = c.Close(t.Context())
			t.Fatalf("%s: the server still answers", name)
		}
		for range 2 {
			if err := s.Start(t.Context()); err != nil {
				t.Fatalf("start after %s: %v", name, err)
			}
		}
		if s.URL() != url {
			t.Fatalf("the URL changed from %s to %s", url, s.URL())
		}
		var answer int
		if err := connect(t, url).QueryRow(t.Context(), "select answer from kept").Scan(&answer); err != nil || answer != 42 {
			t.Fatalf("after %s: %d, %v", name, answer, err)
		}
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	connect(t, url)
}

func TestPortTakenByAnotherProcessIsToldApart(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	if err := s.Shutdown(); err != nil {
		t.Fatal(err)
	}
	var listen net.ListenConfig
	other, err := listen.Listen(t.Context(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.cluster.port)))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); !errors.Is(err, errPortTaken) {
		t.Errorf("error %v, want errPortTaken", err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestURLIsUsedAsItIs(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	s := start(t, Config{URL: "postgres://elsewhere/db", Dir: dir})
	if s.URL() != "postgres://elsewhere/db" {
		t.Errorf("URL is %s", s.URL())
	}
	if left := entries(t, dir); len(left) > 0 {
		t.Errorf("something was started: %v", left)
	}
	for _, err := range []error{s.Crash(), s.Shutdown(), s.Start(t.Context()), s.Restart(t.Context())} {
		if !errors.Is(err, ErrNotOurs) {
			t.Errorf("error %v, want ErrNotOurs", err)
		}
	}
}

func TestErrorListsWhatWasTried(t *testing.T) {
	t.Parallel()
	broken := publicDir(t)
	cfg := Config{
		binaries:  func(context.Context) []string { return []string{broken} },
		Fallbacks: []Fallback{{Name: "Docker", Start: refuse("no engine")}, {Name: "download", Start: refuse("no network")}},
	}
	_, err := Start(t.Context(), cfg)
	wantText(t, err, broken, "initdb", "Docker: no engine", "download: no network")

	cfg.binaries = func(context.Context) []string { return nil }
	_, err = Start(t.Context(), cfg)
	wantText(t, err, "no initdb and postgres on PATH", "/usr/lib/postgresql", "pg_config", "no engine", "give the URL")
}

func TestServerThatRefusesASettingSaysWhy(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	_, err := Start(t.Context(), Config{Dir: dir, Settings: map[string]string{"max_connections": "none"}})
	wantText(t, err, `invalid value for parameter "max_connections"`)
	if left := entries(t, dir); len(left) > 0 {
		t.Errorf("left in the folder: %v", left)
	}
}

func TestFallbackIsUsedAndStoppedOnce(t *testing.T) {
	t.Parallel()
	stopped := 0
	s := start(t, Config{
		binaries: func(context.Context) []string { return nil },
		Fallbacks: []Fallback{
			{Name: "Docker", Start: refuse("no engine")},
			{Name: "download", Start: func(context.Context) (string, func() error, error) {
				return "postgres://downloaded/db", func() error { stopped++; return errors.New("stuck") }, nil
			}},
		},
	})
	if s.URL() != "postgres://downloaded/db" {
		t.Errorf("URL is %s", s.URL())
	}
	for range 2 {
		if err := s.Stop(); err == nil {
			t.Error("the fallback's error was swallowed")
		}
	}
	if stopped != 1 {
		t.Errorf("stopped %d times", stopped)
	}
	s.stopErr = nil // expected; the cleanup looks at it
}

// A server from binaries that were not here before is a cluster like any other: it stops, starts and leaves nothing.
func TestFallbackOfBinariesIsAClusterOfOurs(t *testing.T) {
	t.Parallel()
	local := localBinaries(t.Context())
	if len(local) == 0 {
		t.Skip("no server binaries here")
	}
	dir := publicDir(t)
	s := start(t, Config{
		Dir: dir, binaries: func(context.Context) []string { return nil },
		Fallbacks: []Fallback{
			{Name: "mirror", Binaries: func(context.Context) (string, error) { return "", errors.New("no network") }},
			{Name: "download", Binaries: func(context.Context) (string, error) { return local[0], nil }},
		},
	})
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	connect(t, s.URL())
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if left := entries(t, dir); len(left) > 0 {
		t.Errorf("left in the folder: %v", left)
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond} {
		dir := publicDir(t)
		ctx, cancel := context.WithTimeout(t.Context(), after)
		defer cancel()
		s, err := Start(ctx, Config{Dir: dir})
		if err == nil {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			t.Skipf("this machine starts a server in less than %s", after)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %s: %v", after, err)
		}
		if left := entries(t, dir); len(left) > 0 {
			t.Errorf("after %s: left in the folder: %v", after, left)
		}
		waitUntil(t, "nothing runs in the folder", func() bool { return !anyProcessIn(dir) })
	}
}

func TestNewestVersionIsFirst(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string]int{
		"/usr/lib/postgresql/17/bin": 17, "/usr/lib/postgresql/9.6/bin": 9, "/usr/pgsql-16/bin": 16, "/usr/bin": 0,
	} {
		if got := majorVersion(folder); got != want {
			t.Errorf("majorVersion(%s) = %d, want %d", folder, got, want)
		}
	}
}

// start starts a server that ends with the test.
func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	cfg.Fast = true
	if cfg.Dir == "" {
		cfg.Dir = publicDir(t)
	}
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// publicDir is a temporary folder that the server's user can enter. That of t.TempDir belongs to root alone.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devdbtest-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func refuse(text string) func(context.Context) (string, func() error, error) {
	return func(context.Context) (string, func() error, error) { return "", nil, errors.New(text) }
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("the error does not say %q:\n%v", part, err)
		}
	}
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// serverPID is the process of the only server under dir.
func serverPID(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, folderPattern, "data", "postmaster.pid"))
	if err != nil || len(files) != 1 {
		t.Fatalf("postmaster.pid: %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// anyProcessIn reports whether a program was started with a path under dir.
func anyProcessIn(dir string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), dir) {
			return true
		}
	}
	return false
}

// processRuns looks at the state: the dead may linger as zombies, which can still be signalled.
func processRuns(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return state != "" && state[0] != 'Z' && state[0] != 'X'
}
