package api

import (
	"errors"
	"io"
	"sync/atomic"
)

// DefaultBodyMemory is four batches of the largest size at once. While a batch is read, checked and stored it takes about
// seven times its size: with twice as many at once the process had 460 MB.
const DefaultBodyMemory = 32 << 20

// memory is what large bodies may take together. Without it a few dozen clients that send batches slowly would be enough
// to end a process in a small container.
type memory struct {
	left atomic.Int64
}

// share is one request's part of it. What every request may have, a body of the usual size, does not count, so that
// nobody who schedules single notifications is refused because of those who send batches.
type share struct {
	of    *memory
	read  int64
	taken int64
}

var errNoMemory = errors.New("too many large bodies are in memory")

// take counts bytes as they arrive, not as they are announced: who announces much and sends nothing takes nothing.
func (s *share) take(bytes int) error {
	s.read += int64(bytes)
	more := s.read - maxBodyBytes - s.taken
	if more <= 0 {
		return nil
	}
	if s.of.left.Add(-more) < 0 {
		s.of.left.Add(more)
		return errNoMemory
	}
	s.taken += more
	return nil
}

// giveBack is for the end of the request: a batch is in memory until it is stored.
func (s *share) giveBack() {
	s.of.left.Add(s.taken)
	s.taken = 0
}

// reader takes from the share what it reads.
func (s *share) reader(r io.Reader) io.Reader { return counted{s, r} }

type counted struct {
	share *share
	from  io.Reader
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if full := c.share.take(n); full != nil {
		return n, full
	}
	return n, err
}
