package metrics

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/notifyq/notifyq"
)

// overview is the JSON form.
type overview struct {
	Jobs            jobCounts     `json:"jobs"`
	QueueLagSeconds float64       `json:"queueLagSeconds"`
	Webhooks        webhookCounts `json:"webhooks"`
	Estimated       bool          `json:"estimated"`
}

type jobCounts struct {
	Pending      int64 `json:"pending"`
	Processing   int64 `json:"processing"`
	Sent         int64 `json:"sent"`
	Failed       int64 `json:"failed"`
	DeadLettered int64 `json:"deadLettered"`
	Cancelled    int64 `json:"cancelled"`
}

type webhookCounts struct {
	Pending   int64 `json:"pending"`
	Delivered int64 `json:"delivered"`
	GivenUp   int64 `json:"givenUp"` // or held back, since their endpoint is disabled
}

// maxAge is how old the values may be. While the database answers none is older than a pause, the sample before it and the
// one that runs: 50 s.
const maxAge = time.Minute

// serveJSON answers a person or a script, who often has just done something and wants to see it: where a sample is cheap it
// waits for a new one. Age tells how old the values are. Few look at it, so that what an outage has left behind is not given
// out for long.
func (m *Metrics) serveJSON(w http.ResponseWriter, r *http.Request) {
	last := m.sampler.fresh(r.Context())
	switch {
	case last == nil:
		unavailable(w, r, "The database has not answered yet.")
		return
	case time.Since(last.at) > maxAge:
		unavailable(w, r, "The database has not answered for a while.")
		return
	}
	jobs := last.stats.Jobs
	w.Header().Set("Age", strconv.Itoa(int(time.Since(last.at).Seconds())))
	text, _ := json.Marshal(overview{ // numbers and booleans
		Jobs: jobCounts{
			Pending: jobs[notifyq.StatusPending], Processing: jobs[notifyq.StatusProcessing], Sent: jobs[notifyq.StatusSent],
			Failed: jobs[notifyq.StatusFailed], DeadLettered: jobs[notifyq.StatusDeadLettered],
			Cancelled: jobs[notifyq.StatusCancelled],
		},
		QueueLagSeconds: last.stats.QueueLag.Seconds(),
		Webhooks: webhookCounts{
			Pending: last.stats.Outbox.Pending, Delivered: last.stats.Outbox.Published, GivenUp: last.stats.Outbox.Parked,
		},
		Estimated: last.stats.Estimated || last.stats.Outbox.Estimated,
	})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n'))
}

// prefersJSON reports whether JSON is asked for by name, and nothing that Prometheus asks for is wanted more. Who takes
// anything gets the text.
func prefersJSON(accept []string) bool {
	var asked, text float64
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		name, parameters, _ := strings.Cut(part, ";")
		q := quality(parameters)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "application/json":
			asked = max(asked, q)
		case "text/plain", "application/openmetrics-text", "text/*":
			text = max(text, q)
		}
	}
	return asked > 0 && asked >= text
}

func quality(parameters string) float64 {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
			return q
		}
		return 0
	}
	return 1
}
