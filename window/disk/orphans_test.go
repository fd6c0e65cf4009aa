package disk

import (
	"io/fs"
	"testing"
)

func TestOrphansAreRemoved(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	const size = 2 * noteEvery
	for _, id := range []string{"wanted", "orphan"} {
		in, err := f.Incoming(id, size, "v1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.WriteAt(make([]byte, noteEvery), 0); err != nil {
			t.Fatal(err)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	left, err := f.Orphans()
	if err != nil {
		t.Fatal(err)
	}
	if got := left.Claim("wanted"); got < noteEvery {
		t.Errorf("a leftover of which %d bytes came holds %d bytes of disk", noteEvery, got)
	}
	if got := left.Claim("unknown"); got != 0 {
		t.Errorf("what is not there holds %d bytes", got)
	}
	if err := left.Sweep(); err != nil {
		t.Fatal(err)
	}
	if in, err := f.Incoming("wanted", size, "v1"); err != nil || !in.Resumed() {
		t.Errorf("the claimed leftover is gone (%v)", err)
	} else if err := in.Discard(); err != nil {
		t.Error(err)
	}
	if names, _ := fs.ReadDir(f.Root().FS(), incomingDir); len(names) != 0 {
		t.Errorf("left behind %v", names)
	}
}
