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

// walkSQL reads ids from one index, from the cursor on; listSQL only then looks at the rows.
const walkSQL = `
with page as materialized (
    select x.id from {driver} and x.id < $1 order by x.id desc limit $2
)`

const listSQL = walkSQL + `
select (select count(*) from page), (select p.id from page p order by p.id limit 1),` + jobColumns + `
  from page
  join @notifications n on n.id = page.id
  left join @notification_queue q on q.id = n.id
  left join @notification_outcomes o on o.id = n.id
 where ($4::text is null or n.tenant = $4) and ($5::text is null or n.recipient_key = $5)
   and ($6::smallint is null or coalesce(o.status, q.status) = $6) and ($7::text is null or n.channel = $7)
 order by n.id desc
 limit $3`

// walkedSQL tells how far a page went in which nothing matched.
const walkedSQL = walkSQL + `
select count(*), (select p.id from page p order by p.id limit 1) from page
 where $3::int is not null or $4::text is not null or $5::text is not null or $6::smallint is not null or $7::text is not null`

// driver picks the index to walk: the one that leaves the least to filter. exact tells that it leaves nothing.
func (f Filter) driver() (from string, exact bool) {
	tenant := f.Tenant != nil
	switch {
	case f.RecipientKey != nil:
		return "@notifications x where x.recipient_key = $5", !tenant && f.Status == nil && f.Channel == nil
	case f.Status == nil && tenant:
		return "@notifications x where x.tenant = $4", f.Channel == nil
	case f.Status == nil:
		return "@notifications x where true", f.Channel == nil
	}
	switch status := *f.Status; {
	case status == 0 && tenant:
		return "@notification_queue x where x.tenant = $4", false
	case status == 0:
		return "@notification_queue x where true", false
	case status == 1:
		return "@notification_queue x where x.status = 1", !tenant && f.Channel == nil
	case status == 2 && tenant:
		return "@notifications x where x.tenant = $4", false
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
	rows, err := q.Query(ctx, s.listText(listSQL, from), args...)
	if err != nil {
		return Page{}, err
	}
	var page Page
	var walked int
	var lastRead pgtype.UUID
	var j Job
	_, err = pgx.ForEachRow(rows, append([]any{&walked, &lastRead}, j.targets()...), func() error {
		page.Jobs = append(page.Jobs, j)
		return nil
	})
	if err == nil && len(page.Jobs) == 0 && !exact {
		err = q.QueryRow(ctx, s.listText(walkedSQL, from), args...).Scan(&walked, &lastRead)
	}
	if err != nil {
		return Page{}, err
	}
	switch {
	case len(page.Jobs) > limit:
		page.Jobs = page.Jobs[:limit]
		page.Last, page.More = page.Jobs[limit-1].ID, true
	case walked == read:
		page.Last, page.More = lastRead.Bytes, true
	}
	return page, nil
}

func (s *Store) listText(sql, driver string) string {
	return strings.ReplaceAll(strings.Replace(sql, "{driver}", driver, 1), "@", `"`+s.schema+`".`)
}
