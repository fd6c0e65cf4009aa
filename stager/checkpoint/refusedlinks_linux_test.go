package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/backends/sys"
)

// With fs.protected_hardlinks, the kernel refuses links to another user's files that are not
// writable. A checkpoint that the trainer removed before it was saved was lost. Such files are
// copied while there is room, and otherwise read in place.
func TestSnapshotsWhereLinksAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		free int64
		want []string // steps that are saved: 2 is removed before
	}{
		{"room for copies", 1 << 30, []string{stepDir(1, 0), stepDir(2, 0), stepDir(3, 0)}},
		{"no room for copies", 2*totalOf(model("goes-2")) - 1, []string{stepDir(1, 0), stepDir(3, 0)}},
		{"just room for copies", 2 * totalOf(model("goes-2")), []string{stepDir(1, 0), stepDir(2, 0), stepDir(3, 0)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				u := newUploader(t, dir, b, func(c *Config) { c.When = When{Exit: true} })
				u.snapshots.hardLink = func(old, _ string) error { return &os.LinkError{Op: "link", Old: old, Err: os.ErrPermission} }
				u.snapshots.clone = func(_, _ *os.File) error { return unix.EOPNOTSUPP }
				u.snapshots.free = func(*os.Root) (int64, error) { return tt.free, nil }
				for _, name := range []string{"stays-1", "goes-2", "single-3.pt"} {
					if strings.HasSuffix(name, ".pt") {
						write(t, dir, map[string]string{name: "weights"})
					} else {
						write(t, filepath.Join(dir, name), model(name))
					}
					if _, err := u.Commit(t.Context(), CommitRequest{Path: name, Step: -1}); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.RemoveAll(filepath.Join(dir, "goes-2")); err != nil {
					t.Fatal(err)
				}
				pass(t, u)
				if got := commits(b); !slices.Equal(got, tt.want) {
					t.Errorf("committed %v, want %v", got, tt.want)
				}
				if err := u.Wait(t.Context(), 2); len(tt.want) == 2 && (err == nil || !strings.Contains(err.Error(), "changed")) {
					t.Errorf("waiting for the one that went: %v, want that it changed", err)
				}
				_, files := restoreNewest(t, b)
				equal(t, "restored", files, map[string]string{"single-3.pt": "weights"})
			})
		})
	}
}

func totalOf(files map[string]string) (n int64) {
	for _, text := range files {
		n += int64(len(text))
	}
	return n
}

// A symbolic link of another user cannot be linked either.
func TestSnapshotHoldsSymbolicLinksWhereLinksAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.When = When{Exit: true} })
		u.snapshots.hardLink = func(old, _ string) error { return &os.LinkError{Op: "link", Old: old, Err: os.ErrPermission} }
		write(t, filepath.Join(dir, "step-1"), map[string]string{"model-1.pt": "weights"})
		if err := os.Symlink("model-1.pt", filepath.Join(dir, "step-1", "model.pt")); err != nil {
			t.Fatal(err)
		}
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "step-1")); err != nil {
			t.Fatal(err)
		}
		pass(t, u)
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, map[string]string{"model-1.pt": "weights", "model.pt": "weights"})
	})
}

// asStranger drops root privileges for the calling goroutine.
func asStranger(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread() // the thread ends with the goroutine
	if err := unix.Setfsuid(65532); err != nil {
		t.Error(err)
	}
}

// Unreadable files are reported with owner, mode and advice.
func TestUnreadableFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"step-1/model": "weights", "step-2/secret/model": "weights"})
	for name, mode := range map[string]fs.FileMode{".": 0o777, "step-1/model": 0, "step-2/secret": 0} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "step-2/secret"), 0o700) })
	for up := filepath.Dir(dir); up != filepath.Clean(os.TempDir()); up = filepath.Dir(up) { // only what the test made
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() { // its thread has no privileges, and ends with it
		defer close(done)
		asStranger(t)
		unreadableIsNamed(t, dir)
	}()
	<-done
}

func unreadableIsNamed(t *testing.T, dir string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Error(err)
		return
	}
	defer root.Close()
	for what, call := range map[string]func() error{
		"opening a file": func() error {
			tree, err := openTree(root, "step-1")
			if err == nil {
				defer tree.close()
				_, err = tree.openFile("model")
			}
			return err
		},
		"listing a directory": func() error {
			tree, err := openTree(root, "step-2")
			if err == nil {
				defer tree.close()
				_, _, err = tree.files()
			}
			return err
		},
		"mirroring a file": func() error {
			_, err := openPlain(root, plain{local: local{Path: "step-1/model"}})
			return err
		},
		"mirroring a directory": func() error {
			listed, err := plainWalk(root, true, func(string) bool { return false })
			if err == nil && len(listed.omitted) > 0 {
				err = errors.New(listed.omitted[0].Reason)
			}
			return err
		},
		"copying a file": func() error {
			s := &snapshotDir{root: root, clone: sys.Clone, free: freeSpace}
			_, err := s.instead("step-1/model", "copy", local{Path: "model", Size: 7}, 7, os.ErrPermission)
			return err
		},
	} {
		err := call()
		if want := "cannot be read by stager"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "mode 0000; let its group read it") {
			t.Errorf("%s: %v, want that it %s and the mode", what, err, want)
		}
	}
}
