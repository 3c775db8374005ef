//go:build unix

package devdb

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// lockFolder makes the lock file and locks it before it gets its name, so that nobody sees it unlocked.
func lockFolder(path string) (*os.File, error) {
	unnamed := filepath.Join(path, "locking")
	f, err := os.OpenFile(unnamed, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := os.Rename(unnamed, filepath.Join(path, lockName)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// folderIsStale reports whether the owner of a folder is gone. The temporary folder is everybody's: a link or a pipe in
// place of the lock file must neither lead elsewhere nor block.
func folderIsStale(path string) bool {
	f, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
