package window

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Skipped positions are counted, because training continues without them.
func TestSkippedPositionsAreCounted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := newBench(t, Config{Items: items(2, 10), Size: 20, Epochs: 1, OnBad: BadSkip, Metrics: NewMetrics(reg)})
		b.fetcher.script[1] = []error{ErrGone}
		b.take(1000, map[seq]int{})
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "stager_window_skipped_total" {
				if got := f.GetMetric()[0].GetCounter().GetValue(); got != 1 {
					t.Errorf("got %v, want 1 skipped", got)
				}
				return
			}
		}
		t.Error("there is no stager_window_skipped_total")
	})
}
