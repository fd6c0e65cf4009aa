package checkpoint

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// rankFiles returns the files that a node writes for a step: the data first, then the completion
// files.
type rankFiles func(t *testing.T, node int, step string) (data, signs map[string]string)

var waysOfNodes = map[string]rankFiles{
	"marker on each node": func(_ *testing.T, node int, step string) (data, signs map[string]string) {
		return map[string]string{fmt.Sprintf("rank%d.raw", node): step}, map[string]string{markerName: ""}
	},
	"sign of all ranks on node 0": func(_ *testing.T, node int, step string) (data, signs map[string]string) {
		if node == 0 {
			signs = map[string]string{".metadata": "pickle of " + step + "."}
		}
		return map[string]string{fmt.Sprintf("__%d_0.distcp", node): step}, signs
	},
	"no sign": func(t *testing.T, node int, step string) (data, signs map[string]string) {
		return map[string]string{fmt.Sprintf("rank%d.pt", node): zipped(t, step)}, nil
	},
}

// saveStep has all nodes write a step, the completion files after all data, and remove an older
// one.
func (g *gang) saveStep(ways rankFiles, step, keep int) (all map[string]string) {
	g.t.Helper()
	all = make(map[string]string)
	name := func(step int) string { return fmt.Sprintf("step-%d", step) }
	signs := make([]map[string]string, len(g.dirs))
	for n, dir := range g.dirs {
		var data map[string]string
		data, signs[n] = ways(g.t, n, name(step))
		write(g.t, filepath.Join(dir, name(step)), data)
		maps.Copy(all, data)
	}
	time.Sleep(time.Second)
	for n, dir := range g.dirs {
		write(g.t, filepath.Join(dir, name(step)), signs[n])
		maps.Copy(all, signs[n])
		removeAll(g.t, dir, name(step-keep))
	}
	delete(all, markerName)
	return all
}

// Trainers of several nodes that save every five seconds and keep few checkpoints lose none.
// Regression: without a completion file, or with one on the first node alone, all but the last
// ones were lost. The other nodes held nothing before the announcement.
func TestQuickTrainersOfSeveralNodesLoseNoCheckpoint(t *testing.T) {
	for name, ways := range waysOfNodes {
		for nodes := 2; nodes <= 3; nodes++ {
			for keep := 1; keep <= 2; keep++ {
				t.Run(fmt.Sprintf("%s, %d nodes, keeps %d", name, nodes, keep), func(t *testing.T) {
					inBubble(t, func(t *testing.T) {
						b := mem.New()
						g := joinedGang(t, b, nodes)
						const steps = 6
						var last map[string]string
						for step := 1; step <= steps; step++ {
							last = g.saveStep(ways, step, keep)
							time.Sleep(4 * time.Second)
						}
						time.Sleep(time.Minute)
						g.waitFor(steps)
						if got := len(commits(b)); got != steps {
							t.Errorf("committed %v, want %d steps", commits(b), steps)
						}
						for n, u := range g.us {
							if s := u.Status(); len(s.Missed)+len(s.Failed)+len(s.Pending) > 0 {
								t.Errorf("node %d: missed %v, failed %v, pending %v, want nothing", n, s.Missed, s.Failed, s.Pending)
							}
							if held := heldEarly(t, g.dirs[n]); len(held) > 0 {
								t.Errorf("node %d left behind %v", n, held)
							}
						}
						_, files := restoreNewest(t, b)
						equal(t, "the last step", files, last)
					})
				})
			}
		}
	}
}

// A held, removed checkpoint may lack what was written after the node's last scan. The
// announcement of another node does not make it final.
func TestHeldPartOfARemovedCheckpointIsProvisional(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := joinedGang(t, b, 2)
		write(t, filepath.Join(g.dirs[1], "step-1"), map[string]string{"__1_0.distcp": "1"})
		write(t, filepath.Join(g.dirs[0], "step-1"), map[string]string{"__0_0.distcp": "0"})
		time.Sleep(5 * time.Second) // node 1 has scanned
		write(t, filepath.Join(g.dirs[1], "step-1"), map[string]string{"__1_1.distcp": "11"})
		write(t, filepath.Join(g.dirs[0], "step-1"), map[string]string{".metadata": "pickle."})
		removeAll(t, g.dirs[1], "step-1") // before the next scan
		time.Sleep(time.Minute)
		g.waitFor(1)
		if c := commitOf(t, b, 1); !c.Provisional || !strings.Contains(c.Evidence, "removed") {
			t.Errorf("provisional %v, evidence %q, want a provisional one of a removed part", c.Provisional, c.Evidence)
		}
	})
}

// A checkpoint of several nodes that no node could complete is reported when it is removed and a
// later one is saved.
func TestRemovedIncompleteCheckpointOfSeveralNodesIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var said bytes.Buffer
		b := mem.New()
		g := joinedGang(t, b, 2, func(c *Config) {
			if c.Node == 1 {
				c.Log = slog.New(slog.NewTextHandler(&said, nil))
			}
		})
		for n, dir := range g.dirs { // the trainer is killed before .metadata
			write(t, filepath.Join(dir, "step-1"), map[string]string{fmt.Sprintf("__%d_0.distcp", n): "x"})
		}
		time.Sleep(5 * time.Second)
		for _, dir := range g.dirs {
			removeAll(t, dir, "step-1")
		}
		time.Sleep(time.Minute)
		g.saveStep(waysOfNodes["sign of all ranks on node 0"], 2, 2)
		time.Sleep(time.Minute)
		g.waitFor(2)
		if got := commits(b); len(got) != 1 {
			t.Errorf("committed %v, want step 2 alone", got)
		}
		g.kill(1) // the log is no longer written
		if got := said.String(); strings.Count(got, "was removed before it was complete") != 1 || !strings.Contains(got, "checkpoint=step-1") {
			t.Errorf("the log does not name step-1 once:\n%s", got)
		}
		if held := heldEarly(t, g.dirs[1]); len(held) > 0 {
			t.Errorf("left behind %v", held)
		}
	})
}
