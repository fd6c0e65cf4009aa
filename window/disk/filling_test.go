package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fill creates an incoming tree of one file with the id "x".
func fill(t *testing.T, f *Dir, text string) *IncomingTree {
	t.Helper()
	tree, err := f.IncomingTree("x", "")
	if err != nil {
		t.Fatal(err)
	}
	into, err := tree.Fill(0o755, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := into.Create("a", int64(len(text)), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Close(), into.Close()); err != nil {
		t.Fatal(err)
	}
	return tree
}

// The disk was full when the record of a directory was written that was to replace another. The old
// directory had been moved away already, and was removed at the next start: both were lost.
func TestPublishOverKeepsTheOldTreeOnAnError(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	now, mine := time.Now(), func(string) (bool, error) { return true, nil }
	if err := fill(t, f, "old").PublishOver("sub/tree", now, mine, func(State) error { return nil }); err != nil {
		t.Fatal(err)
	}
	tree := fill(t, f, "new")
	if err := tree.PublishOver("sub/tree", now, mine, func(State) error { return unix.ENOSPC }); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want %v", err, unix.ENOSPC)
	}
	if err := tree.Discard(); err != nil {
		t.Fatal(err)
	}
	left, err := f.Orphans()
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Sweep(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sub/tree/a")
	if text, err := os.ReadFile(path); string(text) != "old" {
		t.Errorf("after the error the name has %q (%v), want %q", text, err, "old")
	}
	if err := fill(t, f, "new").PublishOver("sub/tree", now, mine, func(State) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); string(text) != "new" {
		t.Errorf("the name has %q (%v), want %q", text, err, "new")
	}
	if names, err := os.ReadDir(filepath.Join(dir, incomingDir)); len(names) > 0 || err != nil {
		t.Errorf("in %s lie %v (%v), want nothing", incomingDir, names, err)
	}
}
