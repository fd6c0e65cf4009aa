package download

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/window/disk"
)

// written returns the state of a local file with a size and modification time.
func written(size, mtime int64) disk.State {
	return disk.State{Size: size, ModTime: time.Unix(mtime, 999), Inode: 7, Changed: 1700}
}

func object(size, mtime int64, version string) backends.Object {
	obj := backends.Object{Key: "k", Size: size, Version: backends.Version(version)}
	if mtime != 0 {
		obj.ModTime = time.Unix(mtime, 5)
	}
	return obj
}

func TestRecordDecidesWhatToFetch(t *testing.T) {
	const (
		here   = `{"source":"s","boot":"HERE"}`
		before = `{"source":"s","boot":"another"}`
		file   = `{"path":"k","size":5,"mtime":100,"version":"v1"}`
		plain  = `{"path":"k","size":5,"mtime":100}`
		exact  = `{"path":"k","size":5,"mtime":100,"version":"v1","ino":7,"ctime":1700}`
		other  = `{"path":"k","size":5,"mtime":100,"version":"v1","ino":8,"ctime":1700}`
		older  = `{"path":"k","size":5,"mtime":100,"version":"v1","ino":7,"ctime":1600}`
		later  = `{"path":"k","size":5,"mtime":200,"version":"v2","ino":9,"ctime":2700}`
		last   = `{"path":"k","size":5,"mtime":300,"version":"v3","ino":10,"ctime":3700}`
		synced = `{"synced":true}`
	)
	for _, tt := range []struct {
		name  string
		lines []string
		obj   backends.Object
		now   disk.State
		want  standing
	}{
		{"as noted", []string{here, file, synced}, object(5, 100, "v1"), written(5, 100), warm},
		{"not synced, same boot", []string{here, file}, object(5, 100, "v1"), written(5, 100), warm},
		{"not synced, lost", []string{before, file}, object(5, 100, "v1"), written(5, 100), ours},
		{"synced in another boot", []string{before, file, synced}, object(5, 100, "v1"), written(5, 100), warm},
		{"synced by a later run of the boot", []string{here, file, here, synced}, object(5, 100, "v1"), written(5, 100), warm},
		{"lost, whatever a later run synced", []string{before, file, here, synced}, object(5, 100, "v1"), written(5, 100), ours},
		{"lost, then fetched again", []string{before, file, here, file, synced}, object(5, 100, "v1"), written(5, 100), warm},
		{"another version, alike", []string{here, file, synced}, object(5, 100, "v2"), written(5, 100), ours},
		{"another version, other time", []string{here, file, synced}, object(5, 200, "v2"), written(5, 100), ours},
		{"edited here", []string{here, file, synced}, object(5, 100, "v1"), written(5, 101), foreign},
		{"longer here", []string{here, file, synced}, object(5, 100, "v1"), written(6, 100), foreign},
		{"of another source", []string{`{"source":"t","boot":"HERE"}`, file, synced}, object(6, 200, "v1"), written(5, 100), foreign},
		{"no record, alike", nil, object(5, 100, "v1"), written(5, 100), alike},
		{"no record, no time", nil, object(5, 0, "v1"), written(5, 100), alike},
		{"no record, no time, after a power failure", []string{before}, object(5, 0, "v1"), written(5, 100), alike},
		{"no record, no time, another size", nil, object(6, 0, "v1"), written(5, 100), foreign},
		{"no record, another time", nil, object(5, 100, "v1"), written(5, 101), foreign},
		{"not noted before a power failure, alike", []string{before}, object(5, 100, "v1"), written(5, 100), ours},
		{"cut short by a power failure", []string{before, file}, object(5, 100, "v1"), written(0, 100), ours},
		{"cut short, not noted before a power failure", []string{before}, object(5, 100, "v1"), written(3, 100), ours},
		{"shorter after a power failure, and written later", []string{before, file}, object(5, 100, "v1"), written(3, 101), foreign},
		{"shorter, and there was no power failure", []string{here, file, synced}, object(5, 100, "v1"), written(3, 100), foreign},
		{"no versions, as noted", []string{here, plain, synced}, object(5, 100, ""), written(5, 100), warm},
		{"no versions, a newer object", []string{here, plain, synced}, object(5, 200, ""), written(5, 100), ours},
		{"no versions nor times", []string{here, plain, synced}, object(5, 0, ""), written(5, 100), warm},
		{"a torn line", []string{here, file, synced, here, file[:20]}, object(5, 100, "v1"), written(5, 100), warm},
		{"this very file", []string{here, exact, synced}, object(5, 100, "v1"), written(5, 100), warm},
		{"this very file, another version", []string{here, exact, synced}, object(5, 100, "v2"), written(5, 100), ours},
		{"another file in its place", []string{here, other, synced}, object(5, 100, "v1"), written(5, 100), touched},
		{"another file, a newer object", []string{here, other, synced}, object(5, 200, "v2"), written(5, 100), foreign},
		{"changed since, with its time set back", []string{here, older, synced}, object(5, 100, "v1"), written(5, 100), touched},
		{"changed since, a newer object", []string{here, older, synced}, object(5, 200, "v2"), written(5, 100), ours},
		{"replaced before a power failure that lost the name", []string{here, exact, synced, before, later}, object(5, 200, "v2"), written(5, 100), ours},
		{"replaced twice before power failures", []string{here, exact, synced, before, later, before, last}, object(5, 300, "v3"), written(5, 100), ours},
		{"replaced before a power failure, and the name is there", []string{here, exact, synced, before, later}, object(5, 200, "v2"), written(5, 200), ours},
		{"replaced before a power failure, and the object is as before", []string{here, exact, synced, before, later}, object(5, 100, "v1"), written(5, 100), warm},
		{"replaced before a power failure, and another file is there", []string{here, exact, synced, before, later}, object(5, 200, "v2"), written(5, 101), foreign},
		{"replaced and synced, and an older file is there", []string{here, exact, synced, here, later, synced}, object(5, 200, "v2"), written(5, 100), foreign},
		{"a long line", []string{here, exact, synced, `{"path":"` + strings.Repeat("x", 3<<20) + `"}`}, object(5, 100, "v1"), written(5, 100), warm},
		{"rubbish", []string{"\x00", "[]", here, file, "{", synced}, object(5, 100, "v1"), written(5, 100), warm},
	} {
		dir := t.TempDir()
		f := directory(t, dir)
		text := strings.ReplaceAll(strings.Join(tt.lines, "\n"), "HERE", disk.Boot())
		if tt.lines != nil {
			if err := os.WriteFile(filepath.Join(dir, recordName), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, err := openRecord(f, "s")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.judge(tt.obj, tt.now); got != tt.want {
			t.Errorf("%s: judged %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestRecordRoundTrip(t *testing.T) {
	dir := t.TempDir()
	f := directory(t, dir)
	// An earlier run was killed in the middle of a line.
	if err := os.WriteFile(filepath.Join(dir, recordName), []byte(`{"source":"s","bo`), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := openRecord(f, "s")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.begin(); err != nil {
		t.Fatal(err)
	}
	odd := object(5, 100, "\"<v>\" \x01\u2028")
	odd.Key = strings.Repeat("<&>\\", 40_000) // longer than any buffer
	if err := r.add(odd, odd.ModTime, written(5, 100)); err != nil {
		t.Fatal(err)
	}
	r.close()
	if r, err = openRecord(f, "s"); err != nil {
		t.Fatal(err)
	}
	if got := r.judge(odd, written(5, 100)); got != warm || !r.pending {
		t.Errorf("judged %d, pending %v; want %d, true", got, r.pending, warm)
	}
	if err := r.begin(); err != nil {
		t.Fatal(err)
	}
	if err := r.synced(); err != nil {
		t.Fatal(err)
	}
	r.close()
	if r, err = openRecord(f, "s"); err != nil || r.pending {
		t.Errorf("pending after it was synced (%v)", err)
	}
}

// Memory is taken for lines, not for what another process fills the record with.
func TestRecordOfJunkTakesNoMemory(t *testing.T) {
	dir := t.TempDir()
	f := directory(t, dir)
	text := "{\"source\":\"s\",\"boot\":\"b\"}\n{\"path\":\"k\",\"size\":7,\"mtime\":7}\n" + strings.Repeat("junk\n", 1<<20)
	if err := os.WriteFile(filepath.Join(dir, recordName), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := openRecord(f, "s")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.marks) != 1 || cap(r.marks) > 100 {
		t.Errorf("got %d lines in room for %d, want 1", len(r.marks), cap(r.marks))
	}
}

func TestRecordStaysSmall(t *testing.T) {
	dir := t.TempDir()
	f := directory(t, dir)
	var text strings.Builder
	fmt.Fprintf(&text, "{\"source\":\"t\",\"boot\":\"b\"}\n{\"path\":\"k\",\"size\":7,\"mtime\":7}\n{\"synced\":true}\n")
	for i := range 3000 {
		fmt.Fprintf(&text, "{\"source\":\"s\",\"boot\":\"b\"}\n{\"path\":\"k\",\"size\":5,\"mtime\":%d,\"version\":\"v\"}\n", i)
	}
	text.WriteString("{\"synced\":true}")
	if err := os.WriteFile(filepath.Join(dir, recordName), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := openRecord(f, "s")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.judge(object(5, 2999, "v"), written(5, 2999)); got != warm {
			t.Errorf("the latest line is judged %d, want %d", got, warm)
		}
		if got := r.judge(object(5, 9, "v"), written(5, 2998)); got != foreign {
			t.Errorf("an older line is judged %d, want %d", got, foreign)
		}
	}
	after, err := os.ReadFile(filepath.Join(dir, recordName))
	if n := strings.Count(string(after), "path"); err != nil || n != 2 {
		t.Errorf("%d lines about files are left (%v), want 2", n, err)
	}
}

// Lines as add writes them are plain, whatever is in them, unless json escapes it.
func TestPlainLinesAreThoseOfRecords(t *testing.T) {
	number := rapid.Int64Range(0, math.MaxInt64)
	rapid.Check(t, func(t *rapid.T) {
		l := line{
			Path: rapid.StringMatching(`[a-zA-Z0-9 !#-%'-;=?@^_{|}~\[\]]{1,40}`).Draw(t, "path"), Version: rapid.StringMatching(`[a-zA-Z0-9-]{0,40}`).Draw(t, "version"),
			Size: number.Draw(t, "size"), MTime: number.Draw(t, "mtime"), Inode: uint64(number.Draw(t, "ino")), Changed: number.Draw(t, "ctime"),
		}
		raw, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := plainLine(raw); !ok || !got.is(l) {
			t.Errorf("%s: got %+v %v, want %+v", raw, got, ok, l)
		}
	})
}

// is reports whether the line is that of l.
func (f fileLine) is(l line) bool {
	return string(f.path) == l.Path && string(f.version) == l.Version && f.size == l.Size && f.mtime == l.MTime && f.inode == l.Inode && f.changed == l.Changed
}

// A plain line is what json decodes, and a line about a file.
func FuzzPlainLine(f *testing.F) {
	for _, text := range []string{
		`{"path":"k","size":5,"mtime":1,"version":"v","ino":7,"ctime":8}`, `{"path":"k"}`, `{"path":"k","size":-1}`, `{"path":"k","size":-}`, `{"path":"k","size":01}`, `{"path":"","size":1}`,
		`{"path":"\u0041"}`, `{"path":"é"}`, `{"path":"k","size":1,"size":2}`, `{"path":"k","ino":-1}`, `{"path":"k","size":9223372036854775808}`, `{"path":"k","size":-0}`, `{"path":"k"} `, `{"path":"k","unpacked":{}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, ok := plainLine(text)
		if !ok {
			return
		}
		var want line
		if err := json.Unmarshal(text, &want); err != nil || !got.is(want) || want.Source != "" || want.Synced || want.Unpacked != nil {
			t.Errorf("%q: got %+v, want %+v (%v)", text, got, want, err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte("{\"source\":\"s\",\"boot\":\"b\"}\n{\"path\":\"k\",\"size\":5,\"mtime\":1}\n{\"synced\":true}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		fo := directory(t, dir)
		if err := os.WriteFile(filepath.Join(dir, recordName), text, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := openRecord(fo, "s")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.begin(); err != nil {
			t.Fatal(err)
		}
		if err := r.add(object(5, 100, "v"), time.Unix(100, 0), written(5, 100)); err != nil {
			t.Fatal(err)
		}
		r.close()
		if r, err = openRecord(fo, "s"); err != nil {
			t.Fatal(err)
		}
		if got := r.judge(object(5, 100, "v"), written(5, 100)); got != warm {
			t.Errorf("after %q a new line is judged %d, want %d", text, got, warm)
		}
	})
}
