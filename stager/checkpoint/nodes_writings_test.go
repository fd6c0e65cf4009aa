package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// keepOpen writes a file of a step on node 1, whose save stays open until the file is closed.
func (g *gang) keepOpen(step string) *os.File { return g.keepOpenOn(1, step) }

func (g *gang) keepOpenOn(n int, step string) *os.File {
	g.t.Helper()
	dir := filepath.Join(g.dirs[n], "step-"+step)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		g.t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "__1_0.distcp"))
	if err == nil {
		_, err = file.WriteString("1")
	}
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = file.Close() }) // it may be closed already
	return file
}

// finish closes such a file and marks the step as complete.
func (g *gang) finish(file *os.File) {
	g.t.Helper()
	if err := file.Close(); err != nil {
		g.t.Fatal(err)
	}
	write(g.t, filepath.Dir(file.Name()), map[string]string{markerName: ""})
}

// rewrite writes a step again on a node, with writing as its content.
func (g *gang) rewrite(n int, step, writing string) {
	g.t.Helper()
	dir := filepath.Join(g.dirs[n], "step-"+step)
	if err := os.RemoveAll(dir); err != nil {
		g.t.Fatal(err)
	}
	write(g.t, dir, shardOf(n, writing))
	write(g.t, dir, map[string]string{markerName: ""})
}

// savedBehindOpen returns two nodes that have written step 2 while node 1 still has a file of
// step 1 open.
func savedBehindOpen(t *testing.T, b *mem.Backend) (*gang, *os.File) {
	t.Helper()
	g := startGang(t, b, "job-a", 2)
	time.Sleep(time.Minute)
	open := g.keepOpen("1")
	g.saveOn(0, g.dirs[0], "1")
	time.Sleep(time.Minute) // node 1 scans for its files
	g.save("2")
	time.Sleep(30 * time.Second)
	return g, open
}

// Two nodes write step 2 while step 1 is being saved, and node 0 writes it again. When node 0
// announced it, its second writing and the first one of node 1 formed one COMMIT.
func TestWritingsOfOneStepAreNotCombined(t *testing.T) {
	for _, late := range []time.Duration{0, 5 * time.Second, 5 * time.Minute} { // delay of node 1 after node 0
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := mem.New()
				g, open := savedBehindOpen(t, b)
				g.rewrite(0, "2", "2, again")
				if late == 0 {
					g.rewrite(1, "2", "2, again")
				}
				time.Sleep(30 * time.Second)
				g.finish(open)
				time.Sleep(late)
				if got := strings.Join(commits(b), " "); late > time.Minute && got != stepDir(1, 0) {
					t.Errorf("got the commits %q while node 1 has the first writing of step 2, want %q", got, stepDir(1, 0))
				}
				if late > time.Minute {
					for n, u := range g.us {
						if f := u.Status().Failed; len(f) != 1 || !strings.Contains(f[0].Reason, "writing 1 of step 2 only") {
							t.Errorf("node %d: got failed %+v, want that node 1 has the first writing of step 2", n, f)
						}
					}
				}
				if late > 0 {
					g.rewrite(1, "2", "2, again")
				}
				time.Sleep(2 * time.Minute)
				g.waitFor(2)
				files, err := restoreOf(t, b, 2, AnyNode)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "step 2", files, together(2, "2, again"))
				for n, u := range g.us {
					if s := u.Status(); len(s.Failed)+len(s.Pending) > 0 {
						t.Errorf("node %d: got %+v, want nothing left", n, s)
					}
				}
			})
		})
	}
}

// A node that was killed between two writings still knows the first one.
func TestWritingsAreCountedOverRestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g, open := savedBehindOpen(t, b)
		g.kill(0)
		g.rewrite(0, "2", "2, again")
		g.start(0)
		time.Sleep(30 * time.Second)
		g.finish(open)
		time.Sleep(5 * time.Minute)
		if got := strings.Join(commits(b), " "); got != stepDir(1, 0) {
			t.Errorf("got the commits %q, want %q: the nodes have different writings of step 2", got, stepDir(1, 0))
		}
		g.rewrite(1, "2", "2, again")
		time.Sleep(2 * time.Minute)
		g.waitFor(2)
		_, files := restoreNewest(t, b)
		equal(t, "step 2", files, together(2, "2, again"))
	})
}

// A file added to a complete checkpoint does not start another writing. The other node, to which
// nothing was added, saves the same files again.
func TestFilesAddedToStepAreSaved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 2, func(c *Config) { c.Conflict = ConflictOverwrite })
		dir := filepath.Join(g.dirs[0], "step-1")
		if err := os.Remove(filepath.Join(dir, markerName)); err != nil {
			t.Fatal(err)
		}
		write(t, dir, map[string]string{"eval.json": "0.9"})
		write(t, dir, map[string]string{markerName: ""})
		time.Sleep(time.Minute)
		_, files := restoreNewest(t, b)
		want := together(2, "1")
		want["eval.json"] = "0.9"
		equal(t, "step 1", files, want)
	})
}

// Node 1 still writes when node 0 announces step 1 for all nodes: its files belong to a later
// writing, or the sign is wrong. The save stayed open forever and blocked every later one.
func TestFilesWrittenAfterAnnouncementEndSave(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := startGang(t, b, "job-a", 2)
		time.Sleep(time.Minute)
		file := g.keepOpen("1")
		write(t, filepath.Join(g.dirs[0], "step-1"), map[string]string{"__0_0.distcp": "0"})
		write(t, filepath.Join(g.dirs[0], "step-1"), map[string]string{".metadata": "pickle."})
		time.Sleep(time.Minute + time.Second/7) // node 1 has read the announcement, and is not scanning at this instant
		write(t, filepath.Join(g.dirs[1], "step-1"), map[string]string{"late.distcp": "1"})
		late := filepath.Join(g.dirs[1], "step-1", "late.distcp")
		info, err := os.Stat(late)
		if err != nil {
			t.Fatal(err)
		}
		after := info.ModTime().Add(time.Second) // file systems have a time resolution of some milliseconds
		if err := errors.Join(os.Chtimes(late, after, after), file.Close()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if f := g.us[0].Status().Failed; len(f) != 1 || !strings.Contains(f[0].Reason, "after step 1 was announced as complete") {
			t.Errorf("got failed %+v, want that node 1 wrote after the announcement", f)
		}
		g.save("2")
		g.waitFor(2)
	})
}

// Node 1 detects late that its files are complete, during the scan for the announcement. Its part
// was provisional and the step not safe, although a marker proves the files of each node.
func TestMarkerThatScanFindsIsFinal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := startGang(t, b, "job-a", 2)
		time.Sleep(time.Minute)
		file := g.keepOpen("1")
		g.saveOn(0, g.dirs[0], "1")
		time.Sleep(time.Minute) // node 1 scans for its files
		g.finish(file)
		g.waitFor(1)
		if c := commitOf(t, b, 1); c.Provisional || c.Group == nil || c.Group.Provisional {
			t.Errorf("got provisional %t, group %+v, want a final step", c.Provisional, c.Group)
		}
	})
}
