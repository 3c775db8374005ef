package dev

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serverArchive has programs that do nothing, packed as the real ones are.
//
//go:embed testdata/server.txz
var serverArchive []byte

// repository is one of Maven that has a server.
func repository(t *testing.T) (url string, asked *atomic.Int64) {
	t.Helper()
	var jar bytes.Buffer
	packed := zip.NewWriter(&jar)
	file, err := packed.Create("postgres.txz")
	require.NoError(t, err)
	_, err = file.Write(serverArchive)
	require.NoError(t, err)
	require.NoError(t, packed.Close())
	sum := sha256.Sum256(jar.Bytes())
	asked = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			_, _ = w.Write([]byte(hex.EncodeToString(sum[:])))
			return
		}
		_, _ = w.Write(jar.Bytes())
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	found := []string{}
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

func TestServerIsDownloadedOnceAndNotStarted(t *testing.T) {
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	url, asked := repository(t)
	d := download{cache: filepath.Join(t.TempDir(), "a", "b"), repository: url}
	for range 2 {
		folder, err := d.binaries(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"initdb", "pg_ctl", "postgres"}, names(t, folder))
		require.Equal(t, scratch, os.Getenv("TMPDIR"))
	}
	require.EqualValues(t, 2, asked.Load(), "the archive and its sum")
	require.Equal(t, []string{string(serverVersion)}, names(t, d.cache))
	require.Empty(t, names(t, scratch))
}

func TestDownloadThatFailsLeavesNothing(t *testing.T) {
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	d := download{cache: t.TempDir(), repository: server.URL}
	_, err := d.binaries(t.Context())
	require.ErrorContains(t, err, "PostgreSQL "+string(serverVersion))
	require.Empty(t, names(t, d.cache))
	require.Empty(t, names(t, scratch))
}

func TestDownloadIsNotWaitedForAfterCtrlC(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	silent := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		<-silent
	}))
	defer server.Close()
	defer close(silent)
	d := download{cache: t.TempDir(), repository: server.URL}
	begun := time.Now()
	_, err := d.binaries(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(begun), 10*time.Second)
	require.Empty(t, names(t, d.cache))
}
