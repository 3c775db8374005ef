package notifyq

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/google/uuid"

	"github.com/notifyq/notifyq/internal/store"
)

// ListParams choose jobs. All filters hold together; the zero value lists everything the client may see.
type ListParams struct {
	Status    Status
	Recipient string // compared by its RecipientKey
	Channel   Channel
	Tenant    string
	Limit     int    // default 50, 1 to 1,000
	Cursor    string // Page.Next of the page before; empty for the first
}

// Page is one page of a list, newest first.
type Page struct {
	Jobs []Job
	// Next is the cursor of the next page. A page reads a bounded number of entries, so it may be short or even empty
	// before the list ends: only an empty Next ends it.
	Next string
}

// List reads one page of jobs, newest first. A job that exists during the whole walk and matches all the time appears
// exactly once.
func (c *Client) List(ctx context.Context, p ListParams) (Page, error) {
	filter, err := c.filter(&p)
	if err != nil {
		return Page{}, err
	}
	before := uuid.Max
	if p.Cursor != "" {
		if before, err = p.openCursor(filter); err != nil {
			return Page{}, err
		}
	}
	rows, err := c.store.List(ctx, c.pool, filter, before, p.Limit)
	if err != nil {
		return Page{}, databaseError("list", err)
	}
	page := Page{Jobs: make([]Job, len(rows.Jobs))}
	for i := range rows.Jobs {
		page.Jobs[i] = jobFromRow(&rows.Jobs[i])
	}
	if rows.More {
		page.Next = sealCursor(filter, rows.Last)
	}
	return page, nil
}

func (c *Client) filter(p *ListParams) (f store.Filter, err error) {
	if c.broken != nil {
		return f, c.broken
	}
	p.Limit = cmp.Or(p.Limit, 50)
	if p.Limit < 1 || p.Limit > 1000 {
		return f, invalid("Limit", "must be between 1 and 1,000")
	}
	if p.Status != "" {
		number, ok := p.Status.number()
		if !ok {
			return f, invalid("Status", "must be PENDING, PROCESSING, SENT, FAILED, DEAD_LETTERED or CANCELLED")
		}
		f.Status = &number
	}
	if p.Channel != "" {
		if err := checkChannel("Channel", p.Channel); err != nil {
			return f, err
		}
		channel := string(p.Channel)
		f.Channel = &channel
	}
	if p.Recipient != "" {
		if err := checkName("Recipient", p.Recipient, MaxRecipientBytes); err != nil {
			return f, err
		}
		key := c.cfg.RecipientKey(p.Channel, p.Recipient)
		f.RecipientKey = &key
	}
	f.Tenant, err = c.narrow(p.Tenant)
	return f, err
}

// A cursor is the last id that was read and a check sum over it and the filters, so that a damaged one, or one of
// another list, is refused instead of giving a wrong page. It is no secret: who forges one gets a page of what he may
// read anyway.
const (
	cursorVersion  = 1
	cursorSumBytes = 8
)

func sealCursor(f store.Filter, last uuid.UUID) string {
	b := append([]byte{cursorVersion}, last[:]...)
	return base64.RawURLEncoding.EncodeToString(append(b, cursorSum(f, b)...))
}

func (p *ListParams) openCursor(f store.Filter) (uuid.UUID, error) {
	refused := invalid("Cursor", "must be the Next of a page of the same list")
	const idEnd = 1 + len(uuid.UUID{})
	encoding := base64.RawURLEncoding.Strict()
	if len(p.Cursor) != encoding.EncodedLen(idEnd+cursorSumBytes) { // the decoder would overlook line ends
		return uuid.Nil, refused
	}
	b, err := encoding.DecodeString(p.Cursor)
	if err != nil || len(b) != idEnd+cursorSumBytes || b[0] != cursorVersion || string(b[idEnd:]) != string(cursorSum(f, b[:idEnd])) {
		return uuid.Nil, refused
	}
	return uuid.UUID(b[1:idEnd]), nil
}

func cursorSum(f store.Filter, b []byte) []byte {
	h := sha256.New()
	h.Write(b)
	for _, part := range []*string{f.Tenant, f.RecipientKey, f.Channel} {
		if part == nil {
			h.Write([]byte{0})
			continue
		}
		h.Write([]byte{1, byte(len(*part) >> 8), byte(len(*part))})
		h.Write([]byte(*part))
	}
	if f.Status != nil {
		h.Write([]byte{byte(*f.Status)})
	}
	return h.Sum(nil)[:cursorSumBytes]
}

// Stats is the state of the queue.
type Stats struct {
	// Jobs counts by status, every status present.
	Jobs map[Status]int64
	// Estimated tells that a count is an estimate, as that of all SENT jobs past a million, or a lower bound, as that of a
	// tenant's SENT jobs, of which the latest 100,000 jobs are looked at.
	Estimated bool
	// QueueLag is how long the oldest due job of a channel that is not paused has waited to be claimed: the signal for
	// more workers.
	QueueLag time.Duration
	// Outbox is the state of the events; zero for a client made by ForTenant, since the outbox is all tenants'.
	Outbox OutboxStats
}

// Stats counts jobs and events and measures the lags. Its cost does not grow with history.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	if c.broken != nil {
		return Stats{}, c.broken
	}
	rows, err := c.store.Stats(ctx, c.pool, c.tenant)
	if err != nil {
		return Stats{}, databaseError("stats", err)
	}
	stats := Stats{Jobs: make(map[Status]int64, len(statuses)), Estimated: rows.Estimated, QueueLag: rows.Lag}
	for i, status := range statuses {
		stats.Jobs[status] = rows.ByStatus[int16(i)]
	}
	if c.tenant != nil {
		return stats, nil
	}
	outbox, err := c.store.Outbox(ctx, c.pool, failureThresholds())
	if err != nil {
		return Stats{}, databaseError("stats", err)
	}
	stats.Outbox = outboxStats(outbox)
	return stats, nil
}
