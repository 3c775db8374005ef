package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// loadHTTP runs notifyq-api and puts load on it from this process: single posts, batches of 100, reads by id, and the first
// and the thousandth page of a list on t.Jobs jobs.
func loadHTTP(ctx context.Context, t task) (figures, error) {
	q, err := openQueue(ctx, t)
	if err != nil {
		return nil, err
	}
	defer q.pool.Close()
	if err := q.past(ctx, task{Finished: t.Jobs}); err != nil {
		return nil, err
	}
	if _, err := settle(ctx, q.pool, t, ""); err != nil {
		return nil, err
	}
	api, err := startAPI(ctx, t)
	if err != nil {
		return nil, err
	}
	out := figures{"MB at rest": api.resident()}
	l := &load{api: api, t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: t.Clients}}}
	steps := []struct {
		name string
		each float64 // notifications a request
		do   func(ctx context.Context, i int) error
	}{
		{"POST", 1, l.post},
		{"batch", 100, l.batch},
		{"GET", 1, l.get},
	}
	for _, s := range steps {
		perSecond, p99, err := l.run(ctx, s.do)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		out[s.name+"/s"], out[s.name+" p99 ms"] = perSecond*s.each, p99
	}
	out["MB under load"] = api.resident()
	if err := l.pages(ctx, out); err != nil {
		return nil, err
	}
	return out, api.stop()
}

// apiProcess is a notifyq-api without keys, on loopback.
type apiProcess struct {
	base string
	cmd  *exec.Cmd
}

func startAPI(ctx context.Context, t task) (*apiProcess, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	a := &apiProcess{base: "http://127.0.0.1:" + strconv.Itoa(port), cmd: exec.CommandContext(ctx, t.Binary)}
	a.cmd.Env = append(os.Environ(), "DATABASE_URL="+t.DSN, "PORT="+strconv.Itoa(port), "LOG_LEVEL=error")
	a.cmd.Stderr = os.Stderr
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	ready := &load{api: a, client: http.DefaultClient}
	for range 100 {
		time.Sleep(50 * time.Millisecond)
		if err = ready.request(ctx, http.MethodGet, "/readyz", nil, http.StatusOK, nil); err == nil {
			return a, nil
		}
	}
	return nil, fmt.Errorf("notifyq-api did not become ready: %w", err)
}

func (a *apiProcess) stop() error {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	return a.cmd.Wait()
}

// resident is what it holds, in MB.
func (a *apiProcess) resident() float64 {
	kB := strings.TrimSuffix(field(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid), "VmRSS"), " kB")
	n, _ := strconv.ParseFloat(kB, 64)
	return n / 1024
}

// load is what is put on it.
type load struct {
	api    *apiProcess
	t      task
	client *http.Client
	mu     sync.Mutex
	ids    []string
}

// run repeats do from t.Clients goroutines for t.Lasting.
func (l *load) run(ctx context.Context, do func(ctx context.Context, i int) error) (perSecond, p99 float64, err error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, l.t.Clients)
	took := make([][]time.Duration, l.t.Clients)
	began := time.Now()
	for c := range l.t.Clients {
		wg.Go(func() {
			for time.Since(began) < l.t.Lasting && ctx.Err() == nil {
				sent := time.Now()
				if err := do(ctx, int(next.Add(1))); err != nil {
					errs <- err
					return
				}
				took[c] = append(took[c], time.Since(sent))
			}
		})
	}
	wg.Wait()
	lasted := time.Since(began).Seconds()
	close(errs)
	if err := <-errs; err != nil {
		return 0, 0, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return float64(len(all)) / lasted, percentile(all, 0.99), ctx.Err()
}

func body(key string) map[string]any {
	return map[string]any{
		"idempotencyKey": key, "recipient": key + "@example.test", "channel": "EMAIL",
		"payload": map[string]string{"subject": "hi", "body": "hello there"},
	}
}

func (l *load) post(ctx context.Context, i int) error {
	var job struct{ ID string }
	if err := l.request(ctx, http.MethodPost, "/notifications", body("one-"+strconv.Itoa(i)), http.StatusCreated, &job); err != nil {
		return err
	}
	l.mu.Lock()
	l.ids = append(l.ids, job.ID)
	l.mu.Unlock()
	return nil
}

func (l *load) batch(ctx context.Context, i int) error {
	many := make([]any, 100)
	for j := range many {
		many[j] = body(fmt.Sprintf("batch-%d-%d", i, j))
	}
	var answer struct {
		Results []struct{ Error any }
	}
	err := l.request(ctx, http.MethodPost, "/notifications/batch", map[string]any{"notifications": many}, http.StatusOK, &answer)
	for _, r := range answer.Results {
		if r.Error != nil {
			return fmt.Errorf("an item was refused: %v", r.Error)
		}
	}
	return err
}

func (l *load) get(ctx context.Context, i int) error {
	return l.request(ctx, http.MethodGet, "/notifications/"+l.ids[i%len(l.ids)], nil, http.StatusOK, nil)
}

// pages walks a list to its thousandth page, and asks for that and for the first many times.
func (l *load) pages(ctx context.Context, out figures) error {
	const path = "/notifications?status=SENT&limit=50"
	last := min(1000, l.t.Jobs/50)
	cursor := ""
	for range last - 1 {
		var page struct{ NextCursor string }
		if err := l.request(ctx, http.MethodGet, path+cursor, nil, http.StatusOK, &page); err != nil {
			return err
		}
		cursor = "&cursor=" + page.NextCursor
	}
	for name, at := range map[string]string{"page 1 ms": path, "page 1,000 ms": path + cursor} {
		const times = 200
		began := time.Now()
		for range times {
			if err := l.request(ctx, http.MethodGet, at, nil, http.StatusOK, nil); err != nil {
				return err
			}
		}
		out[name] = float64(time.Since(began).Microseconds()) / 1000 / times
	}
	return nil
}

func (l *load) request(ctx context.Context, method, path string, in any, want int, out any) error {
	var reader io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, l.api.base+path, reader)
	if err != nil {
		return err
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := l.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode != want:
		return fmt.Errorf("%s %s: %s: %.300s", method, path, answer.Status, text)
	case out == nil:
		return nil
	}
	return json.Unmarshal(text, out)
}
