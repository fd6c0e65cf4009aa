package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// "stager commit --wait" returned 0 for a step that was only provisional: rank 0 alone had
// committed, or the step was provisional already when the trainer committed it. Then the commit
// did nothing. Every combination of who has files, who commits and when is tried.
func TestWaitAfterCommitDistinguishesProvisional(t *testing.T) {
	for _, nodes := range []int{0, 2, 3} { // 0: a single node
		for _, files := range []string{"all nodes", "node 0"} {
			for _, commits := range []string{"all nodes", "node 0", "node 0 twice", "node 0 for all", "node 1 for all"} {
				for _, late := range []bool{false, true} {
					if nodes == 0 && (files != "all nodes" || commits != "node 0") || files == "node 0" && (commits == "node 1 for all" || commits == "all nodes") {
						continue
					}
					name := fmt.Sprintf("%d nodes, files on %s, %s commits, when it is provisional: %t", nodes, files, commits, late)
					t.Run(name, func(t *testing.T) {
						inBubble(t, func(t *testing.T) { waitAfterCommit(t, nodes, files, commits, late) })
					})
				}
			}
		}
	}
}

func waitAfterCommit(t *testing.T, nodes int, files, commits string, late bool) {
	b := mem.New()
	var g *gang
	if nodes == 0 {
		dir := t.TempDir()
		g = &gang{t: t, dirs: []string{dir}, us: []*Uploader{newUploader(t, dir, b, nil)}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			g.us[0].positions.poll()
			g.us[0].run(ctx, nil)
		}()
		defer func() {
			cancel()
			<-ended
		}()
	} else {
		g = joinedGang(t, b, nodes)
	}
	for n, dir := range g.dirs {
		if n == 0 || files == "all nodes" {
			write(t, filepath.Join(dir, "step-1"), map[string]string{fmt.Sprintf("rank%d.pt", n): zipped(t, fmt.Sprint(n))})
		}
	}
	if late {
		time.Sleep(5 * time.Minute)
		if got := commitOf(t, b, 1); !got.Provisional {
			t.Fatalf("the step is final before the commit: %+v", got)
		}
	}
	if commits == "node 0 twice" {
		if _, err := g.us[0].Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		commits = "node 0"
	}
	final := commits != "node 0" || nodes == 0
	for n, u := range g.us {
		all := commits == fmt.Sprintf("node %d for all", n)
		if !all && commits != "all nodes" && commits != fmt.Sprintf("node %d", n) {
			continue
		}
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1, AllNodes: all}); err != nil {
			t.Fatal(err)
		}
		if commits != "all nodes" || n == len(g.us)-1 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			if err := u.Wait(ctx, 1); (err == nil) != final || err != nil && !errors.As(err, new(*ProvisionalError)) {
				t.Errorf("node %d: Wait returned %v, want final: %t", n, err, final)
			}
			cancel()
		}
	}
	want := 1
	if files == "all nodes" {
		want = len(g.us)
	}
	if got := commitOf(t, b, 1); got.Provisional == final || len(got.Files) != want {
		t.Errorf("provisional: %t with %d files, want %t with %d", got.Provisional, len(got.Files), !final, want)
	}
}
