package lossyfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/lossyfs"
)

func mount(t *testing.T, f *lossyfs.FS) string {
	t.Helper()
	dir := t.TempDir()
	unmount, err := f.Mount(dir)
	live.Require(t, "fuse", err)
	t.Cleanup(func() {
		if err := unmount(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A file that was written, synced, renamed and written again, in each state that a loss of
// power leaves.
func TestLossesOfPower(t *testing.T) {
	f := lossyfs.New()
	f.WriteFile("old", []byte("old"))
	dir := mount(t, f)
	f.Record()
	file, err := os.Create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString("abcd")
	err = errors.Join(err, file.Sync(), os.Rename(file.Name(), filepath.Join(dir, "old")))
	_, werr := file.WriteString("efgh")
	if err := errors.Join(err, werr, file.Close()); err != nil {
		t.Fatal(err)
	}
	r := f.Recorded()
	for loss, want := range map[lossyfs.Loss]string{
		lossyfs.Killed: "abcdefgh", lossyfs.All: "old", lossyfs.Bytes: "abcd", lossyfs.Zeros: "abcd\x00\x00\x00\x00",
		lossyfs.Names: "old", lossyfs.Torn: "abcdef", lossyfs.OneDirectory: "old",
	} {
		got, _ := r.After(r.Len(), loss, 1).ReadFile("old")
		if string(got) != want {
			t.Errorf("got %q after the loss of %s, want %q", got, loss, want)
		}
	}
	sync, err := os.Open(dir)
	if err == nil {
		err = errors.Join(sync.Sync(), sync.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	r = f.Recorded()
	after := r.After(r.Len(), lossyfs.All, 1)
	got, _ := after.ReadFile("old")
	if _, still := after.ReadFile("a"); string(got) != "abcd" || still {
		t.Errorf("got %q and the old name %v after the directory was synced, want abcd and no old name", got, still)
	}
}

func TestCallsFail(t *testing.T) {
	f := lossyfs.New()
	dir := mount(t, f)
	f.Inject(func(c lossyfs.Call) syscall.Errno {
		if c.Op == "write" && c.Path == "a" {
			return syscall.EIO
		}
		return 0
	})
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o600); !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b"), []byte("x"), 0o600); err != nil {
		t.Errorf("got %v, want no error for another path", err)
	}
	f.Inject(nil)
	if err := os.Link(filepath.Join(dir, "b"), filepath.Join(dir, "c")); err != nil {
		t.Error(err)
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) != 3 {
		t.Errorf("got %q (%v), want three names", names, err)
	}
}
