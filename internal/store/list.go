package store

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
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
// lookup a lookup: joined freely, 5,000 entries of tables that were never analyzed took seconds. Nor does an index serve
// IS NOT DISTINCT FROM: a tenant's jobs were read for each id. Plans are pinned, and see walk.from for how it comes to be
// that index.
//
// The last entry that a page may read comes with every row, and in a row of its own if nothing matched. A second
// statement could not tell it: what left the index in between would make it go further, over entries that the first
// never looked at.
const listSQL = `
select (select x.id from {walk} offset $2::bigint - 1 limit 1), job.*
  from (select) always
  left join lateral (
      select found.*
        from (select {entry} from {walk} limit $2) page
       cross join lateral (
           select` + jobColumns + `
             from @notifications n
             left join @notification_queue q on q.id = n.id
             left join @notification_outcomes o on o.id = n.id
            where n.id = page.id
              and ($4::text is null or n.tenant is not distinct from $4)
              and ($5::text is null or n.recipient_key is not distinct from $5)
              and ($6::smallint is null or coalesce(o.status, q.status) = $6) and ($7::text is null or n.channel = $7)
           offset 0) found
       order by {order}
       limit $3) job on true
 order by job.id desc`

// walk is through the entries of one index: those of table whose columns, which begin the index, have the values, and of
// which only holds, as it does for all of the index. An id follows the columns.
type walk struct {
	table           string
	columns, values []string
	only            string
}

// from is the walk from the latest entry before $1 back. The columns are bounded from both sides instead of being compared for
// equality, and stand in the order: an equal column is none to order by for the planner, which then takes the primary key,
// that has the order too, and reads everybody's jobs to find those of a small tenant.
func (w walk) from() string {
	where := "where " + w.bound(w.columns, "id", "<", w.values, "$1")
	if len(w.columns) > 0 {
		where += " and " + w.bound(w.columns, "", ">=", w.values, "")
	}
	if w.only != "" {
		where += " and x." + w.only
	}
	return w.table + " x " + where + " order by " + w.order("x")
}

// bound compares rows of columns and values.
func (w walk) bound(columns []string, column, comparison string, values []string, value string) string {
	left, right := prefixed("x", columns), slices.Clone(values)
	if column != "" {
		left, right = append(left, "x."+column), append(right, value)
	}
	return "(" + strings.Join(left, ", ") + ") " + comparison + " (" + strings.Join(right, ", ") + ")"
}

// entry are the columns that a step reads.
func (w walk) entry(of string) []string { return append(prefixed(of, w.columns), of+".id") }

// order is newest first.
func (w walk) order(of string) string { return strings.Join(w.entry(of), " desc, ") + " desc" }

func prefixed(by string, columns []string) []string {
	out := make([]string, 0, len(columns)+1)
	for _, c := range columns {
		out = append(out, by+"."+c)
	}
	return out
}

// walk picks the index that leaves the least to filter. exact tells that it leaves nothing.
func (f Filter) walk() (w walk, exact bool) {
	tenant := f.Tenant != nil
	// Who names no tenant has the empty one, for which there is no index: it would be the whole table.
	asked, exact := walk{table: "@notifications"}, !tenant
	if tenant && *f.Tenant != "" {
		asked, exact = walk{table: "@notifications", columns: []string{"tenant"}, values: []string{"$4"}, only: "tenant <> ''"}, true
	}
	switch {
	case f.RecipientKey != nil:
		ofRecipient := walk{"@notifications", []string{"recipient_key"}, []string{"$5"}, "recipient_key <> ''"}
		return ofRecipient, !tenant && f.Status == nil && f.Channel == nil
	case f.Status == nil:
		return asked, exact && f.Channel == nil
	}
	switch status := *f.Status; {
	case status == 0:
		return walk{table: "@notification_queue"}, false
	case status == 1:
		return walk{table: "@notification_queue", only: "status = 1"}, !tenant && f.Channel == nil
	case status == 2 && tenant:
		return asked, false
	case status == 2:
		return walk{table: "@notification_outcomes"}, false
	case tenant:
		return walk{"@notification_outcomes", []string{"tenant", "status"}, []string{"$4", "$6"}, "status <> 2"}, f.Channel == nil
	default:
		return walk{"@notification_outcomes", []string{"status"}, []string{"$6"}, "status <> 2"}, f.Channel == nil
	}
}

// List reads at most limit jobs older than before; uuid.Max is the beginning.
func (s *Store) List(ctx context.Context, pool *pgxpool.Pool, f Filter, before uuid.UUID, limit int) (Page, error) {
	sql, args := s.list(f, before, limit)
	var page Page
	err := pinnedRead(ctx, pool, func(b *pgx.Batch) {
		b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
			page, err = collectPage(rows)
			return err
		})
	})
	if err != nil {
		return Page{}, err
	}
	if len(page.Jobs) > limit {
		page.Jobs = page.Jobs[:limit]
		page.Last, page.More = page.Jobs[limit-1].ID, true
	}
	return page, nil
}

// list is the statement of a page and its parameters.
func (s *Store) list(f Filter, before uuid.UUID, limit int) (sql string, args []any) {
	walk, exact := f.walk()
	read := limit + 1
	if !exact {
		read = max(readCap, read)
	}
	return s.listText(walk), []any{pgUUID(before), read, limit + 1, f.Tenant, f.RecipientKey, f.Status, f.Channel}
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

func (s *Store) listText(w walk) string {
	sql := strings.NewReplacer("{walk}", w.from(), "{entry}", strings.Join(w.entry("x"), ", "), "{order}", w.order("page")).Replace(listSQL)
	return strings.ReplaceAll(sql, "@", `"`+s.schema+`".`)
}
