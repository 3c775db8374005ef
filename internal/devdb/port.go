package devdb

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

var errPortTaken = errors.New("another process took the port")

// Ports come from below the ranges that systems take the ports of outgoing connections from (32768 and up on Linux,
// 49152 and up elsewhere). In such a range a client that dials a stopped server's port again and again is sooner or
// later given that very port for its own end: it then talks to itself, and the server can't start.
const (
	lowestPort  = 15_000
	highestPort = 32_000
)

func freePort() (int, error) {
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if portFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

//nolint:contextcheck // it asks the kernel, which answers at once
func portFree(port int) bool {
	var listen net.ListenConfig
	l, err := listen.Listen(context.Background(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
