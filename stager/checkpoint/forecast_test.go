package checkpoint

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stager-dev/stager/backends/mem"
)

func TestWhatWouldBeLostIsForetold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		var log bytes.Buffer
		grace := 2 * time.Second
		reg := prometheus.NewRegistry()
		metrics := NewMetrics(reg)
		config := func(c *Config) { c.Grace, c.Metrics, c.Log = grace, metrics, slog.New(slog.NewTextHandler(&log, nil)) }
		slow := &hooked{Backend: b, onCreate: func(key string) {
			if strings.HasSuffix(key, "model.pt") {
				time.Sleep(3 * time.Second)
			}
		}}
		const words = "would be lost"
		u := newUploader(t, dir, slow, config)
		write(t, filepath.Join(dir, "checkpoint-1"), model("1"))
		if settled(t, u); !strings.Contains(log.String(), words) || !strings.Contains(log.String(), "needs=3s grace=2s") {
			t.Errorf("after a save of 3 s with 2 s of grace the log says\n%s", log.String())
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			want, ok := map[string]float64{"stager_checkpoint_forecast_seconds": 3, "stager_checkpoint_grace_seconds": 2}[f.GetName()]
			if got := f.GetMetric()[0].GetGauge().GetValue(); ok && got != want {
				t.Errorf("%s is %v, want %v", f.GetName(), got, want)
			}
		}
		u.Close()
		log.Reset()
		if newUploader(t, dir, b, config).Close(); !strings.Contains(log.String(), words) {
			t.Errorf("at the next start the log says\n%s", log.String())
		}
		log.Reset()
		grace = time.Minute
		if newUploader(t, dir, b, config).Close(); strings.Contains(log.String(), words) {
			t.Errorf("with enough grace the log says\n%s", log.String())
		}
	})
}
