package store

import (
	"time"

	"github.com/google/uuid"
)

// claimPlans make and keep claims.
func (p *planTables) claimPlans() map[string]planned {
	ids, tokens := p.heldClaims()
	lease := []any{ids, tokens, micros(time.Minute)}
	fenced := []string{"notification_queue_pkey"}
	return map[string]planned{
		"claim": {
			sql:    p.store.sql.claim,
			args:   append(laneArgs([]Lane{p.lane()}), pgUUID(uuid.New()), "w", micros(time.Minute)),
			reads:  []string{"channel_states_pkey", "notification_queue_due", placeScan, "notifications_pkey"},
			bounds: map[string]string{"notification_queue_due": "ROW(next_attempt_at, id) > ROW(p.low_at, p.low_id)", placeScan: "ctid = ANY"},
		},
		"renew": {sql: p.store.sql.renew, args: lease, reads: fenced},
		"start": {sql: p.store.sql.start, args: lease, reads: fenced},
	}
}

// recordPlans end claims.
func (p *planTables) recordPlans() map[string]planned {
	batch := &Batch{Worker: "w", Events: true}
	for _, j := range p.jobs {
		batch.Sent = append(batch.Sent, Sent{ID: j.ID, Token: p.token, Place: j.Place})
		batch.Ended = append(batch.Ended, Ended{ID: j.ID, Token: p.token, Status: 4, Reason: "exhausted", Class: "transient"})
		batch.Retried = append(batch.Retried, Retried{ID: j.ID, Token: p.token, Class: "transient"})
		batch.Released = append(batch.Released, Released{ID: j.ID, Token: p.token, Error: "401"})
	}
	sent := sentArgs(batch.Sent, batch.Events)
	key := "notification_queue_pkey"
	return map[string]planned{
		"sent":       {sql: p.store.sql.sent, args: sent, reads: []string{placeScan}, bounds: map[string]string{placeScan: "f.place"}},
		"sent by id": {sql: p.store.sql.sentByID, args: sent, reads: []string{key}},
		"ended":      {sql: p.store.sql.ended, args: endedArgs(batch), reads: []string{key, "rate_limit_reservations_pkey"}},
		"retry":      {sql: p.store.sql.retry, args: retryArgs(batch), reads: []string{key}},
		"release":    {sql: p.store.sql.release, args: releaseArgs(batch.Released), reads: []string{key}},
	}
}

func (p *planTables) heldClaims() (ids, tokens uuidArray) {
	c := p.claims()
	return c.sorted()
}

// schedulePlans run in callers' transactions.
func (p *planTables) schedulePlans() map[string]planned {
	var jobs []NewJob
	var places []int
	var tenants, keys []string
	for i := range planBatch {
		jobs = append(jobs, NewJob{
			Key: "new " + key(1000+i), Recipient: "r", RecipientKey: "r", Channel: "EMAIL", Payload: []byte("{}"), Fingerprint: []byte("f"),
			Priority: 2, MaxAttempts: 1,
		})
		places, tenants, keys = append(places, i), append(tenants, ""), append(keys, key(1000+i))
	}
	return map[string]planned{
		"insert":    {sql: p.store.sql.insert, args: insertArgs(jobs, places), free: true},
		"read back": {sql: p.store.sql.readBack, args: []any{tenants, keys}, free: true, reads: []string{"notifications_idempotency"}},
	}
}

// readPlans read jobs one by one.
func (p *planTables) readPlans() map[string]planned {
	job := func(by ...string) []string {
		return append(by, "notifications_pkey", "notification_queue_pkey", "notification_outcomes_pkey")
	}
	many, none := "many", (*string)(nil)
	return map[string]planned{
		"jobs":             {sql: p.store.sql.jobs, args: []any{uuids(p.ids()), none}, free: true, reads: job()},
		"jobs of a tenant": {sql: p.store.sql.jobs, args: []any{uuids(p.ids()), many}, free: true, reads: job()},
		"one job":          {sql: p.store.sql.jobs, args: []any{uuids(p.ids()[:1]), none}, free: true, reads: job()},
		"by key": {
			sql: p.store.sql.jobByKey, args: []any{"", "k1000"}, free: true,
			reads: []string{"notifications_idempotency", "notification_queue_pkey", "notification_outcomes_pkey"},
		},
		"attempts": {
			sql: p.store.sql.attempts, args: []any{pgUUID(anID)}, free: true, sorts: 1,
			reads: []string{"notification_attempts_pkey", "notification_outcomes_pkey"},
		},
	}
}

// housekeepingPlans are run by every worker now and then.
func (p *planTables) housekeepingPlans() map[string]planned {
	from := []any{pgUUID(uuid.Nil), micros(time.Hour), planBatch}
	bounds := func(index, bound string) map[string]string { return map[string]string{index: bound} }
	return map[string]planned{
		"recover": {
			sql: p.store.sql.recover, args: []any{planBatch, true}, walks: true,
			reads: []string{"notification_queue_processing", "notification_queue_pkey"},
		},
		"expire": {
			sql: p.store.sql.expire, args: []any{planBatch, true},
			reads:  []string{"notification_queue_expiry", "notification_queue_pkey", "rate_limit_reservations_pkey"},
			bounds: bounds("notification_queue_expiry", "expires_at <= statement_timestamp()"),
		},
		"prune jobs": {
			sql: p.store.sql.pruneJobs, args: from,
			reads:  []string{"notification_outcomes_pkey", "notification_attempts_pkey", "notifications_pkey"},
			bounds: bounds("notification_outcomes_pkey", "id > "),
		},
		"prune events": {
			sql: p.store.sql.pruneEvents, args: from, walks: true,
			reads: []string{"outbox_events_pkey"}, bounds: bounds("outbox_events_pkey", "id > "),
		},
		"prune own events": {
			sql: p.store.sql.pruneOwnEvents, args: []any{lowAt(Mark{}), micros(time.Hour), planBatch},
			reads: []string{"outbox_events_published", "outbox_events_pkey"}, bounds: bounds("outbox_events_published", "published_at >= "),
		},
		"prune reservations": {
			sql: p.store.sql.pruneSlots, args: from,
			reads: []string{"rate_limit_reservations_pkey"}, bounds: bounds("rate_limit_reservations_pkey", "job_id > "),
		},
	}
}
