package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// serverVersion is what is downloaded where there is no server.
const serverVersion = embedded.V17

// download fetches the server's programs, unless an earlier run did, and returns their folder. They are kept for the next
// time. A failure leaves nothing, and the end of ctx at worst what was being written at that moment.
type download struct {
	cache      string // the folder to keep them in
	repository string // of Maven; empty: the one that everybody uses
}

// cacheFolder is where any user that the server may run as can read: root's own cache is closed to them.
func cacheFolder() (string, error) {
	base, err := os.UserCacheDir()
	if os.Geteuid() == 0 && runtime.GOOS != "windows" {
		base, err = "/var/cache", nil
	}
	return filepath.Join(base, "notifyq", "postgresql"), err
}

func (d download) binaries(ctx context.Context) (folder string, err error) {
	kept := filepath.Join(d.cache, string(serverVersion))
	if _, err := os.Stat(kept); err == nil {
		return filepath.Join(kept, "bin"), nil
	}
	if err := os.MkdirAll(d.cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(d.cache, "unpacking-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	defer logIn(work)()
	unpacked := make(chan error, 1)
	go func() { unpacked <- d.unpack(work) }() // which can't be told to stop; the process is about to
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case err := <-unpacked:
		if err != nil {
			return "", fmt.Errorf("PostgreSQL %s: %w", serverVersion, err)
		}
	}
	// Under its name only once it is whole. Somebody else may have been faster.
	if err := os.Rename(filepath.Join(work, "server"), kept); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return filepath.Join(kept, "bin"), nil
}

// unpack has the library put the server into work. The library goes on to make a database by itself, as which it would
// run as root and outlive us; so its data folder is one that it can't have, and that this is what it fails at tells that
// all before went well.
func (d download) unpack(work string) error {
	cfg := embedded.DefaultConfig().Version(serverVersion).Port(0).Logger(io.Discard).
		CachePath(work).BinariesPath(filepath.Join(work, "server")).RuntimePath(filepath.Join(work, "run")).
		DataPath(work + string(filepath.Separator) + ".")
	if d.repository != "" {
		cfg = cfg.BinaryRepositoryURL(d.repository)
	}
	err := embedded.NewDatabase(cfg).Start()
	if err == nil || strings.HasPrefix(err.Error(), "unable to clean up data directory") {
		return nil
	}
	return err
}

// logIn lets the library have its log in work, where it is removed with all else: it has no setting for that, and leaves
// it behind when it fails. Nothing else runs in this process yet.
func logIn(work string) (restore func()) {
	name := "TMPDIR"
	if runtime.GOOS == "windows" {
		name = "TMP"
	}
	before, set := os.LookupEnv(name)
	_ = os.Setenv(name, work)
	return func() {
		if set {
			_ = os.Setenv(name, before)
		} else {
			_ = os.Unsetenv(name)
		}
	}
}
