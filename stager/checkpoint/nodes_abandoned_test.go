package checkpoint

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// The pod of node 1 is deleted in the middle of step 2. Step 2 is abandoned and appears in the
// status. Drain of node 0 returned an error even when step 3 was safe on all nodes.
func TestAbandonedStepIsErrorOnlyWhileNothingNewerIsSaved(t *testing.T) {
	for _, said := range []bool{false, true} {
		for _, newer := range []bool{false, true} {
			t.Run(fmt.Sprintf("commit %t, newer %t", said, newer), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					g := savedGang(t, mem.New(), 2)
					g.saveOn(0, g.dirs[0], "2")
					if said {
						if _, err := g.us[0].Commit(t.Context(), CommitRequest{Path: "step-2", Step: -1}); err != nil {
							t.Fatal(err)
						}
					}
					open := g.keepOpen("2")
					time.Sleep(time.Minute)
					if err := open.Close(); err != nil {
						t.Fatal(err)
					}
					g.newPod(1)
					time.Sleep(5 * time.Minute)
					if newer {
						g.save("3")
						g.waitFor(3)
					}
					if f := g.us[0].Status().Failed; len(f) != 1 || f[0].Step != 2 {
						t.Errorf("got failed %+v, want step 2", f)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					err := g.us[0].Drain(ctx, Exit{})
					if (err == nil) != newer || err != nil && !strings.Contains(err.Error(), "step 2") {
						t.Errorf("the end of node 0: got %v, want an error that names step 2: %t", err, !newer)
					}
				})
			})
		}
	}
}
