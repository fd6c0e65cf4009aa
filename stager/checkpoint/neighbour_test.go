package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/mem"
)

// The trainer may write to the output's directory. When a FIFO there had the name of one of
// stager's own files, stager hung forever. When a link had such a name, stager wrote through it.
func TestUploaderOpensOnlyFilesOfItsOwn(t *testing.T) {
	const secret = "of somebody else"
	for _, name := range []string{paceName, ledgerName, resumesName, uploadsName, shippedName, shippedName + ".new", private + "/uploader.lock"} {
		for kind, put := range map[string]func(path, victim string) error{
			"link":      func(path, victim string) error { return os.Symlink(victim, path) },
			"hard link": func(path, victim string) error { return os.Link(victim, path) },
			"FIFO":      func(path, _ string) error { return unix.Mkfifo(path, 0o666) },
			"socket":    func(path, _ string) error { return unix.Mknod(path, unix.S_IFSOCK|0o666, 0) },
		} {
			t.Run(filepath.Base(name)+" "+kind, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					b, dir := mem.New(), t.TempDir()
					victim := filepath.Join(dir, "victim.of")
					for _, err := range []error{
						os.MkdirAll(filepath.Join(dir, private), 0o755), os.WriteFile(victim, []byte(secret), 0o600), put(filepath.Join(dir, name), victim),
					} {
						if err != nil {
							t.Fatal(err)
						}
					}
					for step := int64(1); step < 3; step++ {
						u := newUploader(t, dir, b, nil)
						write(t, dir, map[string]string{fmt.Sprintf("step-%d/model.pt", step): "of a step"})
						write(t, dir, map[string]string{fmt.Sprintf("step-%d/.ready", step): ""})
						settled(t, u)
						if err := u.Close(); err != nil {
							t.Fatal(err)
						}
					}
					if got := commits(b); len(got) != 2 {
						t.Errorf("got the commits %q, want those of steps 1 and 2", got)
					}
					if text, err := os.ReadFile(victim); err != nil || string(text) != secret {
						t.Errorf("the other's file holds %q (%v), want %q", text, err, secret)
					}
				})
			})
		}
	}
}

// Another process of the same user put a file, a link and a FIFO among the snapshots. Each start
// of stager failed with an error about an unreadable checkpoint, so nothing was saved any more.
func TestUploaderStartsBesideForeignSnapshots(t *testing.T) {
	for kind, put := range map[string]func(path string) error{
		"file": func(path string) error { return os.WriteFile(path, []byte("mine"), 0o644) },
		"link": func(path string) error { return os.Symlink("/", path) },
		"FIFO": func(path string) error { return unix.Mkfifo(path, 0o666) },
	} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				foreign := filepath.Join(dir, snapshotsName, "e0001.END")
				if err := errors.Join(os.MkdirAll(filepath.Dir(foreign), 0o700), put(foreign)); err != nil {
					t.Fatal(err)
				}
				u := newUploader(t, dir, b, nil)
				write(t, dir, map[string]string{"step-1/model.pt": "of a step"})
				write(t, dir, map[string]string{"step-1/.ready": ""})
				settled(t, u)
				if got := commits(b); len(got) != 1 {
					t.Errorf("got the commits %q, want that of step 1", got)
				}
				if _, err := os.Lstat(foreign); err != nil {
					t.Errorf("the neighbour's %s: got %v, want it left alone", kind, err)
				}
			})
		})
	}
}
