package reference

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager"
	"github.com/stager-dev/stager/stager/admission"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/window"
)

// metric describes a family of metrics.
type metric struct {
	name, kind, help string
	labels           []string
}

// collecting is a Registerer that keeps the descriptions of what is registered.
type collecting struct{ metrics []metric }

// description is how a prometheus.Desc prints itself, which has no other way to its fields.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*"),.* constLabels: \{\}, variableLabels: \{([^}]*)\}`)

func (c *collecting) Register(collector prometheus.Collector) error {
	kind := "gauge"
	switch collector.(type) {
	case prometheus.Gauge: // which is also a Counter
	case *prometheus.CounterVec, prometheus.Counter:
		kind = "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		kind = "histogram"
	}
	described := make(chan *prometheus.Desc, 1) // a family each
	collector.Describe(described)
	text := (<-described).String()
	found := description.FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("cannot read the description of a metric: %s", text)
	}
	help, err := strconv.Unquote(found[2])
	if err != nil {
		return err
	}
	m := metric{name: found[1], kind: kind, help: help}
	if found[3] != "" {
		m.labels = strings.Split(found[3], ",")
	}
	c.metrics = append(c.metrics, m)
	return nil
}

func (c *collecting) MustRegister(collectors ...prometheus.Collector) {
	for _, collector := range collectors {
		if err := c.Register(collector); err != nil {
			panic(err)
		}
	}
}

func (c *collecting) Unregister(prometheus.Collector) bool { return false }

// collected returns the metrics that a function registers, in the order of their names. It returns
// an error for one without a type that its name ends in, or without a meaning.
func collected(register ...func(prometheus.Registerer)) ([]metric, error) {
	var c collecting
	for _, r := range register {
		r(&c)
	}
	slices.SortFunc(c.metrics, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	var errs []error
	for _, m := range c.metrics {
		if m.help == "" || strings.HasSuffix(m.name, "_total") != (m.kind == "counter") {
			errs = append(errs, fmt.Errorf("%s is a %s with the meaning %q: only the names of counters end in _total", m.name, m.kind, m.help))
		}
	}
	return c.metrics, errors.Join(errs...)
}

// unit returns the unit of a metric, by its name.
func (m metric) unit() string {
	name := strings.TrimSuffix(m.name, "_total")
	for _, unit := range []string{"seconds", "bytes"} {
		if strings.HasSuffix(name, "_"+unit) {
			return unit
		}
	}
	return ""
}

const metricsIntro = `# Metrics

stager exports these Prometheus metrics. A running ` + "`stager run` serves them at `/metrics` of `--listen`" + ` and of its socket, the webhook at
` + "`/metrics` of `--probes`" + `. A metric without a unit is a number.

[Alerts](../operations/alerts.md) says which of them to alert on.
`

// metricsPage returns the page of the metrics.
func metricsPage() (string, error) {
	var b strings.Builder
	b.WriteString(generated + metricsIntro)
	for _, section := range []struct {
		title    string
		register func(prometheus.Registerer)
	}{
		{"Windows", func(reg prometheus.Registerer) { window.NewMetrics(reg) }},
		{"Checkpoints and other outputs", func(reg prometheus.Registerer) { checkpoint.NewMetrics(reg) }},
		{"Stores", func(reg prometheus.Registerer) { backends.NewMetrics(reg) }},
		{"API", func(reg prometheus.Registerer) { api.NewMetrics(reg) }},
		{"Process", stager.RegisterProcessMetrics},
		{"Webhook", func(reg prometheus.Registerer) { admission.NewMetrics(reg, func() time.Time { return time.Time{} }) }},
	} {
		metrics, err := collected(section.register)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n## %s\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n", section.title)
		for _, m := range metrics {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, m.unit(), strings.Join(m.labels, ", "), markdown(m.help))
		}
	}
	return b.String(), nil
}
