// Package notify shortens the wait for the next poll: processes tell each other over LISTEN and NOTIFY that there is work,
// and look for it at once. Polling stays the truth. What is told is a hint without content, so that one which is lost
// costs a poll interval, and one too many costs a claim that finds nothing.
//
// # Telling
//
// A NOTIFY takes a lock at its commit that all notifying transactions of the server share. So it is never sent for each
// job, but after commits, in a statement of its own, for all that was committed since the one before: see Pulse.
//
// # Listening
//
//	connect ──▶ LISTEN ──▶ wake once ──▶ self-test ──▶ wake for what is told ──┐
//	   ▲                                     │                                 │
//	   │                                     └─▶ deaf: hang up, 10 min         │
//	   └────────────────────── backoff ◀── lost: told by the server, or by a check that is not answered
//
// Between the loss and the next LISTEN anything may have been told, hence the wake after it. Behind a pooler in
// transaction mode LISTEN succeeds, on some connection of the pooler's, and nothing ever arrives; nothing but a message
// from another connection can show that.
//
// Everybody who may connect to the database can send whatever on the channel. What is not exactly of the own schema and
// of a known kind is passed over, and however much arrives, loops are woken once in 10 ms at most.
package notify
