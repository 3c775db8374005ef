package retryafter

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 10, 21, 7, 28, 0, 0, time.UTC)
	for _, c := range []struct {
		values []string
		want   time.Duration
	}{
		{nil, 0},
		{[]string{"2"}, 2 * time.Second},
		{[]string{"120"}, 2 * time.Minute},
		{[]string{"0002"}, 2 * time.Second},
		{[]string{"86400"}, 24 * time.Hour},
		{[]string{"86401"}, 24 * time.Hour},
		{[]string{"9999999999"}, 24 * time.Hour},
		{[]string{"99999999999999999999"}, 24 * time.Hour},
		{[]string{strings.Repeat("9", 10000)}, 24 * time.Hour},
		{[]string{"0"}, 0},
		{[]string{""}, 0},
		{[]string{"-1"}, 0},
		{[]string{"+1"}, 0},
		{[]string{"1.5"}, 0},
		{[]string{"1e3"}, 0},
		{[]string{"0x10"}, 0},
		{[]string{"1_000"}, 0},
		{[]string{"١٢"}, 0},
		{[]string{"2s"}, 0},
		{[]string{"2, 3"}, 0},
		{[]string{"abc"}, 0},
		{[]string{"NaN"}, 0},
		{[]string{"2", "3"}, 0},
		{[]string{"2", "2"}, 0},
		{[]string{"Wed, 21 Oct 2026 07:28:30 GMT"}, 30 * time.Second},
		{[]string{"Wednesday, 21-Oct-26 07:28:30 GMT"}, 30 * time.Second},
		{[]string{"Wed Oct 21 07:28:30 2026"}, 30 * time.Second},
		{[]string{"Wed, 21 Oct 2099 07:28:00 GMT"}, 24 * time.Hour},
		{[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, 24 * time.Hour},
		{[]string{"Wed, 21 Oct 2026 07:28:00 GMT"}, 0},
		{[]string{"Wed, 21 Oct 2015 07:28:00 GMT"}, 0},
		{[]string{"Mon, 01 Jan 0001 00:00:00 GMT"}, 0},
		{[]string{"2026-10-21T07:28:30Z"}, 0},
		{[]string{"Wed, 21 Oct 2026 07:28:30 +0200"}, 0},
	} {
		require.Equal(t, c.want, Of(http.Header{"Retry-After": c.values}, now), "%q", c.values)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{"2", "-1", "1.5", "99999999999999999999", "Wed, 21 Oct 2099 07:28:00 GMT", " 2 ", "abc"} {
		f.Add(value, int64(1614265330))
	}
	f.Fuzz(func(t *testing.T, value string, now int64) {
		wait := Of(http.Header{"Retry-After": {value}}, time.Unix(now, 0))
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.LessOrEqual(t, wait, Max)
	})
}
