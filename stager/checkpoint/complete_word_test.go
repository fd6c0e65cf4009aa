package checkpoint

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/metrictest"
)

// logbook records the log of an Uploader.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) has(line string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.text.String(), line)
}

// Regression: a provisional checkpoint was logged and counted as safe, although restore skips it
// while an older one has other files.
func TestProvisionalCheckpointIsNotReportedSafe(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		for name, signed := range map[string]bool{"marker": true, "quiet": false} {
			t.Run(fmt.Sprint(nodes, " nodes, ", name), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					var logs [2]logbook
					var regs [2]*prometheus.Registry
					g := &gang{t: t, b: mem.New(), job: "job-a", us: make([]*Uploader, nodes), stop: make([]func(), nodes)}
					for n := range nodes {
						regs[n] = prometheus.NewRegistry()
						g.dirs = append(g.dirs, t.TempDir())
						g.more = []func(*Config){func(c *Config) {
							c.Log, c.Metrics = slog.New(slog.NewTextHandler(io.MultiWriter(&logs[n], t.Output()), nil)), NewMetrics(regs[n])
						}}
						g.startAs(n, n, nodes)
					}
					time.Sleep(time.Minute)
					for n, dir := range g.dirs {
						write(t, filepath.Join(dir, "step-1"), shardOf(n, "1"))
						if signed {
							write(t, filepath.Join(dir, "step-1"), map[string]string{markerName: ""})
						}
					}
					time.Sleep(time.Minute)
					g.waitFor(1)
					for n, u := range g.us {
						safe, provisional := logs[n].has(`msg="a checkpoint is safe"`), logs[n].has(`msg="a checkpoint is saved, provisional"`)
						if safe != signed || provisional == signed {
							t.Errorf("node %d: got logged as safe %t, as provisional %t, want %t, %t", n, safe, provisional, signed, !signed)
						}
						counted, guessed := metrictest.CounterSum(t, regs[n], "stager_checkpoint_committed_total"), metrictest.CounterSum(t, regs[n], "stager_checkpoint_provisional_total")
						if counted+guessed != 1 || (counted == 1) != signed {
							t.Errorf("node %d: got %v committed and %v provisional, want 1 of them", n, counted, guessed)
						}
						if c := u.Status().Committed; c == nil || c.Provisional == signed {
							t.Errorf("node %d: got the status %+v, want provisional %t", n, c, !signed)
						}
					}
				})
			})
		}
	}
}
