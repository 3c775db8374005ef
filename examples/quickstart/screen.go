package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
)

// screen prints what happens, one line an event, with the jobs' names in place of their ids.
type screen struct {
	mu    sync.Mutex
	began time.Time
	names map[string]string
}

func newScreen() *screen { return &screen{began: time.Now(), names: make(map[string]string)} }

func (s *screen) name(id uuid.UUID, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[id.String()] = key
}

func (s *screen) title(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("\n%s\n", text)
}

func (s *screen) line(event, subject, note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("  %6.2fs  %-18s %-15s%s\n", time.Since(s.began).Seconds(), event, subject, note)
}

// logger turns notifyq's log events into lines.
func (s *screen) logger() *slog.Logger { return slog.New(&events{screen: s}) }

// events is a slog.Handler.
type events struct {
	screen *screen
	attrs  []slog.Attr
}

func (e *events) Enabled(context.Context, slog.Level) bool { return true }

func (e *events) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &events{screen: e.screen, attrs: append(append([]slog.Attr{}, e.attrs...), attrs...)}
}

func (e *events) WithGroup(string) slog.Handler { return e }

func (e *events) Handle(_ context.Context, r slog.Record) error {
	values := make(map[string]slog.Value)
	for _, a := range e.attrs {
		values[a.Key] = a.Value
	}
	r.Attrs(func(a slog.Attr) bool {
		values[a.Key] = a.Value
		return true
	})
	e.screen.mu.Lock()
	name := e.screen.names[values["jobId"].String()]
	e.screen.mu.Unlock()
	note := ""
	for _, key := range []string{"attempt", "class", "reason", "why"} {
		if v, ok := values[key]; ok {
			note += fmt.Sprintf("  %s %v", key, v)
		}
	}
	if v, ok := values["delayMs"]; ok {
		note += fmt.Sprintf("  again in %v ms", v)
	}
	if v, ok := values["until"]; ok {
		note += fmt.Sprintf("  its turn comes in %.1f s", time.Until(v.Time()).Seconds())
	}
	e.screen.line(r.Message, name, note)
	return nil
}
