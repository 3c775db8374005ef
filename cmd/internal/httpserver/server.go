package httpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// Defaults of Config.
const (
	DefaultReadHeaderTimeout = 5 * time.Second
	DefaultReadTimeout       = 30 * time.Second
	DefaultWriteTimeout      = 60 * time.Second
	DefaultIdleTimeout       = 60 * time.Second
	DefaultMaxHeaderBytes    = 32 << 10
	DefaultGrace             = 10 * time.Second
)

// ErrGrace is returned by Run if requests were cut off because the grace was over.
var ErrGrace = errors.New("requests were still running when the grace was over")

// Config has working defaults in its zero value, but for where to listen.
type Config struct {
	// Listener is one from Listen, and required. Run closes it.
	Listener net.Listener
	// Logger gets what the server itself has to say. Nil is silent.
	Logger *slog.Logger
	// ReadHeaderTimeout bounds how long a client may take to send a request's head. Default 5 s.
	ReadHeaderTimeout time.Duration
	// ReadTimeout bounds head and body. Default 30 s.
	ReadTimeout time.Duration
	// WriteTimeout bounds the time from the end of the head to the end of the answer. Default 60 s.
	WriteTimeout time.Duration
	// IdleTimeout bounds how long a connection waits for its next request. Default 60 s.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds the head. Default 32 KiB.
	MaxHeaderBytes int
	// Grace is how long running requests have when the server is to stop. Default 10 s.
	Grace time.Duration
}

// Listen opens the port that a server is to have. Its errors name the settings HOST and PORT.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err == nil {
		return ln, nil
	}
	setting := "HOST"
	var addrError *net.AddrError
	switch {
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EACCES):
		setting = "PORT"
	case errors.As(err, &addrError) && strings.Contains(addrError.Err, "port"):
		setting = "PORT"
	}
	return nil, fmt.Errorf("%s: can't listen: %w", setting, err)
}

// Run serves h until ctx ends. Then nothing new is taken, kept connections are closed, and what runs may end within the
// grace, under a context that the stop does not cancel. It returns nil after that, ErrGrace if requests had to be cut
// off, and otherwise why it can't serve. Requests are in their layers only if h comes from Wrap.
func Run(ctx context.Context, h http.Handler, cfg Config) error {
	base, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := cfg.server(h, base)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(cfg.Listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	graceful, cancel := context.WithTimeout(base, cmp.Or(cfg.Grace, DefaultGrace))
	defer cancel()
	err := server.Shutdown(graceful)
	if err != nil {
		cut()
		_ = server.Close() // the connections are gone whatever it says
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return ErrGrace
	case err != nil:
		return fmt.Errorf("stop serving HTTP: %w", err)
	}
	return nil
}

func (c Config) server(h http.Handler, base context.Context) *http.Server {
	return &http.Server{
		Handler:                      h,
		ReadHeaderTimeout:            cmp.Or(c.ReadHeaderTimeout, DefaultReadHeaderTimeout),
		ReadTimeout:                  cmp.Or(c.ReadTimeout, DefaultReadTimeout),
		WriteTimeout:                 cmp.Or(c.WriteTimeout, DefaultWriteTimeout),
		IdleTimeout:                  cmp.Or(c.IdleTimeout, DefaultIdleTimeout),
		MaxHeaderBytes:               cmp.Or(c.MaxHeaderBytes, DefaultMaxHeaderBytes),
		BaseContext:                  func(net.Listener) context.Context { return base },
		DisableGeneralOptionsHandler: true, // OPTIONS * is a 404 like everything that is not there
		ErrorLog:                     serverLog(c.Logger),
	}
}

// serverLog says that something was the matter with a connection. What the server would print may quote the client.
func serverLog(logger *slog.Logger) *log.Logger {
	if logger == nil {
		return log.New(io.Discard, "", 0)
	}
	return log.New(lineCounter{logger}, "", 0)
}

type lineCounter struct{ logger *slog.Logger }

func (l lineCounter) Write(b []byte) (int, error) {
	kind := "connection"
	switch {
	case strings.HasPrefix(string(b), "http: panic"):
		kind = "panic"
	case strings.HasPrefix(string(b), "http: Accept error"):
		kind = "accept"
	case strings.HasPrefix(string(b), "http: TLS"):
		kind = "tls"
	}
	l.logger.Warn("http.server_error", "kind", kind)
	return len(b), nil
}
