package smtp

import (
	"errors"
	"net"
)

// maxReplyBytes is how much a server may send in one connection, certificates included. Real ones send a few KB; the
// reader in front of us would collect an endless reply in memory.
const maxReplyBytes = 1 << 20

var errReplyTooLong = errors.New("the server sent more than 1 MiB")

// conn is the network connection under TLS and buffers. It knows what those hide: whether all that was to be written
// has been handed to the network.
type conn struct {
	net.Conn
	unread  int64
	written int64
	broken  bool // a write failed
}

func newConn(c net.Conn) *conn { return &conn{Conn: c, unread: maxReplyBytes} }

func (c *conn) Read(p []byte) (int, error) {
	if c.unread <= 0 {
		return 0, errReplyTooLong
	}
	if int64(len(p)) > c.unread {
		p = p[:c.unread]
	}
	n, err := c.Conn.Read(p)
	c.unread -= int64(n)
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written += int64(n)
	if err != nil {
		c.broken = true
	}
	return n, err
}
