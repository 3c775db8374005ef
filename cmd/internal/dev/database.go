package dev

import (
	"context"

	"github.com/notifyq/notifyq/internal/devdb"
)

// openDatabase takes the server at url, or starts one from local binaries, or from downloaded ones.
func openDatabase(ctx context.Context, url string) (*devdb.Server, error) {
	return devdb.Start(ctx, devdb.Config{URL: url, Fallbacks: []devdb.Fallback{{
		Name: "download",
		Binaries: func(ctx context.Context) (string, error) {
			cache, err := cacheFolder()
			if err != nil {
				return "", err
			}
			return download{cache: cache}.binaries(ctx)
		},
	}}})
}
