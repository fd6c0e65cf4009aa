package api

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/window"
	"github.com/stager-dev/stager/window/disk"
)

// swap replaces a shard's name in ready/, as any container that mounts the volume can do.
func swap(t *testing.T, path string, put func(path string) error) {
	t.Helper()
	if err := errors.Join(os.Rename(path, path+".aside"), put(path)); err != nil {
		t.Fatal(err)
	}
}

// An unprivileged container replaced a shard by a link to a file that only stager's container can
// read, after the shard was leased and before it was opened: next sent it a Secret. With a FIFO of
// that name the request blocked, and stager with it even after SIGTERM.
func TestNextSendsTheVerifiedShard(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("topsecret!"), 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, put := range map[string]func(path string) error{
		"link": func(path string) error { return os.Symlink(secret, path) },
		"FIFO": func(path string) error { return unix.Mkfifo(path, 0o666) },
	} {
		t.Run(kind, func(t *testing.T) {
			h := newHouse(t, 1, 10)
			l := mustLease(t, h.win)
			swap(t, l.Path, put)
			b, err := openBody(h.win, l)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			var got bytes.Buffer
			if _, err := b.to(&got); err != nil || got.String() != "aaaaaaaaaa" {
				t.Errorf("got %q (%v), want the shard", got.String(), err)
			}
		})
	}
}

// The same in a shard that is a directory, which is sent as an archive.
func TestNextSendsTheVerifiedFilesOfATree(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("topsecret!"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	size, err := treeTarSize(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(secret, filepath.Join(dir, "b")), unix.Mkfifo(filepath.Join(dir, "c"), 0o666)); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := treeTar(&got, root); err != nil || int64(got.Len()) != size || strings.Contains(got.String(), "topsecret!") {
		t.Errorf("got %d bytes (%v), want the %d of the one file", got.Len(), err, size)
	}
}

// If the same user replaces stager's own link, the shard is lost: the reader gets it after it was
// fetched again.
func TestNextSendsALostShardAfterRefetch(t *testing.T) {
	h := newHouse(t, 1, 10)
	l := mustLease(t, h.win)
	held := filepath.Join(h.cfg.Dir, disk.Private, "held", filepath.Base(l.Path))
	if err := errors.Join(os.Remove(held), unix.Mkfifo(held, 0o666)); err != nil {
		t.Fatal(err)
	}
	if _, err := openBody(h.win, l); !errors.Is(err, window.ErrLost) {
		t.Fatalf("got %v, want ErrLost", err)
	}
	if _, body := h.dial().body(next); body != "aaaaaaaaaa" {
		t.Errorf("got %q, want the shard", body)
	}
}

func mustLease(t *testing.T, win *window.Window) window.Lease {
	t.Helper()
	l, err := win.Lease(t.Context(), window.LeaseRequest{Reader: "a", Wait: 60e9, Bound: true})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
