package disk

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func open(t *testing.T, dir string) *Dir {
	t.Helper()
	f, err := Open(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestRangesJoin(t *testing.T) {
	for _, tt := range []struct {
		add     []Range
		missing []Range
	}{
		{nil, []Range{{0, 100}}},
		{[]Range{{0, 100}}, nil},
		{[]Range{{10, 10}, {30, 10}}, []Range{{0, 10}, {20, 10}, {40, 60}}},
		{[]Range{{10, 10}, {30, 10}, {20, 10}}, []Range{{0, 10}, {40, 60}}},
		{[]Range{{50, 50}, {0, 60}}, nil},
		{[]Range{{10, 5}, {20, 5}, {30, 5}, {0, 90}}, []Range{{90, 10}}},
		{[]Range{{0, 0}}, []Range{{0, 100}}},
	} {
		var rs ranges
		for _, r := range tt.add {
			rs = rs.add(r)
		}
		if got := rs.missing(100); !reflect.DeepEqual(got, tt.missing) {
			t.Errorf("after %v missing %v, want %v", tt.add, got, tt.missing)
		}
	}
}

func TestIncomingResumes(t *testing.T) {
	dir := t.TempDir()
	const size = 3 * noteEvery
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	f := open(t, dir)
	in, err := f.Incoming("a/b", size, "v1")
	if err != nil {
		t.Fatal(err)
	}
	// The first range is recorded. The second is incomplete, so a kill would lose it.
	for off := int64(0); off < noteEvery+1<<20; off += 1 << 20 {
		if _, err := in.WriteAt(data[off:off+1<<20], off); err != nil {
			t.Fatal(err)
		}
	}
	f.Close() // like a kill: the Incoming is not closed

	f = open(t, dir)
	in, err = f.Incoming("a/b", size, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := in.Missing(), []Range{{noteEvery, 2 * noteEvery}}; !in.Resumed() || !reflect.DeepEqual(got, want) {
		t.Fatalf("resumed %v, missing %v, want %v", in.Resumed(), got, want)
	}
	if err := in.Publish("a/b", 0o444, time.Time{}); err == nil {
		t.Fatal("published a file of which bytes are missing")
	}
	if _, err := in.WriteAt(data[noteEvery:], noteEvery); err != nil {
		t.Fatal(err)
	}
	when := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := in.Publish("a/b", 0o444, when); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "a/b"))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("published %d bytes (%v), want the %d that were written", len(got), err, size)
	}
	if info, err := os.Stat(filepath.Join(dir, "a/b")); err != nil || info.Mode() != 0o444 || !info.ModTime().Equal(when) {
		t.Errorf("published as %v at %v (%v), want 0444 at %v", info.Mode(), info.ModTime(), err, when)
	}
	left, _ := os.ReadDir(filepath.Join(dir, incomingDir))
	if len(left) != 0 {
		t.Errorf("left behind %v", left)
	}
}

func TestIncomingRestartsForAnotherVersion(t *testing.T) {
	f := open(t, t.TempDir())
	const size = 2 * noteEvery
	in, err := f.Incoming("x", size, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.WriteAt(make([]byte, noteEvery), 0); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	in, err = f.Incoming("x", size, "v2")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := in.Missing(), []Range{{0, size}}; in.Resumed() || !reflect.DeepEqual(got, want) {
		t.Errorf("resumed %v, missing %v, want %v", in.Resumed(), got, want)
	}
}

func TestIncomingRejectsEscapingNames(t *testing.T) {
	f := open(t, t.TempDir())
	for _, name := range []string{"../x", "/etc/x", "a/../../x"} {
		in, err := f.Incoming("id", 1, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		if err := in.Publish(name, 0o444, time.Time{}); err == nil {
			t.Errorf("published as %q, want an error", name)
		}
		if err := in.Discard(); err != nil {
			t.Error(err)
		}
	}
	if in, err := f.Incoming("id", 4, ""); err != nil {
		t.Error(err)
	} else if _, err := in.WriteAt([]byte("12345"), 0); err == nil {
		t.Error("took more bytes than the file has")
	}
}

func TestLockErrorNamesFirstHolder(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	var busy *BusyError
	if _, err := Open(dir, "second"); !errors.As(err, &busy) || busy.Holder != "test" {
		t.Errorf("got %v, want a BusyError that names test", err)
	}
}

// A job copied its code directory with cp -r as another user, and cp failed on a lock file that
// others could not read.
func TestLockFileIsReadableByAll(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	info, err := os.Stat(filepath.Join(dir, Private, "LOCK"))
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode&0o444 != 0o444 {
		t.Errorf("LOCK has mode %v, want it readable by all", mode)
	}
}

func TestIncomingReportsFullDiskBeforeFirstByte(t *testing.T) {
	f := open(t, t.TempDir())
	if _, err := f.Incoming("huge", 1<<60, ""); err == nil {
		t.Error("reserved an exabyte")
	}
	if left, _ := fs.ReadDir(f.Root().FS(), incomingDir); len(left) != 0 {
		t.Errorf("left behind %v", left)
	}
}

// A link to a directory within is followed, because the owner of a shared directory may have made
// it. A link that leads out, and a file in place of a directory, are errors.
func TestRootedPathOfName(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	for name, err := range map[string]error{
		"real": os.Mkdir(filepath.Join(dir, "real"), 0o755), "file": os.WriteFile(filepath.Join(dir, "file"), nil, 0o644),
		"within": os.Symlink("real", filepath.Join(dir, "within")), "out": os.Symlink(t.TempDir(), filepath.Join(dir, "out")),
		"last": os.Symlink("real", filepath.Join(dir, "last")),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	for name, at := range map[string]string{
		"x": "x", "a/b/c": "a/b/c", "within/x": "real/x", "last": "last", // a link of the name itself is replaced
		"out/x": "", "file/x": "", "..": "", ".": "", "a/..": "", "a/.": "", "": "", "a//b": "", "/x": "",
	} {
		in, err := f.Incoming("id", 1, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		err = in.Publish(name, 0o444, time.Time{})
		if (err == nil) != (at != "") {
			t.Errorf("published as %q: %v", name, err)
		}
		if info, err := os.Lstat(filepath.Join(dir, at)); at != "" && (err != nil || !info.Mode().IsRegular()) {
			t.Errorf("published as %q, there is %v, %v; want a file", at, info, err)
		}
		if err := in.Discard(); err != nil {
			t.Error(err)
		}
	}
}
