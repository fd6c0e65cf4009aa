package reference

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMetricsAreNamedByConvention(t *testing.T) {
	for name, m := range map[string]prometheus.Collector{
		"stager_test":       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "stager_test", Help: "Counts."}, []string{"a", "b"}),
		"stager_test_total": prometheus.NewGauge(prometheus.GaugeOpts{Name: "stager_test_total", Help: "Measures."}),
		"stager_mute":       prometheus.NewGauge(prometheus.GaugeOpts{Name: "stager_mute"}),
	} {
		if _, err := collected(func(reg prometheus.Registerer) { reg.MustRegister(m) }); err == nil || !strings.Contains(err.Error(), name+" is a ") {
			t.Errorf("%s: got %v, want an error that names it", name, err)
		}
	}
	got, err := collected(func(reg prometheus.Registerer) {
		reg.MustRegister(prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "stager_b_seconds", Help: `Time of "b".`}, []string{"op"}),
			prometheus.NewCounterVec(prometheus.CounterOpts{Name: "stager_a_bytes_total", Help: "Bytes."}, []string{"scheme", "op"}))
	})
	if err != nil || len(got) != 2 {
		t.Fatalf("got %v, %v, want two metrics", got, err)
	}
	if a, b := got[0], got[1]; a.kind != "counter" || a.unit() != "bytes" || strings.Join(a.labels, " ") != "scheme op" ||
		b.kind != "histogram" || b.unit() != "seconds" || b.help != `Time of "b".` {
		t.Errorf("got %+v and %+v, want a counter of bytes and a histogram of seconds", a, b)
	}
}
