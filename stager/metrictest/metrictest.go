// Package metrictest reads metrics in tests.
package metrictest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// CounterSum returns the sum of the counters of a family over all labels, or 0 when there are
// none.
func CounterSum(t *testing.T, reg *prometheus.Registry, family string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != family {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}
