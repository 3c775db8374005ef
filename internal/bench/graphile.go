package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// graphileVersion is the one that the figures are about.
const graphileVersion = "0.17.3"

//go:embed graphile.cjs
var graphileScript []byte

// installGraphile puts graphile-worker and the script that measures it into a folder.
func installGraphile(ctx context.Context, folder string) error {
	if err := os.WriteFile(filepath.Join(folder, "drain.cjs"), graphileScript, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", folder, "graphile-worker@"+graphileVersion)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm install: %w\n%.500s", err, said)
	}
	return nil
}

// drainGraphile measures graphile-worker, which deletes finished jobs, in one process of Node.
func drainGraphile(ctx context.Context, t task) (figures, error) {
	cmd := exec.CommandContext(ctx, "node", filepath.Join(t.Folder, "drain.cjs"), t.DSN, strconv.Itoa(t.Jobs))
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var f figures
	return f, json.Unmarshal(said, &f)
}
