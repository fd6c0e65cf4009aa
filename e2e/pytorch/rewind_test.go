package pytorch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// indexed is a lab whose shards have an index beside them.
func (l *lab) indexed(t *testing.T) *lab {
	t.Helper()
	of := *l
	of.t, of.url, of.more = t, "s3://digits/indexed/", ", index: index.jsonl, include: [\"*.tar\"]"
	var index strings.Builder
	for shard := range count {
		line, err := json.Marshal(map[string]any{"key": fmt.Sprintf("digits-%03d.tar", shard), "samples": (samples - shard + count - 1) / count})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&index, "%s\n", line)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(l.shards)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "index.jsonl"), []byte(index.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	push := exec.CommandContext(t.Context(), l.stager, "push", "--quiet", dir, of.url)
	push.Env = append(os.Environ(), l.store...)
	of.run(push)
	return &of
}

// use is a sample that was used in an epoch.
type use struct{ epoch, number int }

// usesOf reads what trainers of loader.py used before and after they saved.
func usesOf(t *testing.T, file string) (before, after []use) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if line == "saved" {
			before, after = after, nil
			continue
		}
		var u use
		if _, err := fmt.Sscan(line, &u.epoch, &u.number); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		after = append(after, u)
	}
	return before, after
}

// unfinished are those of some samples whose shards a checkpoint does not cover: its trainer had not
// used them to their ends, where the batch in hand is not used yet.
func unfinished(before []use, batch int) (again []use) {
	used := make(map[use]int) // by epoch and shard
	for _, u := range before[:len(before)-batch] {
		used[use{u.epoch, u.number % count}]++
	}
	for _, u := range before {
		if shard := u.number % count; used[use{u.epoch, shard}] < (samples-shard+count-1)/count {
			again = append(again, u)
		}
	}
	return again
}

// A trainer without a position of its own commits how many samples it has used, uses more, and is
// killed. On another node restore --rewind sets the input, and a trainer uses the rest to the end of
// all epochs. Where the count identifies a sample, each one after it comes once, and no other.
// Elsewhere shards come again whole that the trainer had not used to their ends, and no other. A
// loader that reads ahead had acknowledged more, and what waited in its queues was never used.
func TestLoaderUsesWhatARewindBringsBack(t *testing.T) {
	l := newLab(t)
	indexed := l.indexed(t)
	for _, row := range []struct {
		kind, module      string
		workers, shuffle  int
		of                *lab
		exact             bool
		save, kill, epoch int // the kill is in this epoch
	}{
		{"samples", "", 0, 0, indexed, true, 600, 900, 0},
		{"samples", "", 1, 0, indexed, true, 600, 900, 0},
		{"samples", "", 2, 0, indexed, true, 600, 900, 0},
		{"samples", "", 2, 0, indexed, true, samples + 600, samples + 900, 1},
		{"samples", "", 2, 0, l, false, 600, 900, 0},
		{"samples", "", 2, 64, indexed, false, 600, 900, 0},
		{"shards", "", 2, 0, indexed, false, 600, 900, 0},
		{"webdataset", "", 1, 64, indexed, false, 600, 900, 0},
		{"batches", "", 0, 0, indexed, true, 600, 900, 0},
		{"stateful", "torchdata", 1, 0, indexed, true, 600, 900, 0},
		{"stateful", "torchdata", 2, 0, indexed, true, 600, 900, 0},
	} {
		t.Run(fmt.Sprintf("%s/%d workers/shuffle %d/exact %v/epoch %d", row.kind, row.workers, row.shuffle, row.exact, row.epoch), func(t *testing.T) {
			own := *row.of
			own.t = t
			python := own.trainer.Python
			if row.module != "" {
				python = importing(t, row.module)
			}
			saves := "s3://digits/rewind-" + strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) + "/"
			fit := func(n *node, save int, kill string, code int) (before, after []use) {
				used := filepath.Join(t.TempDir(), "used")
				s := own.trainersOf(t, python, n.socket, 3*time.Minute, "loader.py", used, strconv.Itoa(epochs), strconv.Itoa(row.workers),
					strconv.Itoa(row.shuffle), row.kind, n.dir+"/out", strconv.Itoa(save))
				if got := s.kill(kill, nil); got != code {
					t.Fatalf("with %q the trainer ended with %d, want %d", kill, got, code)
				}
				return usesOf(t, used)
			}
			first := own.nodeOf(saves, count/3)
			before, beyond := fit(first, row.save, fmt.Sprint("trainer@", row.kill), -9)
			first.destroy()
			if len(before) < row.save || len(beyond) < 250 || before[len(before)-1].epoch != row.epoch {
				t.Fatalf("%d samples were used before the checkpoint and %d after it, want it in mid-epoch", len(before), len(beyond))
			}
			second := own.nodeOf(saves, count/3)
			l.run(second.stager("restore", "--rewind", "--socket", second.socket, saves, second.dir+"/newest"))
			_, got := fit(second, 0, "none", 0)

			var want []use
			for epoch := range epochs {
				for number := range samples {
					if u := (use{epoch, number}); !slices.Contains(before, u) {
						want = append(want, u)
					}
				}
			}
			again := 0
			if !row.exact {
				repeat := unfinished(before, 16)
				want, again = append(want, repeat...), len(repeat)
			}
			compare(t, got, want)
			t.Logf("%d samples before the checkpoint, %d beyond it before the kill, %d after the rewind, of them %d again", len(before), len(beyond), len(got), again)
		})
	}
}

// compare fails the test unless exactly these samples were used.
func compare(t *testing.T, got, want []use) {
	t.Helper()
	times := make(map[use]int)
	for _, u := range want {
		times[u]++
	}
	for _, u := range got {
		times[u]--
	}
	missing, more := 0, 0
	for _, n := range times {
		missing += max(n, 0)
		more += max(-n, 0)
	}
	if missing > 0 || more > 0 {
		t.Errorf("got %d samples after the rewind: %d are missing and %d came though they were not to, want %d", len(got), missing, more, len(want))
	}
}
