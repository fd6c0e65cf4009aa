package file_test

import (
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

func TestListReportsWhatItSkips(t *testing.T) {
	dir := t.TempDir()
	b := openFile(t, dir)
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		os.Mkdir(filepath.Join(dir, "void"), 0o700),
		os.WriteFile(filepath.Join(dir, "z"), []byte("z"), 0o600),
		os.Mkdir(filepath.Join(dir, "zz"), 0o700),
		os.Symlink("nowhere", filepath.Join(dir, "lost")),
		os.Mkdir(filepath.Join(dir, "sub"), 0o700),
		os.Symlink("..", filepath.Join(dir, "sub", "loop")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got := make(map[string]bool)
	ctx := backends.WithSkipped(t.Context(), func(s backends.Skipped) { got[s.Key] = s.Vanished })
	for obj, err := range b.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		if obj.Key == "a" { // its directory has been read
			if err := os.Remove(filepath.Join(dir, "z")); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, "zz")); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := map[string]bool{"fifo": false, "void/": false, "lost": false, "sub/loop/": false, "z": true, "zz/": true}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A file that was overwritten and whose modification time was reset had the old version.
func TestVersionChangesEvenIfTimeIsReset(t *testing.T) {
	dir := t.TempDir()
	b := openFile(t, dir)
	name, past := filepath.Join(dir, "a"), time.Now().Add(-time.Hour)
	write := func(text string) backends.Object {
		t.Helper()
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, past, past); err != nil {
			t.Fatal(err)
		}
		obj, err := b.Stat(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
	before := write("old")
	after := before
	for i := 0; after.Version == before.Version && i < 1000; i++ { // the file system's clock may be coarse
		after = write("new")
	}
	if after.Version == before.Version {
		t.Errorf("got version %s twice, want two versions", after.Version)
	}
	_, err := b.OpenRange(t.Context(), before, 0, -1)
	if got := backends.KindOf(err); got != backends.Changed {
		t.Errorf("got %v, want changed", err)
	}
}

func openFile(t *testing.T, dir string) backends.Backend {
	b, _ := store(t, "file://"+dir+"/").Backend()
	return b
}
