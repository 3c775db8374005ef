// Command bench measures notifyq beside its peers and beside the database alone, in one run on one machine, and prints the
// medians and their ratios. Figures of different runs, or machines, don't compare; ratios of one run do.
//
//	go run ./internal/bench            # everything, about an hour
//	go run ./internal/bench -quick     # a smoke test of less than a minute; its figures mean nothing
//	go run ./internal/bench -only drain,limited -rounds 5
//
// It starts a PostgreSQL of its own with the server's defaults: synchronous_commit and fsync are on. Every contender gets a
// fresh database and a process of its own, and does the same work: notification-sized jobs whose handler does nothing,
// finished rows kept where the contender keeps any.
package main
