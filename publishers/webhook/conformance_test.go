package webhook

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/notifyqtest"
)

// harness is a server that can be switched off, at an address that stays.
type harness struct {
	t         *testing.T
	publisher *Publisher
	secured   *tls.Config
	addr      string

	mu       sync.Mutex
	now      notifyqtest.Behaviour
	received []notifyq.Event
	server   *http.Server
	serving  sync.WaitGroup
}

func openHarness(t *testing.T, secured bool) *harness {
	h := &harness{t: t, now: notifyqtest.Away}
	url, client := "http://", (*tls.Config)(nil)
	if secured {
		url = "https://"
		h.secured, client = certificate(t)
	}
	ln := listen(t)
	h.addr = ln.Addr().String()
	h.publisher = newPublisher(t, url+h.addr+"/hook", func(cfg *Config) { cfg.TLS = client })
	h.serve(ln)
	h.now = notifyqtest.Accepts
	t.Cleanup(func() {
		h.publisher.CloseIdleConnections()
		h.Behave(notifyqtest.Away)
	})
	return h
}

func (h *harness) Publisher() notifyq.Publisher { return h.publisher }

func (h *harness) Received() []notifyq.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.received)
}

func (h *harness) Behave(b notifyqtest.Behaviour) {
	h.mu.Lock()
	was := h.now
	h.now = b
	h.mu.Unlock()
	switch {
	case b == was:
	case b == notifyqtest.Away:
		_ = h.server.Close()
		h.serving.Wait()
	case was == notifyqtest.Away:
		h.serve(h.listenAgain())
	}
}

// listenAgain waits for the old listener's address.
func (h *harness) listenAgain() net.Listener {
	for deadline := time.Now().Add(10 * time.Second); ; {
		ln, err := (&net.ListenConfig{}).Listen(h.t.Context(), "tcp", h.addr)
		if err == nil {
			return ln
		}
		require.True(h.t, time.Now().Before(deadline), "%v", err)
		time.Sleep(time.Millisecond)
	}
}

func (h *harness) serve(ln net.Listener) {
	server := &http.Server{Handler: http.HandlerFunc(h.handle), TLSConfig: h.secured, ErrorLog: log.New(io.Discard, "", 0)}
	h.server = server
	h.serving.Go(func() {
		if h.secured != nil {
			_ = server.ServeTLS(ln, "", "")
			return
		}
		_ = server.Serve(ln)
	})
}

func (h *harness) handle(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	now := h.now
	h.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch now {
	case notifyqtest.Accepts:
		h.mu.Lock()
		defer h.mu.Unlock()
		h.received = append(h.received, notifyq.Event{
			ID: uuid.MustParse(r.Header.Get("webhook-id")), Topic: r.Header.Get(headerTopic), Key: r.Header.Get(headerKey), Body: body,
		})
	case notifyqtest.Rejects: // and repeats all it knows, as some do
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, "bad: "+r.Header.Get(headerKey)+"\n")
		_, _ = w.Write(body)
	case notifyqtest.Silent, notifyqtest.Away:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	notifyqtest.TestPublisher(t, func(t *testing.T) notifyqtest.PublisherHarness { return openHarness(t, false) })
}

func TestContractOverHTTP2(t *testing.T) {
	t.Parallel()
	notifyqtest.TestPublisher(t, func(t *testing.T) notifyqtest.PublisherHarness { return openHarness(t, true) })
}
