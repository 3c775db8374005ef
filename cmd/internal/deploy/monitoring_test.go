package deploy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []alert
	}
}

type alert struct {
	Alert, Expr, For string
	Labels           struct{ Severity string }
	Annotations      struct {
		Summary    string
		RunbookURL string `yaml:"runbook_url"`
	}
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	for _, group := range decode[ruleFile](t, read(t, "deploy/prometheus-alerts.yaml")).Groups {
		require.NotEmpty(t, group.Name)
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

const runbookURL = "https://github.com/notifyq/notifyq/blob/main/docs/runbook.md#"

func TestAlertsAreOfMetricsThatExistAndInTheRunbook(t *testing.T) {
	t.Parallel()
	exported, anchors := scraped(t), anchors(read(t, "docs/runbook.md"))
	seen := make(map[string]bool)
	for _, a := range alerts(t) {
		require.False(t, seen[a.Alert], "%s is there twice", a.Alert)
		seen[a.Alert] = true
		exported.check(t, a.Alert, a.Expr)
		pending, err := time.ParseDuration(a.For)
		require.NoError(t, err, a.Alert)
		require.Positive(t, pending, a.Alert)
		require.Contains(t, []string{"page", "ticket"}, a.Labels.Severity, a.Alert)
		require.NotEmpty(t, a.Annotations.Summary, a.Alert)
		require.Equal(t, runbookURL+strings.ToLower(a.Alert), a.Annotations.RunbookURL)
		require.Contains(t, anchors, strings.ToLower(a.Alert), "the runbook has nothing about it")
	}
	for _, anchor := range anchors {
		if strings.HasPrefix(anchor, "notifyq") {
			require.True(t, slices.ContainsFunc(alerts(t), func(a alert) bool { return strings.ToLower(a.Alert) == anchor }),
				"the runbook has %s, which no rule raises", anchor)
		}
	}
}

type dashboard struct {
	Title, UID string
	Templating struct {
		List []struct{ Name string }
	}
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ Expr, RefID string }
	}
}

func TestDashboardShowsEveryMetricAndNoOther(t *testing.T) {
	t.Parallel()
	exported := scraped(t)
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(read(t, "deploy/grafana-dashboard.json")), &d))
	ids, shown := make(map[int]bool), make(map[string]bool)
	for _, panel := range d.Panels {
		require.False(t, ids[panel.ID], "two panels have the id %d", panel.ID)
		ids[panel.ID] = true
		require.LessOrEqual(t, panel.GridPos.X+panel.GridPos.W, 24, panel.Title)
		if panel.Type != "row" {
			require.NotEmpty(t, panel.Targets, panel.Title)
		}
		for _, target := range panel.Targets {
			for _, name := range exported.check(t, panel.Title, target.Expr) {
				shown[name] = true
			}
		}
	}
	for name := range exported {
		base := strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")
		if strings.HasPrefix(name, "notifyq_") && !shown[name] && !shown[base+"_bucket"] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// What the database says is the same in every process: added up it would be too much.
func TestValuesOfTheDatabaseAreNotAddedUp(t *testing.T) {
	t.Parallel()
	var exprs []string
	for _, a := range alerts(t) {
		exprs = append(exprs, a.Expr)
	}
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(read(t, "deploy/grafana-dashboard.json")), &d))
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	checked := 0
	for _, expr := range exprs {
		for _, name := range []string{"notifyq_jobs{", "notifyq_queue_lag", "notifyq_outbox_"} {
			if strings.Contains(expr, name) {
				require.True(t, strings.HasPrefix(expr, "max"), expr)
				checked++
			}
		}
	}
	require.Greater(t, checked, 10)
}
