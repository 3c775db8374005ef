//go:build unix

package devdb

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

func TestOnlyFoldersWithoutAnOwnerAreStale(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	mkdir := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mkdir("notifyq-devdb-unlocked-yet")
	mkdir("other")
	pipe := mkdir("notifyq-devdb-pipe")
	if err := syscall.Mkfifo(filepath.Join(pipe, lockName), 0o600); err != nil {
		t.Fatal(err)
	}
	link := mkdir("notifyq-devdb-link")
	if err := os.Symlink(os.Args[0], filepath.Join(link, lockName)); err != nil {
		t.Fatal(err)
	}
	owned, err := newFolder(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	abandoned, err := newFolder(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := abandoned.lock.Close(); err != nil {
		t.Fatal(err)
	}

	removeStale(dir, slog.Default())
	found := entries(t, dir)
	for _, kept := range []string{owned.path, link, filepath.Join(dir, "notifyq-devdb-unlocked-yet"), filepath.Join(dir, "other")} {
		if !slices.Contains(found, kept) {
			t.Errorf("%s was removed", kept)
		}
	}
	if slices.Contains(found, abandoned.path) {
		t.Error("the abandoned folder is still there")
	}
	if err := owned.remove(); err != nil {
		t.Error(err)
	}
}
