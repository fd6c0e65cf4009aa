package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/window/disk"
)

// push saves a checkpoint with these files.
func push(t *testing.T, b backends.Backend, step int64, files map[string]string) Commit {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, files)
	c, err := PushCheckpoint(t.Context(), PushCheckpointConfig{Store: newStore(b), Path: dir, Step: step})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRestoreSkipsDamagedCheckpoint(t *testing.T) {
	for name, damage := range map[string]func(b *mem.Backend, dir, data string){
		"a byte is wrong": func(b *mem.Backend, _, data string) {
			text, _ := b.Get(data + "model.pt")
			text[17] ^= 1
			b.Put(data+"model.pt", text)
		},
		"two files are swapped": func(b *mem.Backend, _, data string) {
			one, _ := b.Get(data + "optim/rank0.pt")
			two, _ := b.Get(data + "optim/rank1.pt")
			b.Put(data+"optim/rank0.pt", two)
			b.Put(data+"optim/rank1.pt", one)
		},
		"a file is shorter":    func(b *mem.Backend, _, data string) { b.Put(data+"model.pt", []byte("short")) },
		"a file is missing":    func(b *mem.Backend, _, data string) { _ = b.Delete(t.Context(), data+"empty") },
		"COMMIT is torn":       func(b *mem.Backend, dir, _ string) { b.Put(dir+commitKey, []byte(`{"apiVersion":`)) },
		"COMMIT is of a later": func(b *mem.Backend, dir, _ string) { b.Put(dir+commitKey, []byte(`{"apiVersion":"stager.dev/v9"}`)) },
		"COMMIT is of another": func(b *mem.Backend, dir, _ string) { replace(b, dir+commitKey, `"step": 2`, `"step": 3`) },
		"COMMIT is hostile": func(b *mem.Backend, dir, _ string) {
			replace(b, dir+commitKey, `"path": "empty"`, `"path": "../empty"`)
		},
		"COMMIT says other data": func(b *mem.Backend, dir, _ string) { replace(b, dir+commitKey, `"data": "data/`, `"data": "data/../`) },
	} {
		t.Run(name, func(t *testing.T) {
			b := mem.New()
			push(t, b, 1, model("1"))
			second := model("2")
			second["optim/rank1.pt"] = strings.ToUpper(second["optim/rank0.pt"]) // of the same length
			c := push(t, b, 2, second)
			dir := stepDir(2, 0) + "/"
			damage(b, dir, dir+c.Data+"/")
			r, files := restoreNewest(t, b)
			equal(t, "restored", files, model("1"))
			if len(r.FellBackFrom) != 1 || r.FellBackFrom[0].Step != 2 || r.FellBackFrom[0].Reason == "" {
				t.Errorf("fell back from %+v, want step 2 and the reason", r.FellBackFrom)
			}
			where := t.TempDir()
			_, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: where, Step: 2})
			want := backends.Corrupt
			if name == "COMMIT is of a later" { // it is valid, but for a later version
				want = backends.Unsupported
			}
			if got := backends.KindOf(err); got != want || !strings.Contains(err.Error(), "step 2: ") {
				t.Errorf("asked for step 2 alone: got kind %v (%v), want %v", got, err, want)
			}
			if left, _ := os.ReadDir(where); len(left) > 0 {
				t.Errorf("left behind %v", left)
			}
		})
	}
}

func replace(b *mem.Backend, key, old, now string) {
	text, _ := b.Get(key)
	changed := bytes.Replace(text, []byte(old), []byte(now), 1)
	if bytes.Equal(changed, text) {
		panic("the test changes nothing: " + old)
	}
	b.Put(key, changed)
}

func TestRestoreReportsNoCheckpoint(t *testing.T) {
	b := mem.New()
	b.Put(stepDir(9, 0)+"/data/0123456789abcdef/x", []byte("x"))
	for _, step := range []int64{Newest, 9} {
		_, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: filepath.Join(t.TempDir(), "x"), Step: step})
		if backends.KindOf(err) != backends.NotExist || !strings.Contains(err.Error(), "1 step without a COMMIT.json was ignored") {
			t.Errorf("step %d: %v, want not-exist and a word of the uncommitted one", step, err)
		}
	}
}

func TestRestoreDoesNotFallBackIfStoreIsUnreachable(t *testing.T) {
	b := mem.New()
	push(t, b, 1, model("1"))
	push(t, b, 2, model("2"))
	for _, op := range []conformance.Op{conformance.List, conformance.Stat, conformance.Read} {
		faults := new(conformance.Faults).Always(op, conformance.Fail(backends.Unavailable))
		dir := filepath.Join(t.TempDir(), "x")
		_, err := Restore(t.Context(), RestoreConfig{Store: newStore(faults.Wrap(b)), Dir: dir, Step: Newest})
		if backends.KindOf(err) != backends.Unavailable {
			t.Errorf("%s fails: %v, want unavailable", op, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s fails: the directory was made", op)
		}
	}
}

func TestRestoreIntoADirectoryWithFiles(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	first := model("1")
	first["only/in-1"] = "1"
	push(t, b, 1, first)
	push(t, b, 2, model("2"))
	write(t, dir, map[string]string{"mine.txt": "mine"})
	for step, want := range []map[string]string{1: first, 2: model("2")} {
		if step == 0 {
			continue
		}
		r, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: int64(step)})
		if err != nil {
			t.Fatal(err)
		}
		want["mine.txt"] = "mine"
		equal(t, fmt.Sprint("step ", step), read(t, dir), want)
		text, _ := os.ReadFile(filepath.Join(dir, restored))
		var reported Restored
		if err := json.Unmarshal(text, &reported); err != nil || reported.Step != r.Step || reported.Source != "mem://test/"+stepDir(r.Step, 0) {
			t.Errorf("%s says %+v (%v), want step %d and its source", restored, reported, err, r.Step)
		}
	}
	// A directory in a file's place is detected before anything moves.
	before := read(t, dir)
	push(t, b, 3, map[string]string{"model.pt": "3", "optim": "a file where a directory is"})
	if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: Newest}); err == nil {
		t.Error("a directory was replaced by a file")
	}
	equal(t, "after it was refused", read(t, dir), before)
}

func TestModesTimesAndLargeFilesComeBack(t *testing.T) {
	b := mem.NewWith(backends.Capabilities{Parallelism: 4, PartSize: 1 << 20})
	src := t.TempDir()
	const size = 65 << 20 // three ranges
	want := conformance.ContentsOf("large", size).Bytes()
	if err := os.WriteFile(filepath.Join(src, "large"), want, 0o604); err != nil {
		t.Fatal(err)
	}
	when := time.Date(2021, 2, 3, 4, 5, 6, 7, time.UTC)
	if err := os.Chtimes(filepath.Join(src, "large"), when, when); err != nil {
		t.Fatal(err)
	}
	var sent, received int64
	c, err := PushCheckpoint(t.Context(), PushCheckpointConfig{
		Store: newStore(b), Path: src, Step: 0, Progress: func(done, total int64) { sent = max(sent, min(done, total)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := conformance.ContentsOf("large", size).Sum(backends.CRC64NVME).String(); c.Files[0].Digest != got {
		t.Errorf("digest %s, want %s", c.Files[0].Digest, got)
	}
	dir := filepath.Join(t.TempDir(), "a/b")
	_, err = Restore(t.Context(), RestoreConfig{
		Store: newStore(b), Dir: dir, Step: 0, Parallel: 1, Progress: func(done, _ int64) { received = done },
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "large"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("restored %d bytes (%v) that differ", len(got), err)
	}
	info, err := os.Stat(filepath.Join(dir, "large"))
	if err != nil || info.Mode() != fs.FileMode(0o604) || !info.ModTime().Equal(when) {
		t.Errorf("restored as %v of %v, want 0604 of %v", info.Mode(), info.ModTime(), when)
	}
	if received != size {
		t.Errorf("told of %d bytes that came, want %d", received, int64(size))
	}
}

func TestStepsReturnsCommittedAndPartialOnes(t *testing.T) {
	b := mem.New()
	c := push(t, b, 1, model("1"))
	b.Put(stepDir(2, 0)+"/data/0123456789abcdef/x", []byte("xyz"))
	b.Put(stepDir(3, 0)+"/"+commitKey, []byte("torn"))
	b.Put("step-other/x", nil)
	got, err := Steps(t.Context(), newStore(b))
	if err != nil || len(got) != 3 {
		t.Fatalf("got %v, %v; want three steps", got, err)
	}
	if s := got[0]; s.Step != 3 || s.Committed || s.Problem == "" {
		t.Errorf("got %+v, want step 3 with a problem", s)
	}
	if s := got[1]; s.Step != 2 || s.Committed || s.Files != 1 || s.Bytes != 3 {
		t.Errorf("got %+v, want step 2, partial", s)
	}
	if s := got[2]; s.Step != 1 || !s.Committed || s.Files != 3 || s.Bytes != c.Bytes {
		t.Errorf("got %+v, want step 1, committed", s)
	}
}

// A file of several ranges and an odd size is restored identically with and without direct
// writes.
func TestRestoreIsEqualHoweverItIsWritten(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	u := newUploader(t, dir, b, nil)
	want := map[string]string{"model.pt": strings.Repeat("0123456789abcde", (65<<20)/15) + "end", "small": "s"}
	write(t, filepath.Join(dir, "step-1"), want)
	if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
		t.Fatal(err)
	}
	pass(t, u)
	for _, how := range []disk.Write{"", disk.WriteAuto, disk.WriteDirect, disk.WriteBuffered} {
		to := filepath.Join(t.TempDir(), "restored")
		if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: to, Step: Newest, Write: how}); err != nil {
			t.Fatalf("%q: %v", how, err)
		}
		got := read(t, to)
		if !maps.Equal(got, want) {
			t.Errorf("%q: %d files that came back are not those that were saved", how, len(got))
		}
	}
	if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: filepath.Join(t.TempDir(), "x"), Step: Newest, Write: "fast"}); err == nil {
		t.Error("an unknown way of writing was taken")
	}
}
