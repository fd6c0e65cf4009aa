package backends_test

import (
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// Retried requests are counted by the kind of error.
func TestRetriesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := newBench(backends.Options{Metrics: backends.NewMetrics(reg)})
		b.mem.Put("k", []byte("x"))
		b.faults.Add(conformance.Stat, conformance.Fail(backends.Throttled), conformance.Fail(backends.Throttled))
		if _, err := b.Stat(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "stager_store_retries_total" {
				if got := f.GetMetric()[0].GetCounter().GetValue(); got != 2 {
					t.Errorf("got %v, want 2 retries", got)
				}
				return
			}
		}
		t.Error("there is no stager_store_retries_total")
	})
}
