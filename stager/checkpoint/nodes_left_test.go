package checkpoint

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stager-dev/stager/backends/mem"
)

// leave ends the process of a node in order.
func (g *gang) leave(n int) {
	g.t.Helper()
	if err := g.us[n].Drain(g.t.Context(), Exit{}); err != nil {
		g.t.Fatal(err)
	}
	g.stop[n]()
	if err := g.us[n].Close(); err != nil {
		g.t.Fatal(err)
	}
}

// A node left the job, and another one still had a checkpoint to save. It waited for the part of
// the node that had left until its grace period was over, a minute, an hour or for good.
func TestNodesDoNotWaitForOneThatHasLeft(t *testing.T) {
	for _, nodes := range []int{2, 3} {
		for leaver := range nodes {
			t.Run(fmt.Sprintf("node %d of %d", leaver, nodes), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					g := savedGang(t, mem.New(), nodes)
					g.leave(leaver)
					for n := range nodes {
						if n != leaver {
							g.saveOn(n, g.dirs[n], "2")
						}
					}
					ended := make(chan error)
					for n, u := range g.us {
						if n != leaver {
							go func() { ended <- u.Drain(g.t.Context(), Exit{}) }()
						}
					}
					began, want := time.Now(), fmt.Sprintf("node %d has left the job", leaver)
					for range nodes - 1 {
						if err := <-ended; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "step 2") {
							t.Errorf("Drain: got %v, want an error that names step 2 and says %q", err, want)
						}
					}
					if took := time.Since(began); took > time.Minute {
						t.Errorf("Drain took %v, want at most a minute", took)
					}
				})
			})
		}
	}
}

// A container that is started again has left before. What it brings then is awaited.
func TestNodeThatComesBackTakesPart(t *testing.T) {
	for leaver := range 2 {
		t.Run(fmt.Sprintf("node %d", leaver), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				g := savedGang(t, mem.New(), 2)
				g.leave(leaver)
				g.start(leaver)
				open := g.keepOpenOn(leaver, "2")
				g.saveOn(1-leaver, g.dirs[1-leaver], "2")
				time.Sleep(2 * time.Minute) // longer than a node waits before it looks who has left
				g.finish(open)
				time.Sleep(10 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				for n, u := range g.us {
					if err := u.Wait(ctx, 2); err != nil {
						t.Errorf("node %d: got %v, want step 2 saved", n, err)
					}
				}
			})
		})
	}
}

// Metrics tell of how many nodes a job waits, and how many of its checkpoints are abandoned.
func TestMissingNodesAndAbandonedCheckpointsAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		metrics := NewMetrics(nil)
		g := savedGang(t, mem.New(), 2, func(c *Config) {
			if c.Node == 0 {
				c.Metrics = metrics
			}
		})
		output := g.us[0].cfg.Output
		check := func(when string, missing, abandoned float64) {
			t.Helper()
			if got := testutil.ToFloat64(metrics.missing.WithLabelValues(output)); got != missing {
				t.Errorf("%s: got %v missing nodes, want %v", when, got, missing)
			}
			if got := testutil.ToFloat64(metrics.abandoned.WithLabelValues(output)); got != abandoned {
				t.Errorf("%s: got %v abandoned checkpoints, want %v", when, got, abandoned)
			}
		}
		check("step 1 is saved", 0, 0)
		open := g.keepOpenOn(1, "2")
		g.saveOn(0, g.dirs[0], "2")
		time.Sleep(2 * time.Minute)
		check("node 1 writes step 2", 1, 0)
		g.finish(open)
		g.waitFor(2)
		time.Sleep(10 * time.Second)
		check("step 2 is saved", 0, 0)
		g.leave(1)
		g.saveOn(0, g.dirs[0], "3")
		if err := g.us[0].Drain(t.Context(), Exit{}); err == nil {
			t.Error("Drain: got no error, want one on step 3")
		}
		check("node 1 has left before step 3", 0, 1)
	})
}

// A node left the job while its heartbeat was in flight, and recorded nothing. The others waited for
// its part until their grace period was over.
func TestNodeLeavesDuringItsHeartbeat(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		beats := make(chan struct{})
		slow := &hooked{Backend: b, onCreate: func(key string) {
			if strings.HasSuffix(key, "members/000001.json") {
				select {
				case beats <- struct{}{}:
				default:
				}
				time.Sleep(time.Second)
			}
		}}
		g := savedGang(t, slow, 2)
		<-beats
		g.leave(1)
		g.saveOn(0, g.dirs[0], "2")
		within, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := g.us[0].Drain(within, Exit{}); err == nil || within.Err() != nil || !strings.Contains(err.Error(), "has left the job") {
			t.Errorf("got %v, want at once that node 1 has left the job", err)
		}
	})
}
