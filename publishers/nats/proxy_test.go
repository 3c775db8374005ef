package nats

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a publisher and a broker. It can keep back what either says, and cut.
type proxy struct {
	t       *testing.T
	target  string
	ln      net.Listener
	wg      sync.WaitGroup
	mu      sync.Mutex
	changed *sync.Cond
	silent  bool // keeps back what the broker answers
	deaf    bool // does not read what the publisher sends
	away    bool
	conns   map[net.Conn]net.Conn // the client's side to the broker's
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{t: t, target: target, ln: ln, conns: make(map[net.Conn]net.Conn)}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

// between starts a broker and a proxy before it.
func between(t *testing.T) (*broker, *proxy) {
	b := startBroker(t)
	return b, startProxy(t, b.srv.Addr().String())
}

func (p *proxy) url() string { return "nats://" + p.ln.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", p.target)
		p.mu.Lock()
		if err != nil || p.away {
			_ = client.Close()
			if err == nil {
				_ = broker.Close()
			}
			p.mu.Unlock()
			continue
		}
		p.conns[client] = broker
		p.mu.Unlock()
		p.wg.Go(func() { p.forward(client, client, broker, &p.deaf) })
		p.wg.Go(func() { p.forward(client, broker, client, &p.silent) })
	}
}

func (p *proxy) forward(client, from, to net.Conn, held *bool) {
	defer p.end(client)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		for *held && p.conns[client] != nil {
			p.changed.Wait()
		}
		_, err = to.Write(buffer[:n]) // under the lock, so that a change holds from when it is made
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *proxy) end(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if broker := p.conns[client]; broker != nil {
		_, _ = client.Close(), broker.Close()
		delete(p.conns, client)
		p.changed.Broadcast()
	}
}

func (p *proxy) beDeaf(deaf bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = deaf
	p.changed.Broadcast()
}

// be changes the behaviour: answers are kept back while silent, connections are refused and cut while away.
func (p *proxy) be(silent, away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if away {
		p.cutLocked() // with what was kept back
	}
	p.silent, p.away = silent, away
	p.changed.Broadcast()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

func (p *proxy) cutLocked() {
	for client, broker := range p.conns {
		_, _ = client.Close(), broker.Close()
		delete(p.conns, client)
	}
	p.changed.Broadcast()
}

// say writes to the publisher in the broker's name. The broker must be quiet.
func (p *proxy) say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for client := range p.conns {
		_, err := io.WriteString(client, line+"\r\n")
		require.NoError(p.t, err)
	}
}
