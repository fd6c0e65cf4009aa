package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// A COMMIT records the cursors at the start of the checkpoint, at the explicit commit, or as the
// marker gives them. A restore passes them on.
func TestCommitRecordsInputPositions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		at := 0
		u := newUploader(t, dir, b, func(c *Config) {
			c.Cursors = func() Cursors { return Cursors{"train": json.RawMessage(fmt.Sprint(at))} }
		})
		restored := func(want string) {
			t.Helper()
			r, _ := restoreNewest(t, b)
			if got, err := json.Marshal(r.Cursors); err != nil || string(got) != want {
				t.Errorf("step %d: RESTORED.json has the cursors %s (%v), want %s", r.Step, got, err, want)
			}
		}
		at = 1
		write(t, filepath.Join(dir, "checkpoint-1"), map[string]string{"model.pt": "begun"})
		pass(t, u)
		at = 2
		write(t, filepath.Join(dir, "checkpoint-1"), model("1"))
		settled(t, u)
		restored(`{"train":[1]}`)

		at = 3
		write(t, filepath.Join(dir, "checkpoint-2.tmp"), model("2"))
		pass(t, u)
		at = 4
		if err := os.Rename(filepath.Join(dir, "checkpoint-2.tmp"), filepath.Join(dir, "checkpoint-2")); err != nil {
			t.Fatal(err)
		}
		pass(t, u)
		restored(`{"train":[3]}`)

		write(t, filepath.Join(dir, "checkpoint-5"), model("5"))
		if err := u.scan(false); err != nil {
			t.Fatal(err)
		}
		at = 6
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "checkpoint-5", Step: -1}); err != nil {
			t.Fatal(err)
		}
		at = 7
		u.Close() // the snapshot has recorded it
		u = newUploader(t, dir, b, nil)
		pass(t, u)
		restored(`{"train":[6]}`)

		u.cfg.Cursors = func() Cursors { return Cursors{"train": json.RawMessage("8"), "val": json.RawMessage("9")} }
		write(t, filepath.Join(dir, "checkpoint-8"), model("8"))
		write(t, filepath.Join(dir, "checkpoint-8"), map[string]string{markerName: `{"step": 8, "cursors": {"train": {"epoch": 1}}}`})
		pass(t, u)
		restored(`{"train":[{"epoch":1}],"val":[9]}`)
	})
}

// A trainer that saves quickly and fetches its next data files has moved on before the directory
// is scanned. What it received by then is not in the checkpoint.
func TestCursorIsThatOfFirstAppearance(t *testing.T) {
	at := 0
	begin := func(t *testing.T) (*Uploader, string, *mem.Backend) {
		at = 1
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) {
			c.Cursors = func() Cursors { return Cursors{"train": json.RawMessage(fmt.Sprint(at))} }
		})
		pass(t, u)
		return u, dir, b
	}
	restored := func(t *testing.T, u *Uploader, b *mem.Backend, want string) {
		t.Helper()
		settled(t, u)
		r, _ := restoreNewest(t, b)
		if got, err := json.Marshal(r.Cursors); err != nil || string(got) != want {
			t.Errorf("step %d: RESTORED.json has the cursors %s (%v), want %s", r.Step, got, err, want)
		}
	}
	t.Run("told by the kernel", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			u, dir, b := begin(t)
			at = 2
			listed := time.Now()
			time.Sleep(time.Millisecond)
			u.came("step-7.tmp") // during a scan that has not listed it
			u.came("log.txt")
			u.positions.note(nil, nil, listed)
			at = 3
			write(t, filepath.Join(dir, "step-7"), model("7"))
			u.came("step-7")
			if n := len(u.positions.stood); n != 1 {
				t.Errorf("%d names are remembered, want 1", n)
			}
			restored(t, u, b, `{"train":[2]}`)
		})
	})
	t.Run("found by looking", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			u, dir, b := begin(t)
			u.positions.poll()
			pass(t, u)
			write(t, filepath.Join(dir, "step-7"), model("7"))
			at = 2
			restored(t, u, b, `{"train":[1]}`)
		})
	})
}

// A notification of the kernel triggers one read of the cursors as soon as the name appears.
func TestCursorIsRecordedWhenNameAppears(t *testing.T) {
	dir := t.TempDir()
	asked := make(chan struct{}, 10)
	u := newUploader(t, dir, mem.New(), func(c *Config) {
		c.Cursors = func() Cursors { asked <- struct{}{}; return Cursors{} }
	})
	_, stop := u.watch()
	defer stop()
	if u.positions.polls {
		t.Fatal("the kernel does not report changes here")
	}
	write(t, filepath.Join(dir, "step-7.tmp"), model("7"))
	<-asked
}

func TestCursorsOfAllNodesAreInOneCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := startGang(t, b, "job", 3, func(c *Config) {
			node := c.Node
			c.Cursors = func() Cursors { return Cursors{"train": json.RawMessage(fmt.Sprint(node))} }
		})
		time.Sleep(time.Minute)
		for node, u := range g.us {
			write(t, filepath.Join(g.dirs[node], "step-1"), map[string]string{fmt.Sprintf("rank%d.pt", node): "x"})
			if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
				t.Fatal(err)
			}
		}
		g.waitFor(1)
		r, _ := restoreNewest(t, b)
		if got, err := json.Marshal(r.Cursors); err != nil || string(got) != `{"train":[0,1,2]}` {
			t.Errorf("got %s (%v), want those of all nodes", got, err)
		}
	})
}

// A trainer that resumed from its own files can save before its input is listed. The position of
// that input was missing in the checkpoint, and nobody said so.
func TestMissingPositionOfAnInputIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log bytes.Buffer
		dir, open := t.TempDir(), Cursors{"train": json.RawMessage("3")}
		u := newUploader(t, dir, mem.New(), func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.Inputs = func() []string { return []string{"train", "val"} }
			c.Cursors = func() Cursors { return maps.Clone(open) }
		})
		for step, want := range []int{1, 0} {
			log.Reset()
			write(t, filepath.Join(dir, fmt.Sprintf("checkpoint-%d", step)), model("x"))
			settled(t, u)
			if got := strings.Count(log.String(), "checkpoint has no position of an input, because the input was not open yet: restore --rewind cannot rewind it"); got != want {
				t.Errorf("step %d, open are %v: %d warnings, want %d", step, slices.Sorted(maps.Keys(open)), got, want)
			}
			if got := strings.Contains(log.String(), "input=val"); got != (want > 0) {
				t.Errorf("step %d: the log names val: %v, want %v:\n%s", step, got, want > 0, &log)
			}
			open["val"] = json.RawMessage("0")
		}
	})
}
