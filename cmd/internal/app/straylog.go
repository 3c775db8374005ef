package app

import (
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// strayEvery is how often one kind of stray output is spoken of: whoever sends too much does so with every request.
const strayEvery = time.Minute

// strayLog stands behind the standard logger, through which packages print that were given no other. net/http's transport
// quotes what comes on a connection that waits for nothing, and if a provider echoes its request, that is a recipient and
// a payload. So lines are counted, and their text goes nowhere.
type strayLog struct {
	logger *slog.Logger

	mu    sync.Mutex
	kinds map[string]*strayKind
}

type strayKind struct {
	lines int
	told  time.Time
}

func newStrayLog(logger *slog.Logger) *strayLog {
	return &strayLog{logger: logger, kinds: map[string]*strayKind{}}
}

// redirectStray takes the standard logger of the whole process.
func redirectStray(logger *slog.Logger) { log.SetOutput(newStrayLog(logger)) }

func (s *strayLog) Write(b []byte) (int, error) {
	name := "other"
	if strings.Contains(string(b), "Unsolicited response received on idle HTTP channel") {
		name = "unsolicited_response"
	}
	if lines, tell := s.count(name); tell {
		s.logger.Warn("process.stray_output", "kind", name, "lines", lines)
	}
	return len(b), nil
}

// count returns how many lines of a kind there were, and whether it is time to tell.
func (s *strayLog) count(name string) (lines int, tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := s.kinds[name]
	if kind == nil {
		kind = &strayKind{}
		s.kinds[name] = kind
	}
	kind.lines++
	if !kind.told.IsZero() && time.Since(kind.told) < strayEvery {
		return kind.lines, false
	}
	kind.told = time.Now()
	return kind.lines, true
}
