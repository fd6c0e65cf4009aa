package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// shardOf returns the files that one node writes of a step.
func shardOf(node int, step string) map[string]string {
	return map[string]string{fmt.Sprintf("rank%d.pt", node): fmt.Sprintf("rank %d of %s", node, step), "shared.json": "of all"}
}

// together returns the files that a node restores: those of all nodes.
func together(nodes int, step string) map[string]string {
	all := make(map[string]string)
	for n := range nodes {
		maps.Copy(all, shardOf(n, step))
	}
	return all
}

// gang holds the running Uploaders of the nodes of one job.
type gang struct {
	t    *testing.T
	b    backends.Backend
	job  string
	us   []*Uploader
	dirs []string
	stop []func()
	more []func(*Config)
}

func startGang(t *testing.T, b backends.Backend, job string, nodes int, more ...func(*Config)) *gang {
	t.Helper()
	g := &gang{t: t, b: b, job: job, more: more}
	for range nodes {
		g.dirs = append(g.dirs, t.TempDir())
		g.us, g.stop = append(g.us, nil), append(g.stop, nil)
	}
	for n := range nodes {
		g.start(n)
	}
	return g
}

// joinedGang starts nodes of the job "job-a" and returns when they share a view.
func joinedGang(t *testing.T, b backends.Backend, nodes int, more ...func(*Config)) *gang {
	t.Helper()
	g := startGang(t, b, "job-a", nodes, more...)
	time.Sleep(time.Minute)
	return g
}

// savedGang starts nodes of the job "job-a" and returns when step 1 is committed.
func savedGang(t *testing.T, b backends.Backend, nodes int, more ...func(*Config)) *gang {
	t.Helper()
	g := joinedGang(t, b, nodes, more...)
	g.save("1")
	g.waitFor(1)
	return g
}

// start starts the process of a node.
func (g *gang) start(n int) {
	g.t.Helper()
	g.startAs(n, n, len(g.dirs))
}

func (g *gang) startAs(n, index, count int) {
	g.t.Helper()
	u := newUploader(g.t, g.dirs[n], g.b, func(c *Config) {
		c.Node, c.Nodes, c.Job = index, count, g.job
		for _, change := range g.more {
			change(c)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		u.positions.poll()
		u.run(ctx, nil) // no kernel events in virtual time
	}()
	g.us[n], g.stop[n] = u, func() {
		cancel()
		<-ended
	}
	g.t.Cleanup(g.stop[n])
}

// kill ends the process of a node without cleanup.
func (g *gang) kill(n int) {
	u := g.us[n]
	g.stop[n]()
	u.member.cancel()
	<-u.member.ended
	u.member.state = memberStarting // it does not leave
	if err := u.Close(); err != nil {
		g.t.Fatal(err)
	}
}

// newPod starts a process with an empty volume for a node.
func (g *gang) newPod(n int) {
	g.kill(n)
	g.dirs[n] = g.t.TempDir()
	g.start(n)
}

// save writes a step on all nodes, with the marker that completes it.
func (g *gang) save(step string) {
	for n, dir := range g.dirs {
		g.saveOn(n, dir, step)
	}
}

func (g *gang) saveOn(n int, dir, step string) {
	g.t.Helper()
	files := shardOf(n, step)
	write(g.t, filepath.Join(dir, "step-"+step), files)
	write(g.t, filepath.Join(dir, "step-"+step), map[string]string{markerName: ""})
}

// waitFor waits for a step on all nodes. It may be provisional.
func (g *gang) waitFor(step int64) {
	g.t.Helper()
	time.Sleep(10 * time.Second) // every node has scanned
	ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Minute)
	defer cancel()
	for n, u := range g.us {
		if err := u.Wait(ctx, step); err != nil && !errors.As(err, new(*ProvisionalError)) {
			g.t.Errorf("node %d: step %d: %v; status %+v", n, step, err, u.Status())
		}
	}
}

func TestStepOfSeveralNodesIsCommittedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := startGang(t, b, "job-a", 3)
		time.Sleep(time.Minute)
		g.save("1")
		time.Sleep(time.Minute)
		g.waitFor(1)
		r, files := restoreNewest(t, b)
		if r.Step != 1 {
			t.Errorf("restored step %d, want 1", r.Step)
		}
		equal(t, "restored", files, together(3, "1"))
		for n, u := range g.us {
			if s := u.Status(); len(s.Pending)+len(s.Waiting)+len(s.Failed) > 0 || s.Nodes != "" {
				t.Errorf("node %d: got %+v, want nothing left", n, s)
			}
		}
	})
}

// restoreOf restores a step as a node and returns its files.
func restoreOf(t *testing.T, b backends.Backend, step int64, node int) (map[string]string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	_, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: step, Node: node})
	if err != nil {
		return nil, err
	}
	return read(t, dir), nil
}

// A job of three nodes ends in the middle of step 2 and returns with two. Parts of the three were
// combined with those of the two, so step 2 was restored without the files of the third.
func TestNodesDoNotFinishStepOfMoreNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 3)
		g.kill(2)
		for n := range 2 {
			g.saveOn(n, g.dirs[n], "2")
		}
		time.Sleep(30 * time.Second)
		g.kill(0)
		g.kill(1)
		for n := range 2 {
			g.startAs(n, n, 2)
		}
		time.Sleep(5 * time.Minute)
		if r, _ := restoreNewest(t, b); r.Step != 1 {
			t.Errorf("restored step %d, want 1: step 2 was never whole", r.Step)
		}
		g.dirs, g.us = g.dirs[:2], g.us[:2]
		g.save("3")
		g.waitFor(3)
		r, files := restoreNewest(t, b)
		if r.Step != 3 {
			t.Errorf("restored step %d, want 3", r.Step)
		}
		equal(t, "step 3", files, together(2, "3"))
		for n, u := range g.us {
			if f := u.Status().Failed; len(f) != 1 || f[0].Step != 2 {
				t.Errorf("node %d: got failed %+v, want step 2", n, f)
			}
		}
	})
}

// A pod is replaced in the middle of step 2. Its files were combined with those that the other
// node wrote before.
func TestReplacedPodDoesNotFinishStepOfOneBefore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := startGang(t, b, "job-a", 2)
		time.Sleep(time.Minute)
		g.saveOn(1, g.dirs[1], "2")
		time.Sleep(20 * time.Second)
		g.newPod(0)
		time.Sleep(2 * time.Minute)
		g.saveOn(0, g.dirs[0], "2")
		time.Sleep(5 * time.Minute)
		if got := commits(b); len(got) != 0 {
			t.Errorf("got %v committed, want nothing: the files of step 2 are of two runs", got)
		}
		write(t, filepath.Join(g.dirs[1], "step-3"), shardOf(1, "3"))
		g.save("3")
		g.waitFor(3)
		_, files := restoreNewest(t, b)
		equal(t, "step 3", files, together(2, "3"))
	})
}

// Only rank 0 writes checkpoints, and the others create empty parts. Nothing was ever committed.
func TestStepThatOneNodeWritesIsCommitted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := startGang(t, b, "job-a", 2)
		time.Sleep(time.Minute)
		g.saveOn(0, g.dirs[0], "1")
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if err := g.us[0].Wait(ctx, 1); !errors.As(err, new(*ProvisionalError)) {
			t.Fatal(err)
		}
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, shardOf(0, "1"))
		// The last step of all: node 1 has nothing to save, but stays for it.
		g.saveOn(0, g.dirs[0], "2")
		ended := make(chan error, 2)
		for _, u := range g.us {
			go func() { ended <- u.Drain(ctx, Exit{Success: true, Gone: true}) }()
		}
		for range g.us {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if r, _ := restoreNewest(t, b); r.Step != 2 {
			t.Errorf("restored step %d, want 2", r.Step)
		}
	})
}

// Node 1 pauses between its files for longer than the quiet period. Its first burst became its
// part, and the sign of node 0 committed it.
func TestBurstsOfNodeAreOnePart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := startGang(t, b, "job-a", 2)
		time.Sleep(time.Minute)
		step := func(n int) string { return filepath.Join(g.dirs[n], "step-1") }
		write(t, step(0), map[string]string{"__0_0.distcp": "0"})
		write(t, step(1), map[string]string{"__1_0.distcp": "1"})
		time.Sleep(30 * time.Second)
		write(t, step(1), map[string]string{"__1_1.distcp": "11"})
		write(t, step(0), map[string]string{".metadata": "pickle."})
		g.waitFor(1)
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, map[string]string{"__0_0.distcp": "0", "__1_0.distcp": "1", "__1_1.distcp": "11", ".metadata": "pickle."})
	})
}

// A second job at the destination of a live job is refused. It takes over when the first one is
// gone.
func TestSecondJobAtDestinationIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		startGang(t, b, "job-a", 2)
		time.Sleep(time.Minute)
		other := startGang(t, b, "job-b", 2)
		for n, u := range other.us {
			err := u.Register(t.Context())
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Job != "job-a" {
				t.Errorf("node %d: got %v, want that job-a is alive", n, err)
			}
		}
	})
}

func TestRestoreDoesNotChooseBetweenNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := startGang(t, b, "job-a", 2)
		time.Sleep(time.Minute)
		for n, dir := range g.dirs {
			write(t, filepath.Join(dir, "step-1"), map[string]string{"state.json": fmt.Sprint("of node ", n)})
			write(t, filepath.Join(dir, "step-1"), map[string]string{markerName: ""})
		}
		g.waitFor(1)
		var chosen *NodeError
		if _, err := restoreOf(t, b, 1, AnyNode); !errors.As(err, &chosen) || !strings.Contains(err.Error(), "nodes 0 and 1") {
			t.Errorf("without a node: got %v, want that nodes 0 and 1 differ", err)
		}
		if _, err := restoreOf(t, b, 1, 5); !errors.As(err, &chosen) || !strings.Contains(err.Error(), "has no node 5") {
			t.Errorf("node 5: got %v, want that there is none", err)
		}
		for n := range 2 {
			files, err := restoreOf(t, b, 1, n)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, fmt.Sprint("node ", n), files, map[string]string{"state.json": fmt.Sprint("of node ", n)})
		}
	})
}
