package checkpoint

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

var rankOf = regexp.MustCompile(`(?:^|/)\.?_*([01])(?:_[0-9]+\.distcp|\.metadata)`)

// nodeOf returns the node whose volume holds a file of two ranks.
func nodeOf(p string) int {
	if m := rankOf.FindStringSubmatch(p); m != nil {
		n, _ := strconv.Atoi(m[1]) // the pattern allows only digits
		return n
	}
	return 0
}

// ranksOf splits a recording of two ranks in one directory into the operations of each on its own
// volume. cuts maps indices of operations of rank 0 to the number of operations of rank 1 that
// must precede them.
func ranksOf(r *recording) (ranks [2][]op, cuts map[int]int) {
	cuts = make(map[int]int)
	for _, o := range r.ops {
		switch {
		case o.Op == "mkdir":
			for n := range ranks {
				ranks[n] = append(ranks[n], o)
			}
			continue
		case o.Op == "mark", strings.HasPrefix(path.Base(o.Path), ".metadata"):
			cuts[len(ranks[0])] = len(ranks[1])
		}
		n := nodeOf(o.Path)
		ranks[n] = append(ranks[n], o)
	}
	return ranks, cuts
}

// Two ranks of torch.distributed.checkpoint save on two nodes with their own volumes, in random
// orders. At every boundary there is a pause longer than all timeouts, or stager is killed. No
// final COMMIT lacks a file, and each step that the library reported complete is committed.
func TestReplayOfRanksOnTwoNodes(t *testing.T) {
	t.Parallel()
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for _, r := range recordings(t, "torch_dcp", "torch_fsdp2") {
		for _, way := range []string{"pause", "kill stager", "no pause"} {
			for seed := range seeds {
				t.Run(fmt.Sprint(r.name, "/", way, "/", seed), func(t *testing.T) {
					inBubble(t, func(t *testing.T) { replayRanks(t, r, way, seed) })
				})
			}
		}
	}
}

func replayRanks(t *testing.T, r *recording, way string, seed uint64) {
	b := mem.New()
	g := startGang(t, b, "job-a", 2, quietly)
	time.Sleep(time.Minute)
	random := rand.New(rand.NewPCG(2, seed))
	ranks, cuts := ranksOf(r)
	writers := [2]*writer{newWriter(t, g.dirs[0]), newWriter(t, g.dirs[1])}
	defer writers[0].kill()
	defer writers[1].kill()
	states := make(map[string]bool)
	for _, files := range r.truth {
		states[canonical(files)] = true
	}
	known, boundaries, provisional := make(map[string]bool), 0, 0
	var done [2]int
	for done[0] < len(ranks[0]) || done[1] < len(ranks[1]) {
		n := random.IntN(2)
		if need, cut := cuts[done[0]]; n == 0 && cut && done[1] < need {
			n = 1
		}
		// Rank 1 begins no step before rank 0 has finished the previous one.
		if n == 1 && done[1] < len(ranks[1]) && ranks[1][done[1]].Op == "mkdir" && done[0] < len(ranks[0]) && marksBefore(ranks[0][:done[0]]) < marksNeeded(ranks[1][:done[1]]) {
			n = 0
		}
		if done[n] == len(ranks[n]) {
			n = 1 - n
		}
		o := ranks[n][done[n]]
		done[n]++
		writers[n].do(o)
		boundaries++
		switch {
		case o.Op == "mark": // the trainer does other work until the next one
			time.Sleep(time.Minute)
		case way == "kill stager":
			victim := random.IntN(2)
			g.kill(victim)
			g.start(victim)
			time.Sleep(time.Minute)
		case way == "pause":
			time.Sleep(time.Minute)
		}
		for _, c := range committedIn(t, b, known) {
			known[c.text] = true
			if whole := states[canonical(c.files)]; !whole && !c.Provisional {
				t.Errorf("%s: after %d operations %s is final by %q, and torn", r.name, boundaries, c.dir, c.Evidence)
			} else if !whole {
				provisional++
			}
		}
	}
	time.Sleep(2 * time.Minute)
	all := make(map[string]bool)
	for _, c := range committedIn(t, b, nil) {
		all[canonical(c.files)] = true
	}
	for state := range maps.Keys(states) {
		if !all[state] {
			t.Errorf("%s: a complete step is not committed; committed %v, status %+v", r.name, commits(b), g.us[0].Status())
		}
	}
	t.Logf("%s: %d boundaries, %d provisional of incomplete states", r.name, boundaries, provisional)
}

func marksBefore(ops []op) (n int) {
	for _, o := range ops {
		if o.Op == "mark" {
			n++
		}
	}
	return n
}

// marksNeeded returns how many steps must end before a rank makes its next directory.
func marksNeeded(ops []op) (n int) {
	for _, o := range ops {
		if o.Op == "mkdir" {
			n++
		}
	}
	return n
}
