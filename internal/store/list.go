package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Filter chooses jobs; a nil field does not filter.
type Filter struct {
	Tenant       *string
	RecipientKey *string
	Channel      *string
	Status       *int16
}

// Page is one step through a list, newest first. Last is where the next step starts; More tells whether there is one.
type Page struct {
	Jobs []Job
	Last uuid.UUID
	More bool
}

// readCap is how many index entries one page reads at most when a filter is left over that its index does not answer.
// Such a page may be short, or empty, and still not be the last.
const readCap = 5000

// The page walks one index in its order, looks at the rows of each id, and stops when it is full. OFFSET 0 keeps the
// lookup a lookup: joined freely, 5,000 entries of tables that were never analyzed took seconds.
//
// The last entry that a page may read comes with every row, and in a row of its own if nothing matched. A second
// statement could not tell it: what left the index in between would make it go further, over entries that the first
// never looked at.
const listSQL = `
select (select x.id from {driver} and x.id < $1 order by x.id desc offset $2::bigint - 1 limit 1), job.*
  from (select) always
  left join lateral (
      select found.*
        from (select x.id from {driver} and x.id < $1 order by x.id desc limit $2) page
       cross join lateral (
           select` + jobColumns + `
             from @notifications n
             left join @notification_queue q on q.id = n.id
             left join @notification_outcomes o on o.id = n.id
            where n.id = page.id
              and ($4::text is null or n.tenant = $4) and ($5::text is null or n.recipient_key = $5)
              and ($6::smallint is null or coalesce(o.status, q.status) = $6) and ($7::text is null or n.channel = $7)
           offset 0) found
       order by page.id desc
       limit $3) job on true
 order by job.id desc`

// driver picks the index to walk: the one that leaves the least to filter. exact tells that it leaves nothing.
func (f Filter) driver() (from string, exact bool) {
	tenant := f.Tenant != nil
	// Who names no tenant has the empty one, for which there is no index: it would be the whole table.
	asked, exact := "@notifications x where true", !tenant
	if tenant && *f.Tenant != "" {
		asked, exact = "@notifications x where x.tenant = $4 and x.tenant <> ''", true
	}
	switch {
	case f.RecipientKey != nil:
		return "@notifications x where x.recipient_key = $5 and x.recipient_key <> ''", !tenant && f.Status == nil && f.Channel == nil
	case f.Status == nil:
		return asked, exact && f.Channel == nil
	}
	switch status := *f.Status; {
	case status == 0:
		return "@notification_queue x where true", false
	case status == 1:
		return "@notification_queue x where x.status = 1", !tenant && f.Channel == nil
	case status == 2 && tenant:
		return asked, false
	case status == 2:
		return "@notification_outcomes x where true", false
	case tenant:
		return fmt.Sprintf("@notification_outcomes x where x.tenant = $4 and x.status = %d", status), f.Channel == nil
	default:
		return fmt.Sprintf("@notification_outcomes x where x.status = %d", status), f.Channel == nil
	}
}

// List reads at most limit jobs older than before; uuid.Max is the beginning.
func (s *Store) List(ctx context.Context, q Querier, f Filter, before uuid.UUID, limit int) (Page, error) {
	from, exact := f.driver()
	read := limit + 1
	if !exact {
		read = max(readCap, read)
	}
	args := []any{pgUUID(before), read, limit + 1, f.Tenant, f.RecipientKey, f.Status, f.Channel}
	rows, err := q.Query(ctx, s.listText(from), args...)
	if err != nil {
		return Page{}, err
	}
	page, err := collectPage(rows)
	if err != nil {
		return Page{}, err
	}
	if len(page.Jobs) > limit {
		page.Jobs = page.Jobs[:limit]
		page.Last, page.More = page.Jobs[limit-1].ID, true
	}
	return page, nil
}

// collectPage reads the rows of listSQL.
func collectPage(rows pgx.Rows) (page Page, err error) {
	defer rows.Close()
	var last pgtype.UUID // NULL if there are fewer entries
	for rows.Next() {
		var j Job
		job := j.targets()
		nothing := rows.RawValues()[1] == nil // the job's id
		if nothing {
			clear(job) // the driver leaves out what has no place
		}
		if err := rows.Scan(append([]any{&last}, job...)...); err != nil {
			return Page{}, err
		}
		if !nothing {
			page.Jobs = append(page.Jobs, j)
		}
	}
	page.Last, page.More = last.Bytes, last.Valid
	return page, rows.Err()
}

func (s *Store) listText(driver string) string {
	return strings.ReplaceAll(strings.ReplaceAll(listSQL, "{driver}", driver), "@", `"`+s.schema+`".`)
}
