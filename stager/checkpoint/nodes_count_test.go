package checkpoint

import (
	"fmt"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// A job of two nodes returns with one. Node 0's part of step 2 was committed as the whole step,
// and so was step 3, which it had written without a snapshot.
func TestNodeAloneDoesNotCommitStepOfSeveral(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2)
		g.kill(1)
		g.saveOn(0, g.dirs[0], "2")
		time.Sleep(30 * time.Second)
		g.kill(0)
		g.saveOn(0, g.dirs[0], "3")
		time.Sleep(time.Second)
		for run := range 2 { // a restart changes nothing
			g.startAs(0, 0, 1)
			time.Sleep(2 * time.Minute)
			if r, _ := restoreNewest(t, b); r.Step != 1 {
				t.Errorf("run %d: restored step %d, want 1: steps 2 and 3 were never whole", run, r.Step)
			}
			if f := g.us[0].Status().Failed; run == 0 && (len(f) != 1 || f[0].Step != 2) {
				t.Errorf("got failed %+v, want step 2", f)
			}
			if run == 0 {
				g.end(0)
			}
		}
		g.saveOn(0, g.dirs[0], "4")
		time.Sleep(time.Minute)
		r, files := restoreNewest(t, b)
		if r.Step != 4 {
			t.Errorf("restored step %d, want 4", r.Step)
		}
		equal(t, "step 4", files, shardOf(0, "4"))
	})
}

// end ends the process of a single node.
func (g *gang) end(n int) {
	g.stop[n]()
	if err := g.us[n].Close(); err != nil {
		g.t.Fatal(err)
	}
}

// A job of one node returns with two, or its pod is replaced before a view existed. The snapshots
// of an earlier run are not combined with the files of this one.
func TestNodesDoNotSaveWhatAnEarlierRunHeld(t *testing.T) {
	for _, before := range []int{1, 2} {
		t.Run(fmt.Sprint(before, " before"), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := mem.New()
				g := &gang{t: t, b: b, job: "job-a", dirs: []string{t.TempDir(), t.TempDir()}, us: make([]*Uploader, 2), stop: make([]func(), 2)}
				pod := "a"
				g.more = []func(*Config){func(c *Config) {
					if c.Pod = pod; c.Nodes == 1 {
						c.When = When{Exit: true} // it takes snapshots and does not send them
					}
				}}
				g.startAs(0, 0, before)
				g.saveOn(0, g.dirs[0], "5")
				time.Sleep(time.Minute)
				if before == 1 {
					g.end(0)
				} else {
					g.kill(0)
				}
				pod = "b"
				g.start(0)
				g.start(1)
				time.Sleep(time.Minute)
				g.saveOn(1, g.dirs[1], "5")
				time.Sleep(time.Minute)
				_, files := restoreNewest(t, b)
				equal(t, "step 5", files, shardOf(1, "5"))
			})
		})
	}
}
