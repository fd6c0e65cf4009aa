package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

func TestForecastReportsLoss(t *testing.T) {
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

// A checkpoint takes 20 s, and the grace period is 5 s. That is logged when the previous
// checkpoint is saved. The end of the grace period interrupts the upload, the previous step is
// restored, and the next start resumes the interrupted upload.
func TestGracePeriodTooShortIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		var log bytes.Buffer
		var sent []string
		slow := &hooked{Backend: b, onCreate: func(key string) {
			if strings.HasSuffix(key, ".bin") {
				sent = append(sent, path.Base(key))
				time.Sleep(time.Second)
			}
		}}
		config := func(c *Config) {
			c.Grace, c.Log = 5*time.Second, slog.New(slog.NewTextHandler(&log, nil))
			c.Store = backends.NewStore(slow, "mem://test", backends.Options{Connections: 1})
		}
		large := func(step string) map[string]string {
			files := make(map[string]string)
			for i := range 20 {
				files[fmt.Sprintf("%02d.bin", i)] = fmt.Sprint("of ", step, " file ", i)
			}
			return files
		}
		u := newUploader(t, dir, b, config)
		write(t, filepath.Join(dir, "checkpoint-1"), large("1"))
		settled(t, u)
		if said := log.String(); !strings.Contains(said, "would be lost") || !strings.Contains(said, "needs=20s grace=5s") {
			t.Errorf("when step 1 was saved the log says\n%s", said)
		}
		write(t, filepath.Join(dir, "checkpoint-2"), large("2"))
		sent = nil
		ctx, cancel := context.WithTimeout(t.Context(), u.cfg.Grace)
		defer cancel()
		if err := u.Drain(ctx, Exit{Gone: true, Success: true}); err == nil || !strings.Contains(err.Error(), "step 2 (checkpoint-2) is not safe") {
			t.Errorf("the end says %v, want that step 2 is not safe", err)
		}
		if r, _ := restoreNewest(t, b); r.Step != 1 {
			t.Errorf("step %d is restored, want the one before", r.Step)
		}
		u.Close()
		arrived := len(sent)
		sent = nil
		u = newUploader(t, dir, b, config)
		pass(t, u)
		// The state of the request in progress is unknown.
		if again := arrived + len(sent) - 20; again < 0 || again > 1 || arrived < 4 {
			t.Errorf("after %d of 20 files had begun %d were sent: %q", arrived, len(sent), sent)
		}
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, large("2"))
	})
}

// A checkpoint that fits into the burst of the bandwidth limit is fast. The forecast for the next
// one, which is larger, was that it should be safe in time, and it was lost.
func TestForecastKnowsBandwidthLimit(t *testing.T) {
	const large = 4 << 20
	for _, tt := range []struct {
		name   string
		limit  rate.Limit
		first  int // bytes of the first checkpoint; 0: there is none
		frozen bool
		want   string
	}{
		{"too low", 64 << 10, 128 << 10, false, "would be lost"},
		{"too low for the first", 64 << 10, 0, false, "would be lost"},
		{"high enough", 1 << 20, 128 << 10, false, "should be safe in time"},
		{"unlimited", rate.Inf, 128 << 10, false, "should be safe in time"},
		{"too low, but most is there", 64 << 10, large, true, "should be safe in time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				slow := &hooked{Backend: b, onCreate: func(string) { time.Sleep(10 * time.Millisecond) }}
				var log bytes.Buffer
				u := newUploader(t, dir, slow, func(c *Config) {
					c.Log = slog.New(slog.NewTextHandler(&log, nil))
					c.Store = backends.NewStore(slow, "mem://test", backends.Options{Bandwidth: rate.NewLimiter(tt.limit, 256<<10)})
				})
				save := func(step int64, bytes int) {
					name := fmt.Sprint("step-", step)
					text := name
					if tt.frozen {
						text = "frozen"
					}
					write(t, filepath.Join(dir, name), map[string]string{"w": strings.Repeat(text, bytes/len(text)), "step": name})
					if _, err := u.Commit(t.Context(), CommitRequest{Path: name, Step: -1}); err != nil {
						t.Fatal(err)
					}
				}
				if tt.first > 0 {
					save(1, tt.first)
					pass(t, u)
				}
				if tt.frozen { // the second is the first that need not be sent
					save(2, large)
					pass(t, u)
				}
				save(3, large)
				log.Reset()
				within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				err := u.Drain(within, Exit{Gone: true})
				if lost := tt.want == "would be lost"; (err != nil) != lost {
					t.Errorf("the drain ends with %v, want an error: %t", err, lost)
				}
				first, _, _ := strings.Cut(log.String()[strings.Index(log.String(), "the newest checkpoint"):], "\n")
				if !strings.Contains(first, tt.want) {
					t.Errorf("got %s, want that it %s", first, tt.want)
				}
			})
		})
	}
}
