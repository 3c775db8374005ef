package smtp

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// script is a server that misbehaves where it is told to. Steps are "connect", the verbs, "content" (after the 354,
// before anything of the message is read) and "." (the whole message is read).
type script struct {
	replies map[string]string // without the last line end; the defaults accept
	hangAt  string            // says nothing more
	closeAt string            // closes instead of replying

	host string
	port int
	hung chan struct{} // gets a value at hangAt
	stop chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	heard    []string // commands
	messages []string // complete ones, before undoing the dots
}

func (s *script) start(t *testing.T) *script {
	t.Helper()
	ln := listen(t)
	s.host, s.port = "127.0.0.1", ln.Addr().(*net.TCPAddr).Port
	s.hung, s.stop = make(chan struct{}, 1), make(chan struct{})
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if s.hangAt == "content" || s.closeAt == "content" {
				_ = c.(*net.TCPConn).SetReadBuffer(4096)
			}
			s.wg.Go(func() {
				defer func() { _ = c.Close() }()
				s.talk(c)
			})
		}
	})
	t.Cleanup(func() {
		close(s.stop)
		_ = ln.Close()
		s.wg.Wait()
	})
	return s
}

func (s *script) config() Config { return Config{Host: s.host, Port: s.port, From: testFrom} }

func (s *script) talk(c net.Conn) {
	reader := bufio.NewReader(c)
	if !s.answer(c, "connect", "220 script") {
		return
	}
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		s.mu.Lock()
		s.heard = append(s.heard, strings.TrimRight(line, "\r\n"))
		s.mu.Unlock()
		verb, _, _ := strings.Cut(strings.TrimRight(strings.ToUpper(line), "\r\n"), " ")
		if !s.answer(c, verb, map[string]string{"DATA": "354 go", "QUIT": "221 bye"}[verb]) || verb == "QUIT" {
			return
		}
		if verb == "DATA" && !s.read(c, reader) {
			return
		}
	}
}

func (s *script) read(c net.Conn, reader *bufio.Reader) bool {
	if s.replies["DATA"] != "" {
		return true
	}
	if s.hangAt == "content" || s.closeAt == "content" {
		return s.answer(c, "content", "")
	}
	var message strings.Builder
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return false
		}
		if line == ".\r\n" {
			break
		}
		message.WriteString(line)
	}
	s.mu.Lock()
	s.messages = append(s.messages, message.String())
	s.mu.Unlock()
	return s.answer(c, ".", "250 2.0.0 queued as 1234")
}

func (s *script) answer(c net.Conn, step, reply string) bool {
	switch step {
	case s.hangAt:
		s.hung <- struct{}{}
		<-s.stop
		return false
	case s.closeAt:
		return false
	}
	if reply == "" {
		reply = "250 ok"
	}
	if own, found := s.replies[step]; found {
		reply = own
	}
	_, err := io.WriteString(c, reply+"\r\n")
	return err == nil
}

func (s *script) commands() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.heard...)
}

func (s *script) received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.messages...)
}

// verbs are the first words heard.
func (s *script) verbs() []string {
	var verbs []string
	for _, line := range s.commands() {
		verb, _, _ := strings.Cut(line, " ")
		verbs = append(verbs, verb)
	}
	return verbs
}
