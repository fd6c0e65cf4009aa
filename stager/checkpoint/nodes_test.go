package checkpoint

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// shardOf is what one node writes of a step, and under one name all write.
func shardOf(node int, step string) map[string]string {
	return map[string]string{
		fmt.Sprintf("rank%d.pt", node): fmt.Sprintf("rank %d of %s", node, step), "shared.json": "of all",
		"own.json": fmt.Sprintf("of node %d", node),
	}
}

// together is what a node restores: everything, and of what all have its own.
func together(node, nodes int, step string) map[string]string {
	all := make(map[string]string)
	for n := range nodes {
		maps.Copy(all, shardOf(n, step))
	}
	maps.Copy(all, shardOf(node, step))
	return all
}

// gang are the Uploaders of the nodes of one job.
func gang(t *testing.T, b backends.Backend, nodes, attempt int) (us []*Uploader, dirs []string) {
	t.Helper()
	for n := range nodes {
		dirs = append(dirs, t.TempDir())
		us = append(us, newUploader(t, dirs[n], b, func(c *Config) { c.Node, c.Nodes, c.Attempt = n, nodes, attempt }))
	}
	return us, dirs
}

func TestAStepOfSeveralNodesIsWholeWhenAllHaveBroughtTheirs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		us, dirs := gang(t, b, 3, 0)
		for i, n := range []int{2, 0, 1} {
			write(t, filepath.Join(dirs[n], "step-1"), shardOf(n, "1"))
			settled(t, us[n])
			if got := len(commits(b)); got != i/2 {
				t.Errorf("after %d parts %d steps are committed", i+1, got)
			}
		}
		if w := fmt.Sprint(us[2].Status().Waiting); !strings.Contains(w, "waits for the parts of nodes 0 1") {
			t.Errorf("node 2 waits for %s, want the others' parts", w)
		}
		for n, u := range us {
			pass(t, u)
			if err := u.Wait(t.Context(), 1); err != nil {
				t.Errorf("node %d: %v", n, err)
			}
			if s := u.Status(); len(s.Pending)+len(s.Waiting)+len(s.Failed) > 0 || s.Committed.Step != 1 {
				t.Errorf("node %d: %+v, want step 1 committed and nothing left", n, s)
			}
			dir := filepath.Join(t.TempDir(), "x")
			r, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: Newest, Node: n})
			if err != nil || r.Step != 1 {
				t.Fatalf("node %d restores step %d: %v", n, r.Step, err)
			}
			equal(t, fmt.Sprint("node ", n), read(t, dir), together(n, 3, "1"))
		}
		if got := unreferenced(t, b); len(got) != 0 {
			t.Errorf("unreferenced: %v", got)
		}
		if steps, err := Steps(t.Context(), newStore(b)); err != nil || len(steps) != 1 || steps[0].Nodes != 3 || steps[0].Files != 9 || steps[0].Shared != 0 {
			t.Errorf("got %+v, %v; want one step by 3 nodes with 9 files", steps, err)
		}
	})
}

// A node dies in the middle of step 3: nobody commits it, all go back to step 2. The
// next attempt makes a step 3 of its own, of which nothing is the old one's; and what
// comes late from the old attempt changes nothing.
func TestANodeThatDiesLeavesTheStepBefore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		us, dirs := gang(t, b, 3, 0)
		for _, step := range []string{"1", "2", "3"} {
			for n, u := range us {
				if step == "3" && n == 1 {
					continue // it is dead
				}
				write(t, filepath.Join(dirs[n], "step-"+step), shardOf(n, step))
				settled(t, u)
			}
		}
		if r, _ := restoreNewest(t, b); r.Step != 2 || len(r.FellBackFrom) > 0 {
			t.Errorf("restored %+v, want step 2", r)
		}
		later, dirs2 := gang(t, b, 3, 1)
		for n, u := range later[:2] {
			write(t, filepath.Join(dirs2[n], "step-3"), shardOf(n, "3 again"))
			settled(t, u)
		}
		// The dead node's old process was only slow.
		write(t, filepath.Join(dirs[1], "step-3"), shardOf(1, "3"))
		settled(t, us[1])
		if got := commits(b); len(got) != 2 {
			t.Errorf("committed %v: two attempts were mixed, or the older one won", got)
		}
		if f := us[1].Status().Failed; len(f) != 1 || !strings.Contains(f[0].Reason, "attempt 1 has begun") {
			t.Errorf("the old attempt: %+v, want that it was told", f)
		}
		write(t, filepath.Join(dirs2[2], "step-3"), shardOf(2, "3 again"))
		settled(t, later[2])
		dir := filepath.Join(t.TempDir(), "x")
		if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: 3, Node: 1}); err != nil {
			t.Fatal(err)
		}
		equal(t, "step 3", read(t, dir), together(1, 3, "3 again"))
		// What the old attempt sent may go when nobody can be at it any more.
		time.Sleep(Abandoned)
		if _, err := Prune(t.Context(), PruneConfig{Store: newStore(b), Keep: Keep{Last: 9}, Abandoned: Abandoned}); err != nil {
			t.Error(err)
		}
		if got := unreferenced(t, b); len(got) != 0 {
			t.Errorf("unreferenced: %v", got)
		}
	})
}

func TestTheEndOfSeveralNodesWaitsForTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		us, dirs := gang(t, b, 2, 0)
		write(t, filepath.Join(dirs[0], "step-1"), shardOf(0, "1"))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		ended := make(chan error)
		go func() { ended <- us[0].Drain(ctx, Exit{}) }()
		time.Sleep(time.Minute)
		write(t, filepath.Join(dirs[1], "step-1"), shardOf(1, "1"))
		settled(t, us[1])
		if err := <-ended; err != nil || len(commits(b)) != 1 {
			t.Errorf("%v, committed %v; want step 1", err, commits(b))
		}
		// And not for ever.
		write(t, filepath.Join(dirs[0], "step-2"), shardOf(0, "2"))
		ctx, cancel = context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := us[0].Drain(ctx, Exit{}); err == nil || !strings.Contains(err.Error(), "step 2 (step-2) is not safe") {
			t.Errorf("got %v, want that step 2 is not safe", err)
		}
	})
}

// Its part survives a restart of stager, which sends nothing twice.
func TestARestartWaitsOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		us, dirs := gang(t, b, 2, 0)
		write(t, filepath.Join(dirs[0], "step-1"), shardOf(0, "1"))
		settled(t, us[0])
		us[0].Close()
		if err := os.RemoveAll(filepath.Join(dirs[0], "step-1")); err != nil { // the trainer prunes
			t.Fatal(err)
		}
		before := b.Keys()
		again := newUploader(t, dirs[0], b, func(c *Config) { c.Nodes = 2 })
		pass(t, again)
		if !slices.Equal(b.Keys(), before) {
			t.Errorf("it sent %v, had %v", b.Keys(), before)
		}
		write(t, filepath.Join(dirs[1], "step-1"), shardOf(1, "1"))
		settled(t, us[1])
		pass(t, again)
		if err := again.Wait(t.Context(), 1); err != nil || len(commits(b)) != 1 {
			t.Errorf("%v, committed %v; want step 1", err, commits(b))
		}
	})
}
