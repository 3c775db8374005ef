package deploy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// Labels that a scrape adds, metrics that it makes, and labels of ours whose values depend on what is asked.
var (
	labelsOfPrometheus  = []string{"job", "instance", "namespace"}
	metricsOfPrometheus = []string{"up"}
	openLabels          = []string{"route", "code", "method"}
)

// withVariables puts something in the place of what Grafana does.
func withVariables(expr string) string {
	return strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*").Replace(expr)
}

// check parses an expression as Prometheus does, and finds the metrics, labels and values in it that nothing exports.
func (r registry) check(t *testing.T, where, expr string) (used []string) {
	t.Helper()
	parsed, err := parser.ParseExpr(withVariables(expr))
	require.NoError(t, err, where)
	var grouped []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			used = append(used, n.Name)
			r.checkSelector(t, where, n)
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				grouped = append(grouped, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	require.NotEmpty(t, used, "%s: %s", where, expr)
	for _, label := range grouped {
		known := slices.Contains(labelsOfPrometheus, label) ||
			slices.ContainsFunc(used, func(name string) bool { return r[name][label] != nil })
		require.True(t, known, "%s: none of %v has a label %s", where, used, label)
	}
	return used
}

func (r registry) checkSelector(t *testing.T, where string, s *parser.VectorSelector) {
	t.Helper()
	known := r[s.Name] != nil || slices.Contains(metricsOfPrometheus, s.Name)
	require.True(t, known, "%s: there is no metric %s", where, s.Name)
	for _, m := range s.LabelMatchers {
		if m.Name == labels.MetricName || slices.Contains(labelsOfPrometheus, m.Name) {
			continue
		}
		require.Contains(t, r[s.Name], m.Name, "%s: %s has no such label", where, s.Name)
		if slices.Contains(openLabels, m.Name) {
			continue
		}
		wanted := []string{m.Value}
		if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
			wanted = strings.Split(m.Value, "|")
		}
		for _, value := range wanted {
			require.Contains(t, r[s.Name][m.Name], value, "%s: %s has no such %s", where, s.Name, m.Name)
		}
	}
}
