package app

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notifyq/notifyq"
	"github.com/notifyq/notifyq/cmd/internal/settings"
	"github.com/notifyq/notifyq/internal/dbtest"
)

// echo answers every request with a 204, which has no body, and then sends the request's own all the same.
func echo(t *testing.T) (url string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(conn)
				for {
					request, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					body, _ := io.ReadAll(request.Body)
					_, _ = fmt.Fprintf(conn, "HTTP/1.1 204 No Content\r\n\r\n%s", body)
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// net/http itself prints what comes on a connection that waits for nothing. It must not be the recipient and the payload.
func TestWhatIsSentAfterAnAnswerIsNotPrinted(t *testing.T) {
	t.Parallel()
	for name, environ := range map[string]func(url string) []string{
		"by a provider": func(url string) []string { return []string{"PROVIDER=http", "PROVIDER_URL=" + url} },
		"by a receiver": func(url string) []string {
			return []string{"WEBHOOK_URL=" + url + "/canary", "WEBHOOK_SECRET=" + canarySecret, "WEBHOOK_ALLOW_CIDRS=127.0.0.0/8"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			p := launch(t, settings.RoleWorker, append(fast(db), environ(echo(t))...)...)
			printed := p.waiter("process.stray_output")
			client := newClient(t, db)
			ends(t, client, schedule(t, client, canaryRecipient), notifyq.StatusSent)
			p.await(printed, "process.stray_output")
			require.Zero(t, p.end())
			require.Contains(t, p.stdout(), `"msg":"process.stray_output","kind":"unsolicited_response","lines":1`)
			require.Empty(t, p.stderr.String())
			requireNoCanary(t, p)
		})
	}
}

func TestStrayOutputIsCountedAndSaidOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		stray := log.New(newStrayLog(NewLogger(&out, slog.LevelInfo)), "", log.LstdFlags)
		said := func() string {
			defer out.Reset()
			return out.String()
		}
		stray.Print("Unsolicited response received on idle HTTP channel starting with \"canary\"; err=<nil>")
		require.Contains(t, said(), `"kind":"unsolicited_response","lines":1`)
		for range 1000 {
			stray.Print("Unsolicited response received on idle HTTP channel starting with \"canary\"; err=<nil>")
		}
		require.Empty(t, said())
		stray.Print("canary\ncanary")
		require.Contains(t, said(), `"level":"WARN","msg":"process.stray_output","kind":"other","lines":1`)
		time.Sleep(time.Minute)
		stray.Print("Unsolicited response received on idle HTTP channel starting with \"canary\"; err=<nil>")
		line := said()
		require.Contains(t, line, `"kind":"unsolicited_response","lines":1002`)
		require.Equal(t, 1, strings.Count(line, "\n"))
		require.NotContains(t, line, "canary")
	})
}
