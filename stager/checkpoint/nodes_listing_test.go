package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// saveUnlisted writes a step of a node, and returns a function that adds it to the listings of the
// volume.
func (g *gang) saveUnlisted(n int, step string) (list func()) {
	g.t.Helper()
	aside := g.t.TempDir()
	g.saveOn(n, aside, step)
	return func() {
		g.t.Helper()
		if err := os.Rename(filepath.Join(aside, "step-"+step), filepath.Join(g.dirs[n], "step-"+step)); err != nil {
			g.t.Fatal(err)
		}
	}
}

// The trainers write step 2 and step 3. On some nodes, a scan finds step 3 first, and the next one
// finds step 2. Those nodes took step 2 for newer: step 3 was abandoned, or restore chose step 2.
func TestStepThatIsListedLateIsNotNewer(t *testing.T) {
	for _, late := range [][]int{{0}, {1}, {0, 1}} {
		for _, busy := range []bool{false, true} { // a save is open meanwhile
			t.Run(fmt.Sprintf("late on nodes %v, busy %t", late, busy), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					b := mem.New()
					g := savedGang(t, b, 2)
					finish := func() {}
					if busy {
						open := g.keepOpen("1000")
						g.saveOn(0, g.dirs[0], "1000")
						time.Sleep(30 * time.Second)
						finish = func() { g.finish(open) }
					}
					time.Sleep(time.Nanosecond) // no node scans by itself in this instant
					var lists []func()
					for n := range 2 {
						if slices.Contains(late, n) {
							lists = append(lists, g.saveUnlisted(n, "2"))
						} else {
							g.saveOn(n, g.dirs[n], "2")
						}
					}
					g.save("3")
					for n := range 2 {
						if err := g.us[n].scan(false); err != nil {
							t.Fatal(err)
						}
					}
					for _, list := range lists {
						list()
					}
					time.Sleep(30 * time.Second)
					finish()
					time.Sleep(2 * time.Minute)
					if got := commits(b); !slices.Contains(got, stepDir(3, 0)) {
						t.Errorf("committed %v, want %s among them", got, stepDir(3, 0))
					}
					for n, u := range g.us {
						// The save of step 2 may have begun before step 3 was found, and then ends.
						if f := u.Status().Failed; slices.ContainsFunc(f, func(f Failed) bool { return f.Step != 2 }) {
							t.Errorf("node %d: got failed %+v, want none but step 2", n, f)
						}
						wantRestored(t, b, n, 3)
					}
				})
			})
		}
	}
}
