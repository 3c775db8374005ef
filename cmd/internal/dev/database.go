package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	embedded "github.com/fergusstrange/embedded-postgres"

	"github.com/notifyq/notifyq/internal/devdb"
)

// openDatabase takes the server at url, or starts one from local binaries, or downloads some.
func openDatabase(ctx context.Context, url string) (*devdb.Server, error) {
	return devdb.Start(ctx, devdb.Config{URL: url, Fallbacks: []devdb.Fallback{{Name: "download", Start: download}}})
}

// download keeps the binaries for the next time, and the data not.
func download(context.Context) (url string, stop func() error, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, err
	}
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	folder, err := os.MkdirTemp("", "notifyq-dev-")
	if err != nil {
		return "", nil, err
	}
	cfg := embedded.DefaultConfig().Version(embedded.V17).Port(port).Logger(io.Discard).
		CachePath(filepath.Join(cache, "notifyq", "postgresql")).RuntimePath(folder).DataPath(filepath.Join(folder, "data"))
	server := embedded.NewDatabase(cfg)
	if err := server.Start(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("PostgreSQL %s: %w", embedded.V17, err), os.RemoveAll(folder))
	}
	stop = func() error { return errors.Join(server.Stop(), os.RemoveAll(folder)) }
	return cfg.GetConnectionURL() + "?sslmode=disable", stop, nil
}

func freePort() (uint32, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it waits for nothing
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("no TCP address")
	}
	return uint32(addr.Port), nil
}
