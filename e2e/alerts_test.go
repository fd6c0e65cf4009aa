package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

const (
	alertRules = "../deploy/prometheus/rules.yaml"
	dashboard  = "../deploy/grafana/stager.json"
	alertsPage = "../docs/operations/alerts.md"
)

// alert is a rule of Prometheus.
type alert struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	text, err := os.ReadFile(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct{ Rules []alert }
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil && !strings.Contains(err.Error(), "unknown field") {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// panelQueries returns the queries of the dashboard by the title of their panel.
func panelQueries(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title, Type, Description string
			Targets                  []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	queries := make(map[string][]string)
	for _, p := range board.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q has no description or no query", p.Title)
		}
		for _, target := range p.Targets {
			queries[p.Title] = append(queries[p.Title], target.Expr)
		}
	}
	return queries
}

// metricLabels returns the labels of each metric, from the page that is generated from the code.
func metricLabels(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	labels := make(map[string][]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `(stager_[a-z_]+)` \\| (\\w+) \\|[^|]*\\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		of := strings.FieldsFunc(row[3], func(r rune) bool { return r == ',' || r == ' ' })
		if labels[row[1]] = of; row[2] == "histogram" {
			labels[row[1]+"_bucket"] = append(of, "le")
		}
	}
	return labels
}

var (
	metricName = regexp.MustCompile(`\bstager_[a-z_]+\b`)
	matchers   = regexp.MustCompile(`(stager_[a-z_]+)\{([^}]*)\}`)
	grouped    = regexp.MustCompile(`\bby \(([^)]*)\)`)
	// targetLabels are those that Prometheus adds, for the pod that it collects from.
	targetLabels = []string{"namespace", "pod", "instance"}
)

// unknownParts returns the metrics and labels of a query that no stager exports.
func unknownParts(query string, known map[string][]string) (unknown []string) {
	var of []string
	for _, name := range metricName.FindAllString(query, -1) {
		labels, ok := known[name]
		if !ok {
			unknown = append(unknown, name)
		}
		of = append(of, labels...)
	}
	for _, m := range matchers.FindAllStringSubmatch(query, -1) {
		for _, pair := range strings.Split(m[2], ", ") {
			label := regexp.MustCompile(`^\w+`).FindString(pair)
			if !slices.Contains(known[m[1]], label) && !slices.Contains(targetLabels, label) {
				unknown = append(unknown, m[1]+"{"+label+"}")
			}
		}
	}
	for _, g := range grouped.FindAllStringSubmatch(query, -1) {
		for _, label := range strings.Split(g[1], ", ") {
			if !slices.Contains(of, label) && !slices.Contains(targetLabels, label) {
				unknown = append(unknown, "by "+label)
			}
		}
	}
	return unknown
}

func TestAlertsAndDashboardUseMetricsThatExist(t *testing.T) {
	known := metricLabels(t)
	if len(known) < 30 {
		t.Fatalf("read %d metrics from the page, want at least 30", len(known))
	}
	for _, a := range alerts(t) {
		for _, u := range unknownParts(a.Expr, known) {
			t.Errorf("alert %s uses %s, which does not exist", a.Alert, u)
		}
	}
	for title, queries := range panelQueries(t) {
		for _, q := range queries {
			for _, u := range unknownParts(q, known) {
				t.Errorf("panel %q uses %s, which does not exist", title, u)
			}
		}
	}
	for _, query := range []string{"stager_nothing", `stager_window_epoch{kind="x"}`, "sum by (scheme) (stager_window_epoch)"} {
		if unknownParts(query, known) == nil {
			t.Errorf("%s passed, want it refused", query)
		}
	}
}

func TestAlertsHaveTheirSectionOfTheManual(t *testing.T) {
	text, err := os.ReadFile(alertsPage)
	if err != nil {
		t.Fatal(err)
	}
	var sections, names []string
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		sections = append(sections, m[1])
	}
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		if a.Labels["severity"] == "" || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has no severity, summary or description", a.Alert)
		}
	}
	if !slices.Equal(sections, names) {
		t.Errorf("sections %q, want those of the rules, %q", sections, names)
	}
}

// firing has series for each alert with which it fires, and some with which it does not. Values are
// those of promtool's tests, one a minute: 0+6x60 is 0, 6, 12 … and so on for an hour.
var firing = map[string]struct{ fires, silent map[string]string }{
	"StagerReadersWait": {
		map[string]string{`stager_window_wait_seconds_total{input="in", cause="backend"}`: "0+6x60"},
		map[string]string{`stager_window_wait_seconds_total{input="in", cause="backend"}`: "0+2x60"},
	},
	"StagerSourceDamaged": {
		map[string]string{`stager_window_fetch_failures_total{input="in", kind="corrupt"}`: "0x30 1x30"},
		map[string]string{`stager_window_fetch_failures_total{input="in", kind="other"}`: "0+1x60"},
	},
	"StagerShardsSkipped": {
		map[string]string{`stager_window_skipped_total{input="in"}`: "0x30 1x30"},
		map[string]string{`stager_window_skipped_total{input="in"}`: "0x60"},
	},
	"StagerShardsDeliveredAgain": {
		map[string]string{`stager_window_redelivered_total{input="in"}`: "0+2x60", `stager_window_delivered_total{input="in"}`: "0+10x60"},
		map[string]string{`stager_window_redelivered_total{input="in"}`: "0+2x60", `stager_window_delivered_total{input="in"}`: "0+50x60"},
	},
	"StagerCheckpointLags": {
		map[string]string{`stager_checkpoint_lag_seconds{output="out"}`: "0+60x60"},
		map[string]string{`stager_checkpoint_lag_seconds{output="out"}`: "0+60x20 0x40"},
	},
	"StagerDrainTooShort": {
		map[string]string{`stager_checkpoint_forecast_seconds{output="out"}`: "700x60", `stager_checkpoint_grace_seconds{output="out"}`: "600x60"},
		map[string]string{`stager_checkpoint_forecast_seconds{output="out"}`: "700x60", `stager_checkpoint_grace_seconds{output="out"}`: "0x60"},
	},
	"StagerUploadsFail": {
		map[string]string{`stager_checkpoint_failures_total{output="out"}`: "0+1x60"},
		map[string]string{`stager_checkpoint_failures_total{output="out"}`: "0x10 3x50"},
	},
	"StagerCheckpointMissed": {
		map[string]string{`stager_checkpoint_missed_total{output="out", reason="removed"}`: "0x30 1x30"},
		map[string]string{`stager_checkpoint_missed_total{output="out", reason="superseded"}`: "0+1x60"},
	},
	"StagerFilesNotSaved": {
		map[string]string{`stager_checkpoint_not_saved_files{output="out"}`: "0x30 2x30"},
		map[string]string{`stager_checkpoint_not_saved_files{output="out"}`: "0x30 2x5 0x25"},
	},
	"StagerNodesMissing": {
		map[string]string{`stager_checkpoint_missing_nodes{output="out"}`: "0x30 1x30"},
		map[string]string{`stager_checkpoint_missing_nodes{output="out"}`: "0x30 1x10 0x20"},
	},
	"StagerStoreFails": {
		map[string]string{`stager_store_requests_total{scheme="s3", op="get", result="unavailable"}`: "0+60x60", `stager_store_requests_total{scheme="s3", op="get", result="ok"}`: "0+100x60"},
		map[string]string{`stager_store_requests_total{scheme="s3", op="get", result="not-exist"}`: "0+60x60", `stager_store_requests_total{scheme="s3", op="get", result="ok"}`: "0+100x60"},
	},
	"StagerClientsLeak": {
		map[string]string{`stager_api_refused_total{listener="socket", what="connection"}`: "0+1x60"},
		map[string]string{`stager_api_refused_total{listener="socket", what="connection"}`: "0x30 1x30"},
	},
	"StagerWebhookCertificateExpires": { // time begins at 0
		map[string]string{`stager_webhook_certificate_expires_seconds`: "1000000x90"},
		map[string]string{`stager_webhook_certificate_expires_seconds`: "5000000x90"},
	},
	"StagerWebhookCannotSync": {
		map[string]string{`stager_webhook_sync_failures_total{what="plans"}`: "0+1x60"},
		map[string]string{`stager_webhook_sync_failures_total{what="plans"}`: "0x10 1x50"},
	},
	"StagerWebhookLate": {
		map[string]string{`stager_webhook_requests_total{outcome="late"}`: "0+1x60"},
		map[string]string{`stager_webhook_requests_total{outcome="refused"}`: "0+1x60"},
	},
}

func TestAlertsFire(t *testing.T) {
	if _, err := servers.Promtool(); err != nil {
		live.Require(t, "prometheus", err)
	}
	dir := t.TempDir()
	rules, err := filepath.Abs(alertRules)
	if err != nil {
		t.Fatal(err)
	}
	known := metricLabels(t)
	var all []map[string]any
	for _, a := range alerts(t) {
		series, ok := firing[a.Alert]
		if !ok {
			t.Errorf("no series shows that %s fires", a.Alert)
		}
		for fires, of := range map[bool]map[string]string{true: series.fires, false: series.silent} {
			var input []map[string]string
			for name, values := range of {
				if unknown := unknownParts(name, known); unknown != nil {
					t.Errorf("series of %s: %v does not exist", a.Alert, unknown)
				}
				input = append(input, map[string]string{"series": name, "values": values})
			}
			samples := []map[string]any{}
			if fires {
				samples = append(samples, map[string]any{"labels": "{}", "value": 1})
			}
			all = append(all, map[string]any{
				"name": fmt.Sprintf("%s fires: %v", a.Alert, fires), "interval": "1m", "input_series": input,
				"promql_expr_test": []map[string]any{{
					"expr":      fmt.Sprintf("count(ALERTS{alertname=%q, alertstate=\"firing\"})", a.Alert),
					"eval_time": "61m", "exp_samples": samples,
				}},
			})
		}
	}
	write := func(name string, v any) string {
		text, err := yaml.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	promtool(t, "test", "rules", write("test.yaml", map[string]any{"rule_files": []string{rules}, "evaluation_interval": "1m", "tests": all}))

	var records []map[string]string // Prometheus must understand the dashboard's queries
	variables := strings.NewReplacer("$namespace", ".*", "$pod", ".*", "$__rate_interval", "5m")
	for _, queries := range panelQueries(t) {
		for _, q := range queries {
			records = append(records, map[string]string{"record": fmt.Sprintf("panel:%d", len(records)), "expr": variables.Replace(q)})
		}
	}
	promtool(t, "check", "rules", rules, write("panels.yaml", map[string]any{"groups": []map[string]any{{"name": "panels", "rules": records}}}))
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd, err := servers.Promtool(args...)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
