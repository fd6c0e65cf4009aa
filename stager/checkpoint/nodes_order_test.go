package checkpoint

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// lateAgreements is a store that lists the agreements on what to restore late, as often as late says.
type lateAgreements struct {
	*mem.Backend
	late atomic.Int64
}

func (b *lateAgreements) List(ctx context.Context, prefix string) iter.Seq2[backends.Object, error] {
	if strings.HasPrefix(prefix, "nodes/restores/") && b.late.Add(-1) >= 0 {
		time.Sleep(20 * time.Second)
	}
	return b.Backend.List(ctx, prefix)
}

// A network failed while nodes read the round of two steps, and some of them knew that of the later
// step first. They took it for the older one. If all did, restore chose the older step; if some did,
// they dropped the newest checkpoint of the job, and its save was abandoned.
func TestCheckpointsAreReportedInTheOrderOfWriting(t *testing.T) {
	for _, late := range [][]int64{{0, 0}, {1, 0}, {0, 1}, {1, 1}, {2, 1}, {1, 2}} { // listings of each node
		for gap := range 6 {
			t.Run(fmt.Sprint(late, " ", gap, "s"), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					b := mem.New()
					stores := []*lateAgreements{{Backend: b}, {Backend: b}}
					g := joinedGang(t, b, 2, func(c *Config) { c.Store = newStore(stores[c.Node]) })
					g.save("1")
					g.waitFor(1)
					for n, times := range late {
						stores[n].late.Store(times)
					}
					g.save("2")
					time.Sleep(time.Duration(gap) * time.Second)
					g.save("3")
					time.Sleep(2 * time.Minute)
					if got := commits(b); !slices.Contains(got, stepDir(3, 0)) {
						t.Errorf("committed %v, want %s among them", got, stepDir(3, 0))
					}
					for n := range 2 {
						wantRestored(t, b, n, 3)
					}
				})
			})
		}
	}
}

// Node 0 had step 3 complete when node 1 was replaced, so nothing of it was saved. The trainers wrote
// step 2 and step 3 again, and node 0 took step 3 for one that was written before step 2.
func TestStepOfEarlierMembersIsWrittenAgain(t *testing.T) {
	for gap := range 6 {
		t.Run(fmt.Sprint(gap, "s"), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := mem.New()
				g := joinedGang(t, b, 2)
				g.save("1")
				g.waitFor(1)
				g.saveOn(0, g.dirs[0], "3")
				time.Sleep(10 * time.Second)
				g.newPod(1)
				time.Sleep(time.Minute)
				if err := os.RemoveAll(filepath.Join(g.dirs[0], "step-3")); err != nil {
					t.Fatal(err)
				}
				g.save("2")
				time.Sleep(time.Duration(gap) * time.Second)
				g.save("3")
				time.Sleep(2 * time.Minute)
				if got := commits(b); !slices.Contains(got, stepDir(3, 0)) {
					t.Errorf("committed %v, want %s among them", got, stepDir(3, 0))
				}
				for n := range 2 {
					wantRestored(t, b, n, 3)
				}
			})
		})
	}
}
