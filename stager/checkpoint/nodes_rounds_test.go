package checkpoint

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// All nodes write step 2, go back to step 1 in the same pods, and write step 2 again. The store
// tells one node late which restore was the last one. That node took its first writing for one of
// the new run, and it became a COMMIT with the second writing of the other node. The same happened,
// without any delay, when the users chose the same step for both restores, which began no new round.
func TestWritingsOfTwoRunsAreNotCombined(t *testing.T) {
	for _, step := range []int64{1, Newest} { // to restore
		for _, late := range [][]int64{{0, 1}, {1, 0}} { // listings of each node
			for _, gap := range []time.Duration{0, time.Second, 3 * time.Second} { // until the restore
				for _, delay := range []time.Duration{0, 5 * time.Second, 30 * time.Second} { // of node 1 after node 0
					t.Run(fmt.Sprint(step, late, gap, delay), func(t *testing.T) {
						inBubble(t, func(t *testing.T) {
							b := mem.New()
							stores := []*lateAgreements{{Backend: b}, {Backend: b}}
							g := joinedGang(t, b, 2, podsOf, func(c *Config) { c.Store = newStore(stores[c.Node]) })
							g.save("1")
							g.waitFor(1)
							g.restart(step)
							for n, times := range late {
								stores[n].late.Store(times)
							}
							g.save("2")
							time.Sleep(gap)
							g.restart(step)
							time.Sleep(2 * time.Second)
							g.rewrite(0, "2", "2, again")
							time.Sleep(delay)
							g.rewrite(1, "2", "2, again")
							time.Sleep(5 * time.Minute)
							files, err := restoreOf(t, b, 2, AnyNode)
							if err != nil {
								t.Fatal(err)
							}
							equal(t, "step 2", files, together(2, "2, again"))
						})
					})
				}
			}
		}
	}
}

// restart has all nodes restore step 1 in their pods, as a trainer does that begins again.
func (g *gang) restart(step int64) {
	g.t.Helper()
	for n := range g.us {
		wantRestored(g.t, g.b, n, 1, func(c *RestoreConfig) {
			c.Step = step
			c.Among.Agreed = func(_ context.Context, agreement int) {
				if err := g.us[n].Restored("mem://test/", "job-a", agreement); err != nil {
					g.t.Error(err)
				}
			}
		})
	}
}

// What is known of restores outlives the process, and only restores of its own job and
// destination count.
func TestRestoredIsRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := joinedGang(t, mem.New(), 2)
		u := g.us[0]
		before, err := u.stamp()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []struct {
			source, job string
			agreement   int
		}{
			{"mem://test", "job-a", 3},
			{"mem://test", "job-b", 4},
			{"mem://other/", "job-a", 4},
			{"mem://test", "job-a", 3},
			{"mem://test", "job-a", 2},
			{"mem://test", "job-a", 0},
			{"mem://test/", "job-a", 5},
		} {
			if err := u.Restored(r.source, r.job, r.agreement); err != nil {
				t.Fatal(err)
			}
		}
		after, err := u.stamp()
		if err != nil {
			t.Fatal(err)
		}
		g.kill(0)
		g.start(0)
		h := &g.us[0].member.home
		if len(h.Restarts) != 2 || h.Restarts[0].Agreement != 3 || h.Restarts[1].Agreement != 5 {
			t.Fatalf("got %v, want the agreements 3 and 5", h.Restarts)
		}
		between := h.Restarts[0].Since
		for _, tt := range []struct {
			first      time.Time
			last, want int
		}{
			{time.Time{}, 7, 7}, // unknown
			{before, 0, 0},
			{before, 1, 1},
			{before, 5, 2},
			{between, 0, 3},
			{between, 5, 4},
			{after, 0, 5},
			{after, 5, 5},
			{after, 7, 7}, // this pod did not restore for the agreements 6 and 7
		} {
			if got := h.round(tt.last, tt.first); got != tt.want {
				t.Errorf("files of %s, last agreement %d: got round %d, want %d", tt.first.Format("15:04:05.000"), tt.last, got, tt.want)
			}
		}
	})
}

// Trainers copy files with their times into each checkpoint, such as the configuration of a model.
// Such a file is older than the run that saves it, and does not make the checkpoint one of an
// earlier run.
func TestCopiedFilesBelongToTheRunThatSavesThem(t *testing.T) {
	for name, divide := range map[string]func(g *gang){
		"restore": func(g *gang) { g.restart(1) },
		"members": func(g *gang) { g.newPod(1); time.Sleep(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := mem.New()
				g := joinedGang(t, b, 2, podsOf)
				g.save("1")
				g.waitFor(1)
				divide(g)
				for n, dir := range g.dirs {
					at := filepath.Join(dir, "step-2")
					write(t, at, shardOf(n, "2"))
					old := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
					if err := os.Chtimes(filepath.Join(at, "shared.json"), old, old); err != nil {
						t.Fatal(err)
					}
					write(t, at, map[string]string{markerName: ""})
				}
				g.waitFor(2)
				files, err := restoreOf(t, b, 2, AnyNode)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "step 2", files, together(2, "2"))
			})
		})
	}
}
