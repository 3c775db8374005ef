package devdb

import (
	"context"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// binaryGlobs are where the packages of Debian and Red Hat keep the server, outside PATH.
func binaryGlobs() []string {
	return []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"}
}

// localBinaries lists the folders that hold a server, the most wanted first: PATH, the packages' folders from the
// newest version down, and where pg_config points.
func localBinaries(ctx context.Context) []string {
	var found []string
	add := func(folder string) {
		if !slices.Contains(found, folder) && isExecutable(folder, "initdb") && isExecutable(folder, "postgres") {
			found = append(found, folder)
		}
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		// Through the link, if it is one: the server finds its files from where it really is.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			add(filepath.Dir(real))
		}
		add(filepath.Dir(path))
	}
	for _, glob := range binaryGlobs() {
		folders, _ := filepath.Glob(glob) // the only error is of a malformed pattern
		slices.SortFunc(folders, func(a, b string) int { return majorVersion(b) - majorVersion(a) })
		for _, folder := range folders {
			add(folder)
		}
	}
	if folder := configuredBinaries(ctx); folder != "" {
		add(folder)
	}
	return found
}

func isExecutable(folder, name string) bool {
	_, err := exec.LookPath(filepath.Join(folder, executable(name)))
	return err == nil
}

func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}

// majorVersion is the number in /usr/lib/postgresql/17/bin or /usr/pgsql-17/bin, so that 17 is newer than 9.6.
func majorVersion(folder string) int {
	name := strings.TrimPrefix(filepath.Base(filepath.Dir(folder)), "pgsql-")
	major, _, _ := strings.Cut(name, ".")
	n, _ := strconv.Atoi(major)
	return n
}

func configuredBinaries(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
