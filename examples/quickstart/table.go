package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
)

// showTable prints every job from the view that is there for people.
func showTable(ctx context.Context, db *database) error {
	fmt.Printf("\nAll jobs, from the view notification_jobs\n")
	rows, err := db.pool.Query(ctx, `
		select idempotency_key, recipient, priority, status, attempt_count, redrive_count, coalesce(reason, ''), left(coalesce(last_error, ''), 60)
		  from `+db.schema+`.notification_jobs
		 order by created_at, id`)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  KEY\tRECIPIENT\tPRIORITY\tSTATUS\tATTEMPTS\tREDRIVES\tREASON\tLAST ERROR")
	var key, recipient, priority, status, reason, lastError string
	var attempts, redrives int
	_, err = pgx.ForEachRow(rows, []any{&key, &recipient, &priority, &status, &attempts, &redrives, &reason, &lastError}, func() error {
		_, err := fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", key, recipient, priority, status, attempts, redrives, reason, lastError)
		return err
	})
	if err != nil {
		return err
	}
	return table.Flush()
}
