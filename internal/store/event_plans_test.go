package store

import (
	"time"

	"github.com/google/uuid"
)

// eventPlans are the statements of the relay, and of operators on all parked events.
func (p *planTables) eventPlans() map[string]planned {
	claims := claimsOf(p.token, p.events...)
	ids, tokens := claims.sorted()
	key := []string{"outbox_events_pkey"}
	all := parkedArgs("")
	parked := []string{"outbox_events_parked"}
	return map[string]planned{
		"claim": {
			sql:    p.store.sql.claimEvents,
			args:   []any{lowAt(p.lowEvent), pgUUID(p.lowEvent.ID), planBatch, 1 << 20, pgUUID(uuid.New()), "w", micros(time.Minute)},
			reads:  []string{"outbox_events_due", "outbox_events_pkey"},
			bounds: map[string]string{"outbox_events_due": "ROW(next_attempt_at, id) > ROW("},
		},
		"renew":     {sql: p.store.sql.renewEvents, args: []any{ids, tokens, micros(time.Minute)}, reads: key},
		"published": {sql: p.store.sql.published, args: []any{ids, tokens}, reads: key},
		"failed":    {sql: p.store.sql.eventFailed, args: failedArgs(p.failedEvents()), reads: key},
		"released":  {sql: p.store.sql.eventReleased, args: releasedArgs(p.releasedEvents()), reads: append(key, "webhook_endpoints_pkey")},
		"list": {
			sql: p.store.sql.parked, args: []any{pgUUID(uuid.Nil), planBatch}, walks: true,
			reads: parked, bounds: map[string]string{parked[0]: "id > "},
		},
		"count":   {sql: p.store.sql.parkedCount, args: append(all, planBatch), reads: parked, walks: true},
		"redrive": {sql: p.store.sql.redriveEvents, args: redriveArgs(""), walks: true, reads: append(parked, "outbox_events_pkey", "operations_paced")},
	}
}

func (p *planTables) failedEvents() (failed []EventFailed) {
	for _, id := range p.events {
		failed = append(failed, EventFailed{ID: id, Token: p.token, Error: "no", Parked: "exhausted", Endpoint: "many"})
	}
	return failed
}

func (p *planTables) releasedEvents() (released []EventReleased) {
	for _, id := range p.events {
		released = append(released, EventReleased{ID: id, Token: p.token, Disabled: EndpointKey{Name: "many", Target: "x"}})
	}
	return released
}

func parkedArgs(endpoint string) []any {
	return []any{optional(endpoint), optional(""), optionalTime(time.Time{}), pgUUID(uuid.Nil), true}
}

func redriveArgs(endpoint string) []any {
	return append(parkedArgs(endpoint), planBatch, micros(time.Second), "actor", "reason")
}

// endpointPlans are about the parked events of one endpoint, or of some. One that has few must not cost a walk over those of
// all others.
func (p *planTables) endpointPlans(name string) map[string]planned {
	index := []string{"outbox_events_parked_endpoint"}
	bounds := map[string]string{index[0]: "ROW(endpoint, id) > ROW("}
	return map[string]planned{
		"list":    {sql: p.store.sql.parkedAt, args: []any{pgUUID(uuid.Nil), planBatch, name}, walks: true, reads: index, bounds: bounds},
		"redrive": {sql: p.store.sql.redriveEventsAt, args: redriveArgs(name), walks: true, reads: append(index, "outbox_events_pkey", "operations_paced"), bounds: bounds},
		"count":   {sql: p.store.sql.parkedCountAt, args: append(parkedArgs(name), planBatch), walks: true, reads: index, bounds: bounds},
		"held":    {sql: p.store.sql.held, args: []any{[]string{name, "unknown"}}, reads: []string{"outbox_events_held"}},
	}
}

// samplePlans measure the queue and the outbox.
func (p *planTables) samplePlans() map[string]planned {
	lag := []string{"notification_queue_due", "Seq Scan on channel_states"} // some rows at most
	return map[string]planned{
		"outbox": {
			sql: p.store.sql.outbox, args: []any{EventCap, []int32{1, 3, 10}}, most: 3 * EventCap, walks: true, sorts: 1, // of endpoints
			reads: []string{
				"outbox_events_due", "outbox_events_failing", "outbox_events_parked", "outbox_events_pkey",
				"outbox_events_touched", "pg_class_oid_index", "webhook_endpoints_pkey",
			},
		},
		"lag": {sql: p.store.sql.lag, args: []any{(*string)(nil)}, free: true, walks: true, reads: lag},
	}
}
