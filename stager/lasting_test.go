package stager

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/checkpoint"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

// said is a log that a test reads while it is written.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *said) has(text string) bool { return strings.Contains(s.String(), text) }

// savingJob is beginJob with an output.
func savingJob(t *testing.T) (*job, *said) {
	t.Helper()
	j, log := beginJob(t, 4, ""), new(said)
	j.plan += "  outputs:\n" + strings.ReplaceAll(ckptOutput, "DIR", j.dir)
	j.log = slog.New(slog.NewTextHandler(log, nil))
	return j, log
}

// commit saves a checkpoint.
func (j *job) commit() {
	j.t.Helper()
	j.write("out/step-1/model.bin", "weights")
	if code, body := j.call("POST", "/v1/outputs/ckpt/commit", `{"path": "step-1"}`); code != 202 {
		j.t.Fatalf("a commit is %d %s", code, body)
	}
}

// committed returns the cursors of the checkpoint.
func (j *job) committed() []window.Cursor {
	j.t.Helper()
	text, ok := j.mem.Get("out/step-00000001/COMMIT.json")
	var c struct {
		Cursors map[string][]window.Cursor `json:"cursors"`
	}
	if err := json.Unmarshal(text, &c); !ok || err != nil {
		j.t.Fatalf("the COMMIT is %q (%v)", text, err)
	}
	return c.Cursors["train"]
}

const waitsForList = `level=INFO msg="checkpoint waits until the source of an input is listed, to record its position there"`

const withoutPosition = `level=WARN msg="checkpoint has no position of an input, because its source was not listed in time, or has changed: restore --rewind cannot rewind it"`

// A checkpoint that is saved while the source is listed has the position in the whole list, of the moment
// of the commit.
func TestCommitWaitsForTheList(t *testing.T) {
	j, log := savingJob(t)
	j.begun()
	j.wants(0, 2)
	j.commit()
	j.await("the checkpoint waits", func() bool { return log.has(waitsForList) })
	j.wants(3, 4)
	if j.saved(1) {
		t.Error("the checkpoint is saved before the source is listed")
	}
	j.listed()
	j.await("saved", func() bool { return j.saved(1) })
	c := j.committed()
	if plan := j.Snapshot().Inputs[0].Window.Plan; len(c) != 1 || !strings.HasPrefix(plan, c[0].Manifest+" ") || len(c[0].Finished[0]) != 1 || c[0].Finished[0][0] != (window.Span{0, 2}) {
		t.Fatalf("got the cursors %+v, want positions 0 to 2 of %s", c, plan)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if code, body := j.call("PUT", "/v1/inputs/train/cursor", string(text)); code != 200 {
		t.Errorf("a rewind to the checkpoint: got %d %s, want 200", code, body)
	}
	j.wants(3, 5)
	if err := j.finish(); err != nil {
		t.Error(err)
	}
	if log.has(withoutPosition) {
		t.Error("the log says that the checkpoint has no position")
	}
}

// A checkpoint waits neither for ever nor in a drain: it is saved without the position, and the log says so.
func TestCommitDoesNotWaitForEver(t *testing.T) {
	for name, patience := range map[string]time.Duration{"patience": 10 * time.Millisecond, "drain": time.Hour} {
		j, log := savingJob(t)
		j.patience = patience
		j.begun()
		j.wants(0, 2)
		j.commit()
		j.await("the checkpoint waits", func() bool { return log.has(waitsForList) })
		if name == "patience" {
			j.await("saved", func() bool { return j.saved(1) })
		} else if j.saved(1) {
			t.Error("saved before the drain")
		}
		if err := j.finish(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !j.saved(1) || len(j.committed()) > 0 || !log.has(withoutPosition) {
			t.Errorf("%s: saved %t with the cursors %+v, want none, and a warning", name, j.saved(1), j.committed())
		}
	}
}

// A process after a restart saves a checkpoint of the process before, which had only the beginning.
func TestCursorOfABeginningAfterARestart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(j *job)
		known  bool
	}{
		"the same source":  {func(*job) {}, true},
		"changed behind":   {func(j *job) { j.remove(manyKey(350)) }, true},
		"changed in front": {func(j *job) { j.remove(manyKey(0)) }, false},
	} {
		j, _ := savingJob(t)
		j.begun()
		j.wants(0, 2)
		cursors := j.cursors()
		cursors["other"], cursors["none"] = json.RawMessage(`{"manifest": "abc"}`), json.RawMessage(`7`)
		if err := j.finish(); err != nil {
			t.Fatal(err)
		}
		c.change(j)
		j.pages.allow(-1)
		j.opened()
		j.listed()
		lasting := j.lasting(t.Context(), cursors)
		var got window.Cursor
		text, known := lasting["train"]
		if known {
			if err := json.Unmarshal(text, &got); err != nil {
				t.Error(err)
			}
		}
		if known != c.known || known && !strings.HasPrefix(j.Snapshot().Inputs[0].Window.Plan, got.Manifest+" ") {
			t.Errorf("%s: got %s, want a cursor of the whole list: %t", name, text, c.known)
		}
		if string(lasting["other"]) != `{"manifest": "abc"}` || string(lasting["none"]) != `7` {
			t.Errorf("%s: other cursors were changed: %s", name, lasting)
		}
		if err := j.finish(); err != nil {
			t.Error(err)
		}
	}
}

// Two nodes began with different numbers of objects. Their checkpoint is restored on one node, which gets
// what neither has acknowledged.
func TestNodesWithDifferentBeginningsShareACheckpoint(t *testing.T) {
	store := beginJob(t, 4, "")
	var cursors []json.RawMessage
	acked := map[int]bool{}
	for i, begin := range []int{2, 3} {
		j := beginJob(t, 0, "")
		j.mem, j.shard, j.begin = store.mem, plan.Shard{Index: i, Count: 2}, begin*pageSize
		j.pages.allow(begin)
		j.opened()
		for range 3 + i {
			l := j.lease()
			acked[l.Pos] = true
			j.ack(l)
		}
		at := j.cursors()
		if n, _ := plan.ParseBeginning(begun(at["train"])); n != begin*pageSize {
			t.Errorf("node %d: got a cursor of the first %d objects, want %d", i, n, begin*pageSize)
		}
		saved := make(chan checkpoint.Cursors)
		go func() { saved <- j.lasting(t.Context(), at) }()
		j.listed()
		cursors = append(cursors, (<-saved)["train"])
		if err := j.finish(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(cursors)
	if err != nil {
		t.Fatal(err)
	}
	store.pages.allow(-1)
	store.opened()
	store.listed()
	if code, body := store.call("PUT", "/v1/inputs/train/cursor", string(text)); code != 200 {
		t.Fatalf("a rewind: got %d %s, want 200", code, body)
	}
	for want := range 12 {
		if acked[want] {
			continue
		}
		l := store.lease()
		if l.Pos != want {
			t.Errorf("got position %d, want %d", l.Pos, want)
		}
		store.ack(l)
	}
	if err := store.finish(); err != nil {
		t.Error(err)
	}
}

// An input that is not in the plan, or has failed, does not hold up a checkpoint.
func TestCursorOfAnInputThatIsNotThere(t *testing.T) {
	j := beginJob(t, 1, "")
	d := New(Config{Plan: mustParse(j), Registry: j.registry()})
	d.inputs[0].err = backends.Errorf(backends.Invalid, "list", "", "no")
	text := json.RawMessage(`{"manifest": "first-1-abc"}`)
	if got := d.lasting(t.Context(), checkpoint.Cursors{"gone": text, "train": text}); len(got) > 0 {
		t.Errorf("got %s, want none", got)
	}
}
