package checkpoint

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// Two nodes hold step 200 while step 100 is being saved. Their trainers go back and write step
// 150. Nodes ordered checkpoints by number, so step 200 was announced after step 150, and restore
// returned what the job had given up. The trainers may have restored with stager, or not.
func TestStepsBeforeRollbackAreSkipped(t *testing.T) {
	for _, restored := range []bool{true, false} {
		for _, slow := range []int{-1, 0, 1} { // a node that is a minute late with step 150
			t.Run(fmt.Sprintf("restored %t, slow node %d", restored, slow), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					b := mem.New()
					g := startGang(t, b, "job-a", 2)
					time.Sleep(time.Minute)
					g.save("50")
					g.waitFor(50)
					open := g.keepOpen("100")
					g.saveOn(0, g.dirs[0], "100")
					time.Sleep(time.Minute)
					g.save("200")
					time.Sleep(30 * time.Second)
					if restored {
						for n := range 2 {
							wantRestored(t, b, n, 50, func(c *RestoreConfig) { c.Step = 50 })
						}
					}
					for n := range 2 {
						if n != slow {
							g.saveOn(n, g.dirs[n], "150")
						}
					}
					time.Sleep(10 * time.Second)
					g.finish(open)
					time.Sleep(time.Minute)
					if slow >= 0 {
						g.saveOn(slow, g.dirs[slow], "150")
					}
					time.Sleep(3 * time.Minute)
					want := []string{stepDir(50, 0), stepDir(100, 0), stepDir(150, 0)}
					if slow == 0 { // it announces step 200 before it has step 150
						want = append(want, stepDir(200, 0))
					}
					if got := commits(b); !slices.Equal(got, want) {
						t.Errorf("committed %v, want %v", got, want)
					}
					wantRestored(t, b, 0, 150)
				})
			})
		}
	}
}

// The trainers restart in the same pods and write step 2 again. Node 1 has not seen the first
// writing complete, so the nodes' counts of writings differ. A restore starts a new count, so the
// step is saved.
func TestRestoreStartsNewCountOfWritings(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g, open := savedBehindOpen(t, b)
		g.finish(open)
		g.waitFor(2)
		g.saveOn(0, g.dirs[0], "3") // node 1 is killed before it has written its files
		time.Sleep(time.Minute)
		for n := range 2 {
			wantRestored(t, b, n, 2)
		}
		for n := range 2 {
			g.rewrite(n, "3", "3, again")
		}
		time.Sleep(3 * time.Minute)
		files, err := restoreOf(t, b, 3, AnyNode)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "step 3", files, together(2, "3, again"))
	})
}
