package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// page is a page as a client sees it.
type page struct {
	Items []struct {
		ID, Status, Recipient, Channel string
	}
	NextCursor *string
	link       string
}

// list reads a page. Parameters are name and value by turns.
func (s *server) list(t *testing.T, params ...string) page {
	t.Helper()
	query := url.Values{}
	for pair := range slices.Chunk(params, 2) {
		query.Set(pair[0], pair[1])
	}
	return s.page(t, "/notifications?"+query.Encode())
}

func (s *server) page(t *testing.T, target string) (p page) {
	t.Helper()
	a := s.get(t, target)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	require.NotNil(t, p.Items, "an empty list is a list")
	if link := a.header.Get("Link"); link != "" {
		rest, isNext := strings.CutSuffix(link, `>; rel="next"`)
		require.True(t, isNext, link)
		p.link = strings.TrimPrefix(rest, "<")
	}
	require.Equal(t, p.NextCursor != nil, p.link != "")
	return p
}

// fill makes jobs that share their times, three recipients and two channels.
func (s *server) fill(t *testing.T, count int) {
	t.Helper()
	items := make([]string, count)
	for i := range items {
		items[i] = body("idempotencyKey", strconv.Quote(fmt.Sprintf("f%d", i)), "recipient", strconv.Quote(fmt.Sprintf("r+%d &%%", i%3)),
			"channel", []string{`"EMAIL"`, `"SMS"`}[i%2])
	}
	a := s.post(t, "/notifications/batch", `{"notifications":[`+strings.Join(items, ",")+`]}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
}

func TestWalkByLinksMeetsEveryJobOnceWhileOthersCome(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.fill(t, 300)
	for _, filters := range []string{"", "&status=PENDING", "&recipient=" + url.QueryEscape("r+1 &%"), "&channel=SMS&status=PENDING"} {
		var lists [][]string
		for _, limit := range []int{7, 100, 1000} {
			var ids []string
			pages := 0
			for target := fmt.Sprintf("/notifications?limit=%d%s", limit, filters); target != ""; pages++ {
				p := s.page(t, target)
				require.LessOrEqual(t, len(p.Items), limit)
				for _, job := range p.Items {
					if job.Recipient != "later" {
						ids = append(ids, job.ID)
					}
				}
				s.schedule(t, body("idempotencyKey", strconv.Quote(fmt.Sprint("later", filters, limit, pages)), "recipient", `"later"`))
				target = p.link
			}
			require.Len(t, slices.Compact(slices.Clone(ids)), len(ids))
			require.True(t, slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(b, a) }), "newest first")
			lists = append(lists, ids)
		}
		require.Equal(t, lists[0], lists[1])
		require.Equal(t, lists[0], lists[2])
	}
	require.Len(t, s.list(t, "recipient", "r+1 &%", "limit", "1000").Items, 100)
	require.Len(t, s.list(t).Items, 50, "by default")
}

func TestRecipientsAreTakenLiterally(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i, recipient := range []string{"+15550100", " 15550100", "100%", "a_c", "abc"} {
		s.schedule(t, body("idempotencyKey", strconv.Quote(strconv.Itoa(i)), "recipient", strconv.Quote(recipient)))
	}
	for query, want := range map[string]string{
		"%2B15550100": "+15550100", "+15550100": " 15550100", "100%25": "100%", "a_c": "a_c", "%25": "", "a%25": "",
	} {
		p := s.page(t, "/notifications?recipient="+query)
		if want == "" {
			require.Empty(t, p.Items)
			continue
		}
		require.Len(t, p.Items, 1, query)
		require.Equal(t, want, p.Items[0].Recipient)
	}
}

func TestQueriesThatBreakARuleAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	s.fill(t, 10)
	first := s.list(t, "limit", "3", "channel", "EMAIL")
	cursor := *first.NextCursor
	flipped := "B" + cursor[1:]
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=-1": "limit", "limit=1.5": "limit", "limit=1e9": "limit", "limit=abc": "limit", "limit=1001": "limit",
		"limit=": "limit", "limit=+5": "limit", "limit=%2B5": "limit", "limit=0x10": "limit", "limit=1_0": "limit",
		"limit=99999999999999999999": "limit", "limit=1&limit=1": "limit",
		"status=sent": "status", "status=SENT,DEAD": "status", "status=X": "status", "status=": "status",
		"recipient=%00": "recipient", "recipient=%ff": "recipient", "recipient=": "recipient", "recipient=a&recipient=b": "recipient",
		"recipient=" + strings.Repeat("r", 321): "recipient", "recipient=+": "recipient",
		"channel=a%20b": "channel", "channel=": "channel",
		"cursor=": "cursor", "cursor=" + flipped: "cursor", "cursor=" + cursor: "cursor", // without its filter
		"channel=SMS&cursor=" + cursor: "cursor", "channel=EMAIL&status=PENDING&cursor=" + cursor: "cursor",
		"channel=EMAIL&cursor=" + cursor + "A": "cursor", "cursor=" + strings.Repeat("A", 10_240): "cursor",
		"cursor='%3Bdrop%20table%20x": "cursor", "cursor=%0a" + cursor: "cursor",
		"idempotencyKey=": "idempotencyKey", "idempotencyKey=%01": "idempotencyKey", "idempotencyKey=k&status=SENT": "idempotencyKey",
		"idempotencyKey=k&limit=0": "limit", "idempotencyKey=k&limit=1001": "limit",
		"tenant=a": "query", "Limit=5": "query", "x": "query", "=": "query", "&&a=b&": "query",
		"limit=%zz": "query", "limit=1;status=SENT": "query", "%00=1": "query",
	} {
		s.get(t, "/notifications?"+query).requireFault(t, field)
	}
	require.NotEmpty(t, s.list(t, "limit", "4", "channel", "EMAIL", "cursor", cursor).Items, "another limit is no other list")
	id := first.Items[0].ID
	for _, target := range []string{"/notifications/" + id, "/notifications/" + id + "/attempts", "/webhook-endpoints"} {
		s.get(t, target+"?x=1").requireFault(t, "query")
	}
	for _, target := range []string{"/notifications", "/notifications/batch", "/notifications/retry", "/channels/EMAIL/pause"} {
		s.post(t, target+"?dryRun=true", body()).requireFault(t, "query")
	}
	require.Equal(t, 10, s.stored(t))
}

func TestJobOfAKey(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	job := s.schedule(t, body("idempotencyKey", `"a b+c"`))
	p := s.page(t, "/notifications?idempotencyKey=a+b%2Bc&limit=5")
	require.Len(t, p.Items, 1)
	require.Equal(t, job["id"], p.Items[0].ID)
	require.Empty(t, s.list(t, "idempotencyKey", "other").Items)
}
