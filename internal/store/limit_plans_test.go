package store

import (
	"time"

	"github.com/google/uuid"
)

// limitPlans are the statements of an admission.
func (p *planTables) limitPlans() map[string]planned {
	var readings []Reading
	var reserve []Reservation
	var send []Deferral
	ids, keys, channels := make(uuidArray, planBatch), make(uuidArray, planBatch), make([]string, planBatch)
	for i, id := range p.ids() {
		readings = append(readings, aReading(uuid.New()))
		reserve = append(reserve, Reservation{JobID: id, Key: hotKey, Channel: "EMAIL", At: time.Now().Add(time.Hour), Booked: true})
		send = append(send, Deferral{ID: id, Token: p.token, Due: time.Now().Add(time.Hour), Book: &reserve[i]})
		ids[i], keys[i], channels[i] = pgUUID(id), pgUUID(uuid.New()), "EMAIL"
	}
	const key = "rate_limit_reservations_key"
	window := map[string]string{key: "(limit_key = k.limit_key) AND (reserved_at > (statement_timestamp() - "}
	read := []string{key, "rate_limit_reservations_pkey"}
	jobs, one := uuids(p.ids()), aReading(hotKey)
	return map[string]planned{
		"read": {sql: p.store.sql.reservations, args: append(readingArgs(readings), jobs), reads: read, bounds: window},
		"read a hot one": {
			sql: p.store.sql.reservations, args: append(readingArgs([]Reading{one}), jobs[:1]), reads: read, bounds: window,
		},
		"reserve": {sql: p.store.sql.reserve, args: reserveArgs(reserve)},
		"admit new ones": {
			sql: p.store.sql.admitNew, args: []any{ids, keys, channels, micros(time.Minute), micros(time.Second)},
			reads: []string{key}, bounds: map[string]string{key: "(limit_key = c.limit_key) AND (reserved_at > (statement_timestamp() - "},
		},
		"send back": {
			sql: p.store.sql.deferred, args: deferArgs(send),
			reads: []string{"notification_queue_pkey", "rate_limit_reservations_pkey"},
		},
	}
}

func aReading(key uuid.UUID) Reading {
	return Reading{Key: key, Window: 10 * time.Second, Ahead: time.Second, Past: 5, Near: 50, Last: 5}
}
