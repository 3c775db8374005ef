// Package app is what the two binaries are made of. A Node is what runs: the API, a worker, or both over one pool, with
// health and metrics. Main is what a command line makes of it.
//
// Nothing that time or an operator can mend ends a process. While the database is away, or its schema is missing or too
// old, it answers probes, says so in /readyz and in its log, and goes on by itself when that is over. It ends at once
// with wrong settings, and a worker does if the database refuses its credentials.
package app
