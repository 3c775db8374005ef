// Package store holds every SQL statement of notifyq, a file a table, and the row structs they fill. It holds no
// policy: what is allowed, how long to wait and what to write is said by the caller.
//
// Lock order, for all statements together: a statement that locks several rows of one table takes them with SKIP LOCKED
// or in the order of their ids; a job's queue row comes before its outcome, its notification, its attempts, its event and its
// reservation; an endpoint comes before its events; the advisory locks of the rate limit come first of all and in ascending
// order.
package store

import (
	"strconv"
	"strings"
)

// Guards are the states a transition may start from, as numbers. They come from the state machine, and become literals
// in the statements: a parameter could not prove a partial index.
type Guards struct {
	Cancel  []int16
	Redrive []int16
}

// Store renders the statements for one schema. It keeps no connection: every method takes the one to use.
type Store struct {
	schema string
	guards Guards
	sql    statements
}

// New prepares the statements. schema must have passed schema.ValidName: it is spliced as it is.
func New(schema string, guards Guards) *Store {
	s := &Store{schema: schema, guards: guards}
	s.sql = s.render()
	return s
}

// statements are the texts that differ by schema or guard.
type statements struct {
	insert, readBack, jobs, jobByKey, attempts    string
	claim, renew, start, retry, release, deferred string
	sent, sentByID, ended, recover, expire        string
	cancel, redrive, redriveMany, redrivable      string
	operation, pause, resume, paceLock            string
	eraseLive, lockFinished, eraseFinished        string
	eraseHeld                                     string
	publish, claimEvents, renewEvents             string
	published, eventFailed, eventReleased         string
	listEndpoints, endpoints, meetEndpoints       string
	reportEndpoint, enableEndpoint, nothingMissed string
	held, parked, parkedAt                        string
	parkedCount, parkedCountAt, redriveEvent      string
	redriveEvents, redriveEventsAt, outbox        string
	lockKeys, reservations, reserve, admitNew     string
	pruneSlots                                    string
	pruneJobs, pruneEvents, pruneOwnEvents        string
	stats, lag, dueSoon, eventsDueSoon            string
}

// render fills in the schema, which every relation and function is qualified with so that search_path never matters.
// In the texts, '@' stands before a name of ours.
func (s *Store) render() statements {
	q := func(sql string) string { return strings.ReplaceAll(sql, "@", `"`+s.schema+`".`) }
	in := func(sql string, states []int16) string {
		words := make([]string, len(states))
		for i, n := range states {
			words[i] = strconv.Itoa(int(n))
		}
		return q(strings.ReplaceAll(sql, "{states}", strings.Join(words, ", ")))
	}
	at := func(sql, endpoint string) string { return q(strings.ReplaceAll(sql, "{endpoint}", endpoint)) }
	return statements{
		insert: q(insertSQL), readBack: q(readBackSQL), jobs: q(jobsSQL), jobByKey: q(jobByKeySQL), attempts: q(attemptsSQL),
		claim: q(claimSQL), renew: q(renewSQL), start: q(startSQL), retry: q(retrySQL), release: q(releaseSQL), deferred: q(deferSQL),
		sent: q(strings.ReplaceAll(sentSQL, "{found}", foundByPlace)), sentByID: q(strings.ReplaceAll(sentSQL, "{found}", foundByID)), ended: q(endedSQL), recover: q(recoverSQL), expire: q(expireSQL),
		cancel: in(cancelSQL, s.guards.Cancel), redrive: in(redriveSQL, s.guards.Redrive),
		redriveMany: in(redriveManySQL, s.guards.Redrive), redrivable: in(redrivableSQL, s.guards.Redrive),
		operation: q(operationSQL), pause: q(pauseSQL), resume: q(resumeSQL), paceLock: q(paceLockSQL),
		eraseLive: in(eraseLiveSQL, s.guards.Cancel), lockFinished: q(lockFinishedSQL), eraseFinished: q(eraseFinishedSQL), eraseHeld: q(eraseHeldSQL),
		publish: q(publishSQL), claimEvents: q(claimEventsSQL), renewEvents: q(renewEventsSQL),
		published: q(publishedSQL), eventFailed: q(eventFailedSQL), eventReleased: q(eventReleasedSQL),
		listEndpoints: q(listEndpointsSQL), endpoints: q(endpointsSQL), meetEndpoints: q(meetEndpointsSQL),
		nothingMissed: q(nothingMissedSQL), held: q(heldSQL), reportEndpoint: q(strings.ReplaceAll(reportEndpointSQL, "{failing}", failingTooLong)), enableEndpoint: q(enableEndpointSQL),
		parked: q(parkedSQL), parkedAt: q(parkedAtSQL), redriveEvent: q(redriveEventSQL),
		parkedCount: at(parkedCountSQL, ofAnyEndpoint), parkedCountAt: at(parkedCountSQL, ofOneEndpoint),
		redriveEvents: at(redriveEventsSQL, ofAnyEndpoint), redriveEventsAt: at(redriveEventsSQL, ofOneEndpoint), outbox: q(outboxSQL),
		lockKeys: q(lockKeysSQL), reservations: q(reservationsSQL), reserve: q(reserveSQL),
		admitNew: q(admitNewSQL), pruneSlots: q(pruneSlotsSQL),
		pruneJobs: q(pruneJobsSQL), pruneEvents: q(pruneEventsSQL), pruneOwnEvents: q(pruneOwnEventsSQL),
		stats: q(statsSQL), lag: q(lagSQL), dueSoon: q(dueSoonSQL), eventsDueSoon: q(eventsDueSoonSQL),
	}
}

// Hot are the statements that every job pays for, and what goes before each, as they are sent: for benchmarks.
type Hot struct{ Begin, Pin, Claim, Sent string }

// Hot returns them.
func (s *Store) Hot() Hot {
	return Hot{Begin: beginSQL, Pin: pinSQL, Claim: s.sql.claim, Sent: s.sql.sent}
}
