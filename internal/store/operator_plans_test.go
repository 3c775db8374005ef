package store

import "time"

// operatorPlans are asked for by people, and pinned all the same: what they ask for may be one job of millions.
func (p *planTables) operatorPlans() map[string]planned {
	none := (*string)(nil)
	id, by := pgUUID(anID), []any{"actor", "reason"}
	queue, outcome, job, slot := "notification_queue_pkey", "notification_outcomes_pkey", "notifications_pkey", "rate_limit_reservations_pkey"
	recipient := "notifications_recipient_key"
	bulk := []any{int16(4), none, none, optionalTime(time.Time{})}
	return map[string]planned{
		"cancel":  {sql: p.store.sql.cancel, args: append([]any{id, none}, by...), reads: []string{queue, slot}},
		"redrive": {sql: p.store.sql.redrive, args: append([]any{id, none}, by...), reads: []string{outcome, job}},
		"redrive many": {
			sql: p.store.sql.redriveMany, args: append(append(bulk, planBatch, micros(time.Second)), by...),
			reads: []string{"notification_outcomes_status", outcome, job, "operations_paced"},
		},
		"redrivable":    {sql: p.store.sql.redrivable, args: append(bulk[:4:4], planBatch), reads: []string{"notification_outcomes_status", job}},
		"erase live":    {sql: p.store.sql.eraseLive, args: []any{"u1000", none, planBatch}, reads: []string{recipient, queue, slot}},
		"lock finished": {sql: p.store.sql.lockFinished, args: []any{"u1000", none, planBatch}, reads: []string{recipient, outcome}},
		"erase finished": {
			sql: p.store.sql.eraseFinished, args: []any{uuids(p.ids())},
			reads: []string{job, outcome, "notification_attempts_pkey", slot},
		},
		"erase held": {sql: p.store.sql.eraseHeld, args: []any{"u1000", none}, reads: []string{recipient}},
	}
}
