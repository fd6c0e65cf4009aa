package checkpoint

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// The evidence of a step of several nodes combines that of all nodes. Regression: quiet periods
// alone had completed a step with files of torch.distributed.checkpoint. It counted as final, as
// if the completion file of all ranks existed.
func TestEvidenceOfSeveralNodes(t *testing.T) {
	for name, c := range map[string]struct {
		first, second map[string]string // by node
		provisional   bool
		evidence      string
	}{
		"sign for all nodes": {
			map[string]string{"__0_0.distcp": "0", ".metadata": "pickle."},
			map[string]string{"__1_0.distcp": "1"},
			false, "sign .metadata",
		},
		"sign for all nodes, announced by the second": {
			map[string]string{"__0_0.distcp": "0"},
			map[string]string{"__1_0.distcp": "1", ".metadata": "pickle."},
			false, "sign of node 1",
		},
		"metadata of each rank": {
			map[string]string{"__0_0.distcp": "0", "__0.metadata": "pickle."},
			map[string]string{"__1_0.distcp": "1", "__1.metadata": "pickle."},
			true, "quiet 10s",
		},
		"quiet on each node": {
			map[string]string{"rank0.pt": zipped(t, "0")},
			map[string]string{"rank1.pt": zipped(t, "1")},
			true, "quiet 10s",
		},
		"marker on each node": {
			map[string]string{"rank0.pt": "0", markerName: ""},
			map[string]string{"rank1.pt": "1", markerName: ""},
			false, "marker",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := mem.New()
				g := joinedGang(t, b, 2)
				want := make(map[string]string)
				for n, files := range []map[string]string{c.first, c.second} {
					data, signs := make(map[string]string), make(map[string]string)
					for p, text := range files {
						if p == markerName || filepath.Ext(p) == ".metadata" {
							signs[p] = text
						} else {
							data[p] = text
						}
					}
					write(t, filepath.Join(g.dirs[n], "step-1"), data)
					write(t, filepath.Join(g.dirs[n], "step-1"), signs)
					maps.Copy(want, files)
				}
				delete(want, markerName)
				time.Sleep(time.Minute)
				g.waitFor(1)
				got := commitOf(t, b, 1)
				if got.Provisional != c.provisional || got.Group == nil || got.Group.Provisional != c.provisional || got.Evidence != c.evidence {
					t.Errorf("got evidence %q, provisional %v, group %+v, want %q, %v", got.Evidence, got.Provisional, got.Group, c.evidence, c.provisional)
				}
				_, files := restoreNewest(t, b)
				equal(t, "restored", files, want)
			})
		})
	}
}

// A commit by the trainer on one node covers the files of that node. If the completion file of
// all ranks is missing, it does not complete the files of other nodes at once.
func TestCommitOfOneNodeIsNoSignForAll(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := joinedGang(t, b, 2)
		write(t, filepath.Join(g.dirs[0], "step-1"), map[string]string{"__0_0.distcp": "0"})
		write(t, filepath.Join(g.dirs[1], "step-1"), map[string]string{"__1_0.distcp": "1"})
		if _, err := g.us[0].Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		g.waitFor(1)
		if got := commitOf(t, b, 1); !got.Provisional || !strings.HasPrefix(got.Evidence, "quiet") || len(got.Files) != 2 {
			t.Errorf("got evidence %q, provisional %v, %d files, want the quiet period of node 1", got.Evidence, got.Provisional, len(got.Files))
		}
	})
}

// Provisional steps of several nodes become final when two saves have ended with the same files.
func TestProvisionalStepsOfSeveralNodesBecomeFinal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := joinedGang(t, b, 2)
		for step := int64(1); step <= 3; step++ {
			for n := range g.dirs {
				rank := map[string]string{"rank0.pt": zipped(t, "0")}
				if n == 1 {
					rank = map[string]string{"rank1.pt": zipped(t, "1")}
				}
				write(t, filepath.Join(g.dirs[n], stepDir(step, 0)), rank)
			}
			time.Sleep(time.Minute)
			g.waitFor(step)
			time.Sleep(time.Minute)
		}
		if got := provisionals(t, b); got != "" {
			t.Errorf("provisional are %q, want none", got)
		}
		if c := commitOf(t, b, 1); c.Group == nil || c.Group.Provisional {
			t.Errorf("group of step 1: %+v, want a final one", c.Group)
		}
	})
}

// Node 1 writes its files long after node 0 has committed its own: the step is provisional at
// first, without them. Once node 1 commits too, it is final, and has the files of both.
func TestStepOfSlowNodeBecomesFinal(t *testing.T) {
	for _, late := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 5 * time.Minute} {
		inBubble(t, func(t *testing.T) {
			b := mem.New()
			g := joinedGang(t, b, 2)
			for n, dir := range g.dirs {
				write(t, filepath.Join(dir, "step-1"), map[string]string{fmt.Sprintf("rank%d.pt", n): zipped(t, fmt.Sprint(n))})
				if _, err := g.us[n].Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					time.Sleep(late)
				}
			}
			time.Sleep(time.Minute)
			if got := commitOf(t, b, 1); got.Provisional || len(got.Files) != 2 {
				t.Errorf("%v late: provisional %t with %d files, want a final step with 2", late, got.Provisional, len(got.Files))
			}
		})
	}
}
