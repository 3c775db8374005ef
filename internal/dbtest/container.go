package dbtest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"go.uber.org/goleak"

	"github.com/notifyq/notifyq/internal/devdb"
)

const image = "postgres:17-alpine"

// container is a server in Docker, where no binaries are installed.
func container() devdb.Fallback {
	return devdb.Fallback{Name: "Docker", Start: startContainer}
}

func startContainer(ctx context.Context) (url string, stop func() error, err error) {
	if err := checkEngine(ctx); err != nil {
		return "", nil, err
	}
	args := []string{"-c", "synchronous_commit=off", "-c", "full_page_writes=off"}
	all := settings()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	c, err := postgres.Run(ctx, image, postgres.BasicWaitStrategies(), testcontainers.WithCmdArgs(args...))
	stop = func() error { return testcontainers.TerminateContainer(c) }
	if err == nil {
		url, err = c.ConnectionString(ctx, "sslmode=disable")
	}
	if err != nil {
		_ = stop() // the first error tells more
		return "", nil, err
	}
	return url, stop, nil
}

// checkEngine tells in a moment whether a Docker engine answers. Without one the library panics in places.
func checkEngine(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("no engine: %v", r)
		}
	}()
	provider, err := testcontainers.ProviderDefault.GetProvider()
	if err != nil {
		return err
	}
	defer func() { _ = provider.Close() }()
	return provider.Health(ctx)
}

// leakOptions ignore the goroutine by which testcontainers tells its reaper that this process lives.
func leakOptions() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"),
	}
}
