package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/notifyq/notifyq/internal/store"
)

// floorBatch is what one claim and one record take in the floor: what the recorder writes at once.
const floorBatch = 1000

// drainFloor measures the database alone: pgbench claims and ends the same jobs with the statements of the worker, in the
// worker's transactions. It is what a worker that costs nothing would reach.
func drainFloor(ctx context.Context, t task) (figures, error) {
	pgbench, err := exec.LookPath("pgbench")
	if err != nil {
		return nil, err
	}
	q, err := openQueue(ctx, t)
	if err != nil {
		return nil, err
	}
	defer q.pool.Close()
	if err := q.fill(ctx, t, 0); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "notifyq-floor-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	script := filepath.Join(folder, "drain.sql")
	if err := os.WriteFile(script, []byte(floorScript(min(floorBatch, t.Jobs/t.Clients))), 0o600); err != nil {
		return nil, err
	}
	m, err := settle(ctx, q.pool, t, "notifyq.notification_queue")
	if err != nil {
		return nil, err
	}
	clients, batch := t.Clients, min(floorBatch, t.Jobs/t.Clients)
	each := t.Jobs / batch / clients
	cmd := exec.CommandContext(ctx, pgbench, "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(clients), "-t", strconv.Itoa(each), "-f", script, t.DSN)
	out := figures{}
	m.start(ctx)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pgbench: %w\n%.2000s", err, said)
	}
	if err := m.stop(ctx, t.Jobs, out); err != nil {
		return nil, err
	}
	return out, q.check(ctx, t)
}

// floorScript is a claim and its record, with the ids of the one handed to the other in a variable.
func floorScript(batch int) string {
	const token = "'0198c0de-0000-4000-8000-000000000001'"
	hot := store.New("notifyq", store.Guards{}).Hot()
	claim := literal(hot.Claim, `'{EMAIL}'`, fmt.Sprintf(`'{%d}'`, batch), `'{1,1,1}'`, `'{3,2,1}'`,
		`'{-infinity,-infinity,-infinity}'`,
		`'{00000000-0000-0000-0000-000000000000,00000000-0000-0000-0000-000000000000,00000000-0000-0000-0000-000000000000}'`,
		fmt.Sprintf(`'{%[1]d,%[1]d,%[1]d}'`, batch), token+"::uuid", `'pgbench'`, `300000000`)
	// What it returns is sent to nobody here, so it is at least put together.
	claim = strings.Replace(claim, "\nupdate ", ", jobs as (\nupdate ", 1)
	claim = strings.Replace(claim, "returning q.id,", "returning q.id, q.ctid as place,", 1)
	claim += ")\nselect array_agg(id) as ids, array_agg(place) as places, sum(length(payload::text)) as bytes from jobs \\gset"
	sent := literal(hot.Sent, `:ids`, fmt.Sprintf("array_fill(%s::uuid, array[%d])", token, batch),
		fmt.Sprintf("array_fill(null::text, array[%d])", batch), `true`, `:places`)
	sent = strings.ReplaceAll(sent, "HH24:MI:SS", "HH24' || chr(58) || 'MI' || chr(58) || 'SS") // pgbench would see variables
	return strings.Join([]string{hot.Begin + ";", hot.Pin + ";", claim, "commit;", hot.Begin + ";", hot.Pin + ";", sent + ";", "commit;"}, "\n") + "\n"
}

// literal puts literals in the place of parameters.
func literal(sql string, literals ...string) string {
	for i := len(literals); i > 0; i-- {
		sql = strings.ReplaceAll(sql, "$"+strconv.Itoa(i), literals[i-1])
	}
	return sql
}
