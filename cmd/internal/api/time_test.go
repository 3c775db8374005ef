package api

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimesThatAreNotStrictRFC3339AreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, value := range []string{
		`"2016-12-31T23:59:60Z"`, `"2026-06-15T12:00:60Z"`, `"9999-12-31T23:59:60Z"`, `"2026-12-31T24:00:00Z"`,
		`"2026-01-01T00:00:00,5Z"`, `"2026-01-01T1:00:00Z"`, `"2026-01-01T00:00:00+24:00"`, `"2026-01-01T00:00:00+99:80"`,
		`"2026-01-01T00:00:00+01:60"`, `"2026-01-01 00:00:00Z"`, `"2026-01-01t00:00:00Z"`, `"2026-01-01T00:00:00z"`,
		`"2026-01-01T00:00:00"`, `"2026-02-29T00:00:00Z"`, `"0000-01-01T00:00:00Z"`, `"0001-01-01T00:00:00Z"`,
		`"0001-01-01T00:00:00+01:00"`, `"2026-01-01T00:00:00.1234567890Z"`, `"2026-01-01T00:00:00.Z"`, `"2026-01-01"`,
		`" 2026-01-01T00:00:00Z"`, `"2026-01-01T00:00:00Z\n"`, `"+2026-01-01T00:00:00Z"`, `"now"`, `""`, "1767225600", "null", "[]", "true",
	} {
		s.post(t, "/notifications", body("sendAt", value)).requireFault(t, "sendAt")
		s.post(t, "/notifications", body("expiresAt", value)).requireFault(t, "expiresAt")
		s.post(t, "/notifications/retry", `{"since":`+value+`}`).requireFault(t, "since")
	}
	require.Zero(t, s.stored(t))
}

func TestTimesComeBackAsTheSameInstantAndNeverEarlier(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	day := time.Now().UTC().AddDate(0, 0, 30).Format(time.DateOnly)
	for i, c := range []struct{ sent, want string }{
		{"T12:00:00Z", "T12:00:00.000000Z"},
		{"T12:00:00-00:00", "T12:00:00.000000Z"},
		{"T12:00:00.5+02:30", "T09:30:00.500000Z"},
		{"T12:00:00.123456Z", "T12:00:00.123456Z"},
		{"T12:00:00.123456789Z", "T12:00:00.123457Z"},
		{"T12:00:00.9999999Z", "T12:00:01.000000Z"},
	} {
		text := body("idempotencyKey", strconv.Quote(strconv.Itoa(i)), "sendAt", strconv.Quote(day+c.sent))
		job := s.schedule(t, text)
		require.Equal(t, day+c.want, job["scheduledAt"])
		again := s.post(t, "/notifications", text)
		require.Equal(t, http.StatusOK, again.status)
		require.Equal(t, job, again.object(t))
		require.Equal(t, job, s.get(t, again.header.Get("Location")).object(t))
	}
}

func TestPastIsNow(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for i, past := range []time.Duration{50 * time.Millisecond, time.Second, time.Hour, 10 * 365 * 24 * time.Hour} {
		job := s.schedule(t, body("idempotencyKey", strconv.Quote(strconv.Itoa(i)),
			"sendAt", strconv.Quote(time.Now().Add(-past).Format(time.RFC3339Nano))))
		require.Equal(t, job["createdAt"], job["nextAttemptAt"])
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, value := range []string{
		"-1", "-1e18", `"5"`, "1.5", "1e3", "1.0", "0.0", "null", "true", "[5]", "31536001", "2147483647", "2147483648",
		"9223372036", "9223372037", "9223372036854775807", "9223372036854775808", "18446744073709551617", "-9223372036854775809", "1e30",
	} {
		s.post(t, "/notifications", body("delaySeconds", value)).requireFault(t, "delaySeconds")
	}
	soon := strconv.Quote(time.Now().Add(time.Hour).Format(time.RFC3339))
	s.post(t, "/notifications", body("delaySeconds", "0", "sendAt", soon)).requireFault(t, "delaySeconds")
	s.post(t, "/notifications", body("delaySeconds", "5", "sendAt", soon)).requireFault(t, "delaySeconds")
	a := s.post(t, "/notifications", body("delaySeconds", "null", "sendAt", "null"))
	require.Len(t, a.requireProblem(t, http.StatusBadRequest, "invalid_request").Errors, 3)
	require.Zero(t, s.stored(t))

	for value, seconds := range map[string]int{"0": 0, "-0": 0, "60": 60, "31536000": 31_536_000} {
		job := s.schedule(t, body("idempotencyKey", strconv.Quote(value), "delaySeconds", value))
		require.Equal(t, time.Duration(seconds)*time.Second, at(t, job, "scheduledAt").Sub(at(t, job, "createdAt")))
	}
}

func TestHorizonAndExpiry(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	in := func(d time.Duration) string { return strconv.Quote(time.Now().Add(d).Format(time.RFC3339)) }
	s.post(t, "/notifications", body("sendAt", in(366*24*time.Hour))).requireFault(t, "sendAt")
	s.post(t, "/notifications", body("sendAt", `"9999-12-31T23:59:59.9999999Z"`)).requireFault(t, "sendAt")
	s.post(t, "/notifications", body("expiresAt", in(-time.Hour))).requireFault(t, "expiresAt")
	s.post(t, "/notifications", body("expiresAt", in(time.Hour), "sendAt", in(2*time.Hour))).requireFault(t, "expiresAt")
	s.post(t, "/notifications", body("expiresAt", in(time.Hour), "delaySeconds", "7200")).requireFault(t, "expiresAt")
	require.Zero(t, s.stored(t))
	job := s.schedule(t, body("expiresAt", in(time.Hour)))
	require.True(t, at(t, job, "expiresAt").After(at(t, job, "scheduledAt")))
}

// at is a time of a job.
func at(t *testing.T, job map[string]any, name string) time.Time {
	t.Helper()
	require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`, job[name])
	parsed, err := time.Parse(time.RFC3339Nano, job[name].(string))
	require.NoError(t, err)
	return parsed
}
