package e2e_test

import (
	"net/http"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// value is a sample of Prometheus's text, 0 if it is not there.
func value(t *testing.T, text, series string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	number, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return number
}

// What operators look at, over all processes.
func TestProbesAndMetrics(t *testing.T) {
	begin(t)
	gateway := newGateway(t)
	s := assemble(t, 3, gateway.settings()...)
	c := s.as(shop)
	for _, p := range s.processes {
		probe := s.probe(p) // without a key
		until(t, p.name+" is ready", func() bool { return probe.get("/readyz").status == http.StatusOK })
		probe.get("/livez").want(http.StatusOK)
		require.Contains(t, probe.get("/health").want(http.StatusOK).body, `"database":{"status":"up"}`)
		require.NotContains(t, p.log(), `"status":200`, "probes are not logged")
	}
	for _, p := range s.workers {
		for _, target := range []string{"/", "/notifications", "/docs", "/openapi.json", "/webhooks/mock"} {
			s.probe(p).get(target).want(http.StatusNotFound)
		}
	}
	gateway.plan("flaky", http.StatusInternalServerError)
	gateway.plan("refused", http.StatusBadRequest)
	c.ends(c.schedule("ann").ID, "SENT")
	c.ends(c.schedule("flaky").ID, "SENT")
	c.ends(c.schedule("refused").ID, "FAILED")
	c.schedule("later", `"delaySeconds":3600`)
	c.delete("/notifications/" + c.schedule("never", `"delaySeconds":3600`).ID).want(http.StatusOK)
	c.post("/notifications", "{").refused(http.StatusBadRequest, "invalid_json")

	until(t, "the counts are there", func() bool {
		jobs := s.metrics().Jobs
		return jobs.Sent == 2 && jobs.Failed == 1 && jobs.Pending == 1 && jobs.Cancelled == 1 && jobs.Processing == 0
	})
	m := s.metrics()
	require.False(t, m.Estimated)
	require.Zero(t, m.QueueLagSeconds, "nothing is due")
	outcomes := map[string]float64{}
	for _, p := range s.workers {
		text := s.probe(p).get("/metrics").want(http.StatusOK).body
		for _, outcome := range []string{"sent", "failed"} {
			outcomes[outcome] += value(t, text, `notifyq_worker_outcomes_total{outcome="`+outcome+`"}`)
		}
	}
	require.Equal(t, map[string]float64{"sent": 2, "failed": 1}, outcomes)
	text := s.probe(s.api).get("/metrics").want(http.StatusOK).body
	require.InDelta(t, 5, value(t, text, `notifyq_http_requests_total{code="201",method="POST",route="/notifications"}`), 0)
	require.InDelta(t, 1, value(t, text, `notifyq_http_requests_total{code="400",method="POST",route="/notifications"}`), 0)
	require.NotContains(t, text, "ann")
	var document struct{ OpenAPI string }
	s.probe(s.api).get("/openapi.json").want(http.StatusOK).into(&document)
	require.Regexp(t, `^3\.1`, document.OpenAPI)
	s.probe(s.api).get("/docs").want(http.StatusOK)
}
