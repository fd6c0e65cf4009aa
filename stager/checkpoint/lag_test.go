package checkpoint

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stager-dev/stager/backends/mem"
)

// An outside observer knows when the trainer declared a checkpoint complete, and polls the store
// for its COMMIT. At every moment the metric matches the observation within a second, however
// slow the store is.
func TestLagMatchesObservation(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		reg := prometheus.NewRegistry()
		slow := &hooked{Backend: b, onCreate: func(key string) {
			if strings.HasSuffix(key, "model.pt") {
				time.Sleep(25 * time.Second)
			}
		}}
		u := newUploader(t, dir, slow, func(c *Config) { c.Metrics = NewMetrics(reg) })
		ctx, cancel := context.WithCancel(t.Context())
		hints, ended := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(ended)
			u.run(ctx, hints)
		}()
		var said time.Time // of the oldest one that is not in the store
		worst, longest := 0.0, 0.0
		for second := range 300 {
			if step := second / 100; second%100 == 7 {
				name := filepath.Join(dir, "checkpoint-"+string(rune('1'+step)))
				write(t, name+".tmp", model("x"))
				if err := os.Rename(name+".tmp", name); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(name, markerName), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				said = time.Now()
				hints <- struct{}{}
			}
			synctest.Wait()
			if len(commits(b)) == (second+93)/100 {
				said = time.Time{}
			}
			want := 0.0
			if !said.IsZero() {
				want = time.Since(said).Seconds()
			}
			got := gathered(t, reg, "stager_checkpoint_lag_seconds")
			worst, longest = max(worst, math.Abs(got-want)), max(longest, want)
			time.Sleep(time.Second)
		}
		if worst > 1 || longest < 20 || len(commits(b)) != 3 {
			t.Errorf("the metric was wrong by %.1f s, want at most 1; the watcher saw %.0f s and commits %v", worst, longest, commits(b))
		}
		cancel()
		<-ended
	})
}

func gathered(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("%s is not there", name)
	return 0
}
