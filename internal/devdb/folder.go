package devdb

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

const (
	folderPattern = "notifyq-devdb-*"
	lockName      = "lock"
)

// folder is the temporary folder of one cluster. Its owner holds a lock on a file in it for as long as it lives: unlike
// a process id, the lock is never taken over by another process, and it can be asked from another container.
type folder struct {
	path    string
	lock    *os.File
	account *account
}

func newFolder(parent string, who *account) (*folder, error) {
	path, err := os.MkdirTemp(parent, folderPattern)
	if err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	f := &folder{path: path, account: who}
	if f.lock, err = lockFolder(path); err == nil {
		err = who.own(path)
	}
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

// write makes a file that only the server's user can read.
func (f *folder) write(name, text string) error {
	path := filepath.Join(f.path, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return f.account.own(path)
}

// remove tries more than once: a server's processes that were killed may still be writing.
func (f *folder) remove() error {
	var err error
	for range 10 {
		if err = os.RemoveAll(f.path); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
		f.lock = nil
	}
	return err
}

// removeStale removes the folders that killed owners left behind. A server that still runs in one ends by itself within
// a minute, when it notices that its postmaster.pid is gone.
func removeStale(parent string, log *slog.Logger) {
	if parent == "" {
		parent = os.TempDir()
	}
	folders, err := filepath.Glob(filepath.Join(parent, folderPattern))
	if err != nil { // a parent with glob characters in its name
		log.Warn("could not look for stale folders", "error", err)
		return
	}
	for _, path := range folders {
		if !folderIsStale(path) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			log.Warn("could not remove a stale folder", "error", fmt.Errorf("%s: %w", path, err))
		}
	}
}
