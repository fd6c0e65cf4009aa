package stager

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/internal/catalogue"
	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// manyObjects is a number of objects whose list does not stay in memory.
const manyObjects = 15_000

// listedJob returns a job whose window has listed many objects, and has ended after two positions. Its
// gate is closed: the source cannot be listed again.
func listedJob(t *testing.T, options string) *job {
	t.Helper()
	j := newJob(t, "  inputs:\n  - {name: train, source: gated://b/many/, path: DIR/train, mode: window, window: {size: 16Mi"+options+"}, order: {by: name, epochs: 1}, include: [\"*.tar\"]}\n")
	for i := range manyObjects {
		j.mem.Put(manyKey(i), []byte("data"))
	}
	close(j.gate)
	j.opened()
	// On a slow machine the window begins with the first objects, and only the whole list is kept.
	j.await("listed", func() bool { return !j.Snapshot().Inputs[0].Window.Beginning })
	for want := range 2 {
		l := j.lease()
		if l.Pos != want {
			t.Fatalf("got %+v, want position %d", l, want)
		}
		j.ack(l)
	}
	if err := j.finish(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(j.list()); err != nil {
		t.Fatalf("the list is not kept: %v", err)
	}
	j.gate = make(chan struct{})
	return j
}

func manyKey(i int) string { return fmt.Sprintf("many/%06d-%064d.tar", i, i*i) }

// list returns the path of the list.
func (j *job) list() string { return filepath.Join(j.dir, "train", listName) }

// remove removes an object of the source.
func (j *job) remove(key string) {
	j.t.Helper()
	if err := j.mem.Delete(j.t.Context(), key); err != nil {
		j.t.Fatal(err)
	}
}

// opened starts the job and waits for its window.
func (j *job) opened() {
	j.t.Helper()
	j.start()
	j.await("open", func() bool { return j.Snapshot().Inputs[0].Window != nil })
}

// checked waits until the list is compared with the source.
func (j *job) checked() {
	j.t.Helper()
	j.await("checked", func() bool { return !j.unconfirmed("train") })
}

// A restart listed a million objects again before the first shard.
func TestWindowContinuesBeforeSourceIsListedAgain(t *testing.T) {
	j := listedJob(t, "")
	for want := range 2 { // also after a process that did not finish the comparison
		j.opened()
		l := j.lease()
		if l.Pos != 2+want {
			t.Errorf("got %+v, want position %d", l, 2+want)
		}
		j.ack(l)
		if code, body := j.call("PUT", "/v1/inputs/train/cursor", "{}"); code != 503 {
			t.Errorf("a rewind before the list is confirmed: got %d %s, want 503", code, body)
		}
		if want == 0 {
			if err := j.finish(); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(j.gate)
	j.checked()
	if l := j.lease(); l.Pos != 4 {
		t.Errorf("once the source is listed: got %+v, want position 4", l)
	}
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}

// Whatever happened to the source: once it is listed again, the plan is that of a restart that lists
// first.
func TestChangedSourceStartsAgainWithNewList(t *testing.T) {
	for name, change := range map[string]func(j *job) (first string){
		"an object more": func(j *job) string {
			j.mem.Put("many/000000-.tar", []byte("new"))
			return "000000-.tar"
		},
		"an object less": func(j *job) string {
			j.remove(manyKey(0))
			return filepath.Base(manyKey(1))
		},
		"another content": func(j *job) string {
			j.mem.Put(manyKey(0), []byte("other"))
			return filepath.Base(manyKey(0))
		},
		"the next object is gone": func(j *job) string {
			j.remove(manyKey(2))
			return filepath.Base(manyKey(0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := listedJob(t, ", parallel: 1")
			first := change(j)
			j.opened()
			if !j.unconfirmed("train") {
				t.Fatal("the list was not used")
			}
			before := j.Snapshot().Inputs[0].Window.Plan
			close(j.gate)
			j.await("another plan", func() bool {
				w := j.Snapshot().Inputs[0].Window
				return w != nil && w.Plan != before
			})
			if l := j.lease(); l.Pos != 0 || !strings.HasSuffix(l.Path, first) {
				t.Errorf("got %+v, want %s at position 0", l, first)
			}
			if err := j.finish(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(j.list()); err != nil {
				t.Errorf("the new list is not kept: %v", err)
			}
		})
	}
}

// What other processes put in the place of the list, or of a part of it, is not used.
func TestWindowListsAgainIfListIsNotItsOwn(t *testing.T) {
	edit := func(change func([]byte) []byte) func(path string) error {
		return func(path string) error {
			text, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path, change(text), 0o600))
		}
	}
	replaced := func(put func(path string) error) func(path string) error {
		return func(path string) error { return errors.Join(os.Remove(path), put(path)) }
	}
	cases := map[string]func(path string) error{
		"one byte":       edit(func(text []byte) []byte { text[len(text)/2] ^= 1; return text }),
		"cut":            edit(func(text []byte) []byte { return text[:len(text)-1] }),
		"empty":          edit(func([]byte) []byte { return nil }),
		"others write":   func(path string) error { return os.Chmod(path, 0o666) },
		"another name":   func(path string) error { return os.Link(path, path+".2") },
		"link":           replaced(func(path string) error { return os.Symlink("/etc/passwd", path) }),
		"FIFO":           replaced(func(path string) error { return unix.Mkfifo(path, 0o600) }),
		"directory":      replaced(func(path string) error { return os.MkdirAll(filepath.Join(path, "in"), 0o700) }),
		"another filter": nil,
		"removed":        os.Remove,
	}
	j := listedJob(t, "")
	first := true
	for name, change := range cases {
		if !first { // a fresh list
			if err := os.RemoveAll(j.list()); err != nil {
				t.Fatal(err)
			}
			j.gate = make(chan struct{})
			close(j.gate)
			j.opened()
			j.lease()
			if err := j.finish(); err != nil {
				t.Fatal(err)
			}
			j.gate = make(chan struct{})
		}
		first = false
		plan := j.plan
		if change == nil {
			j.plan = strings.Replace(j.plan, "\"*.tar\"", "\"0*.tar\"", 1)
		} else if err := change(j.list()); err != nil {
			t.Fatal(err)
		}
		close(j.gate)
		j.opened()
		if l := j.lease(); l.End || l.Pos < 2 && change != nil {
			t.Errorf("%s: got %+v, want a position that was not acknowledged", name, l)
		}
		if j.unconfirmed("train") || j.inputs[0].check != nil {
			t.Errorf("%s: the list was used", name)
		}
		if err := j.finish(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		j.plan = plan
	}
}

// Another process cannot make stager read what the input does not select, with stager's credentials.
func TestListNamesNoObjectThatIsNotSelected(t *testing.T) {
	for _, key := range []string{"secret.txt", "../other/a.tar", "/a.tar", "000001-" + strings.Repeat("x", 300) + ".tar", filepath.Base(manyKey(0))} {
		j := listedJob(t, "")
		in := newInput(mustParse(j).Spec.Inputs[0])
		store, err := j.open(t.Context(), in.spec.Source, in.spec.Credentials)
		if err != nil {
			t.Fatal(err)
		}
		list := catalogue.NewWriter(in.scratch)
		for i := range manyObjects {
			err = errors.Join(err, list.Add(backends.Object{Key: filepath.Base(manyKey(i)), Size: 4}))
		}
		err = errors.Join(err, list.Add(backends.Object{Key: key, Size: 4}))
		listed, ferr := list.Finish()
		if err = errors.Join(err, ferr); err != nil {
			t.Fatal(err)
		}
		file, err := complete(in.spec, listed, store)
		if err != nil || file == nil {
			t.Fatalf("got %v (%v), want a file", file, err)
		}
		if err := errors.Join(disk.Keep(file, in.spec.Path, listName), listed.Close()); err != nil {
			t.Fatal(err)
		}
		if listed, _, err := readList(t.Context(), in, store); err == nil || listed != nil {
			t.Errorf("key %.20q: got a list of %d objects", key, listed.Len())
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// skipTo makes the window continue with its last n positions.
func (j *job) skipTo(n int) {
	j.t.Helper()
	var c window.Cursor
	code, body := j.call("GET", "/v1/inputs/train/cursor", "")
	if err := json.Unmarshal([]byte(body), &c); code != 200 || err != nil {
		j.t.Fatalf("the cursor is %d %s", code, body)
	}
	c.Finished, c.Leased = map[int][]window.Span{0: {{0, manyObjects - n - 1}}}, nil
	text, err := json.Marshal(c)
	if err != nil {
		j.t.Fatal(err)
	}
	if code, body := j.call("PUT", "/v1/inputs/train/cursor", string(text)); code != 200 {
		j.t.Fatalf("a rewind is %d %s", code, body)
	}
}

// The epoch ended with the shards of the old list, although the source had more.
func TestWindowDoesNotEndBeforeSourceIsListedAgain(t *testing.T) {
	for _, grown := range []bool{false, true} {
		j := listedJob(t, "")
		close(j.gate)
		j.opened()
		j.checked()
		j.skipTo(2)
		j.ack(j.lease())
		if err := j.finish(); err != nil {
			t.Fatal(err)
		}
		if grown {
			j.mem.Put("many/one-more.tar", []byte("data"))
		}
		j.gate = make(chan struct{})
		j.opened()
		j.ack(j.lease())
		if code, body := j.call("POST", "/v1/inputs/train/lease?wait=300ms", ""); code != 204 {
			t.Errorf("before the source is listed: got %d %s, want 204", code, body)
		}
		close(j.gate)
		j.checked()
		l := j.lease()
		if l.End == grown || grown && l.Pos != 0 {
			t.Errorf("grown %v: got %+v, want the end or the first shard of the new list", grown, l)
		}
		if err := j.finish(); err != nil {
			t.Error(err)
		}
		if grown {
			continue
		}
		j.mem.Put("many/one-more.tar", []byte("data"))
		j.opened()
		if l := j.lease(); l.End {
			t.Error("a source that has grown since the end was not listed again")
		}
		if err := j.finish(); err != nil {
			t.Error(err)
		}
	}
}

// After an error a restart must not meet the same list again.
func TestFailedWindowDropsItsList(t *testing.T) {
	j := listedJob(t, "")
	close(j.gate)
	j.opened()
	j.checked()
	j.remove(manyKey(manyObjects - 1))
	j.skipTo(2)
	j.await("failed", func() bool { return j.Snapshot().Inputs[0].Error != "" })
	if _, err := os.Stat(j.list()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no list", err)
	}
	if err := j.finish(); err == nil {
		t.Error("got no error for an object that is gone")
	}
	j.opened()
	if l := j.lease(); l.Pos != 0 || j.inputs[0].check != nil {
		t.Errorf("got %+v, want position 0 of a new list", l)
	}
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}
