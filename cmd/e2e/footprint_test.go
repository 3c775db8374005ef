package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq/internal/dbtest"
)

// maxResident is what a process may hold at rest. It has half of that.
const maxResident = 60 << 20

// With the settings that it has if none is set, and without the race detector, which takes several times the memory. How
// long it took to be ready is told and not judged: a machine may be busy.
func TestProcessesAreSmallAtRest(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read from /proc")
	}
	begin(t)
	folder := filepath.Dir(built.path("x"))
	if raceEnabled {
		var err error
		folder, err = build(t, false)
		defer func() { _ = os.RemoveAll(folder) }()
		require.NoError(t, err)
	}
	db := dbtest.New(t)
	var processes []*process
	defer func() { requireEndOf(t, processes) }()
	for _, name := range []string{"notifyq-api", "notifyq-worker"} {
		begun := time.Now()
		p := launchFile(t, filepath.Join(folder, name), []string{
			"DATABASE_URL=" + db.URL, "DATABASE_SCHEMA=" + db.Schema, "PORT=0",
		})
		processes = append(processes, p)
		p.listens()
		until(t, name+" is ready", func() bool { return asked(t, p.base()+"/readyz") == http.StatusOK })
		ready := time.Since(begun)
		for range 10 { // and has been scraped
			require.Equal(t, http.StatusOK, asked(t, p.base()+"/metrics"))
		}
		held := resident(t, p.cmd.Process.Pid)
		t.Logf("%s: ready after %d ms, %.1f MB resident", name, ready.Milliseconds(), float64(held)/(1<<20))
		require.Less(t, held, maxResident, name)
	}
}

// asked is the status of the answer, or 0.
func asked(t *testing.T, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// resident is what a process holds of the machine's memory, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`).FindSubmatch(status)
	require.NotNil(t, found)
	kilobytes, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return kilobytes << 10
}
