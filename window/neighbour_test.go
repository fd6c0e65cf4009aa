package window

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/window/disk"
)

// Another program put a link, a hard link or a FIFO in place of a file of the window. Through the
// link the window truncated and wrote the target. On the FIFO it hung, and no signal ended it.
func TestWindowWritesOnlyFilesOfItsOwn(t *testing.T) {
	const secret = "of somebody else\n"
	for _, name := range []string{"plan", "journal", "journal.new", "cursor", "cursor.new", "probe", "reports/e0000.jsonl"} {
		for kind, put := range map[string]func(path, victim string) error{
			"link":      func(path, victim string) error { return os.Symlink(victim, path) },
			"hard link": func(path, victim string) error { return os.Link(victim, path) },
			"FIFO":      func(path, _ string) error { return unix.Mkfifo(path, 0o666) },
			"hole": func(path, _ string) error {
				return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<33))
			},
		} {
			if kind == "hole" && name == "reports/e0000.jsonl" {
				continue // it is read on request, and a partial one is valid
			}
			t.Run(name+" "+kind, func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					dir := t.TempDir()
					victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, disk.Private, name)
					if err := errors.Join(os.WriteFile(victim, []byte(secret), 0o600), os.MkdirAll(filepath.Dir(path), 0o755), put(path, victim)); err != nil {
						t.Fatal(err)
					}
					b := newBench(t, Config{Dir: dir, Items: items(2, 10), Size: 40, Epochs: 1})
					b.idle()
					for range 2 {
						b.ok(b.Ack(b.must(b.lease("r")).ID))
						b.crash()
						b.idle()
					}
					if _, err := b.lease("r"); !isEnd(err, 0) {
						t.Errorf("got %v, want the end of epoch 0", err)
					}
					if _, err := gather(b.Report(0)); err != nil {
						t.Errorf("the report: got %v, want none", err)
					}
					if got, err := os.ReadFile(victim); err != nil || string(got) != secret {
						t.Errorf("the other's file holds %q (%v), want %q", got, err, secret)
					}
				})
			})
		}
	}
}

// Between the lease of a shard and its opening, another program replaced its name in ready/ by a
// link. The endpoint next then sent the link's target, a file that only stager's container has.
func TestOpenReadsWhatTheWindowPutThere(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(1, 10), Size: 20, Epochs: 1})
		b.idle()
		l := b.must(b.lease("r"))
		secret := filepath.Join(t.TempDir(), "secret")
		b.ok(os.WriteFile(secret, []byte("topsecret!"), 0o600))
		b.ok(os.Rename(l.Path, b.at("aside")))
		b.ok(os.Symlink(secret, l.Path))
		shard, err := b.Open(l.ID)
		b.ok(err)
		defer shard.Close()
		if got, err := io.ReadAll(shard.File); err != nil || string(got) != "aaaaaaaaaa" {
			t.Errorf("got %q (%v), want the shard", got, err)
		}
		if _, err := b.Open("none"); !errors.Is(err, ErrNoLease) {
			t.Errorf("got %v, want ErrNoLease", err)
		}
	})
}

// The same user may even change files below .stager: the shard is then lost and is fetched again.
func TestOpenOfAChangedShardFetchesItAgain(t *testing.T) {
	for kind, spoil := range map[string]func(held, victim string) error{
		"link": func(held, victim string) error { return errors.Join(os.Remove(held), os.Symlink(victim, held)) },
		"FIFO": func(held, _ string) error { return errors.Join(os.Remove(held), unix.Mkfifo(held, 0o666)) },
		"other file": func(held, victim string) error {
			return errors.Join(os.Remove(held), os.Link(victim, held))
		},
		"truncated": func(held, _ string) error { return errors.Join(os.Chmod(held, 0o600), os.Truncate(held, 3)) },
		"gone":      func(held, _ string) error { return os.Remove(held) },
	} {
		t.Run(kind, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				b := newBench(t, Config{Items: items(1, 10), Size: 20, Epochs: 1})
				b.idle()
				l := b.must(b.lease("r"))
				victim := b.at("victim")
				b.ok(os.WriteFile(victim, []byte("topsecret!"), 0o600))
				b.ok(spoil(b.at(disk.Private, "held", filepath.Base(l.Path)), victim))
				if _, err := b.Open(l.ID); !errors.Is(err, ErrLost) {
					t.Fatalf("got %v, want ErrLost", err)
				}
				if _, err := b.Open(l.ID); !errors.Is(err, ErrNoLease) {
					t.Errorf("got %v, want ErrNoLease", err)
				}
				b.idle()
				l = b.must(b.lease("r"))
				shard, err := b.Open(l.ID)
				b.ok(err)
				defer shard.Close()
				if got, err := io.ReadAll(shard.File); err != nil || string(got) != "aaaaaaaaaa" {
					t.Errorf("got %q (%v), want the shard", got, err)
				}
				if got, err := os.ReadFile(victim); err != nil || string(got) != "topsecret!" {
					t.Errorf("the victim holds %q (%v)", got, err)
				}
			})
		})
	}
}

func TestOpenReadsATreeThatTheWindowPutThere(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: List{{Name: "tree", Size: 3 * disk.Block, Tree: true}}, Size: 10 * disk.Block, Epochs: 1})
		b.idle()
		l := b.must(b.lease("r"))
		secret := filepath.Join(t.TempDir(), "secret")
		b.ok(os.WriteFile(secret, []byte("topsecret!"), 0o600))
		b.ok(os.Remove(filepath.Join(l.Path, "0")))
		b.ok(os.Symlink(secret, filepath.Join(l.Path, "0")))
		shard, err := b.Open(l.ID)
		b.ok(err)
		defer shard.Close()
		for i := range 3 {
			name, _ := treeFile(0, i)
			if got, err := shard.Tree.ReadFile(name); err != nil || string(got) != string(treeBytes(0, i)) {
				t.Errorf("%s: got %q (%v), want what was fetched", name, got, err)
			}
		}
	})
}

// A program of the same user removed all permissions of the window's directories. The window could
// neither fetch nor publish any more, even after that program had exited.
func TestScanMendsTheModesOfDirectories(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 20, Epochs: 1})
		b.idle()
		want := map[string]fs.FileMode{}
		for _, name := range []string{"ready", "claimed", "done", disk.Private, disk.Private + "/incoming", disk.Private + "/held", disk.Private + "/whole"} {
			info, err := os.Lstat(b.at(name))
			b.ok(err)
			want[name] = info.Mode()
			b.ok(os.Chmod(b.at(name), 0))
		}
		b.idle()
		for name, mode := range want {
			if info, err := os.Lstat(b.at(name)); err != nil || info.Mode() != mode {
				t.Errorf("%s has mode %v (%v), want %v", name, info.Mode(), err, mode)
			}
		}
		if info, err := os.Lstat(b.at(disk.Private)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v (%v), want drwx------", disk.Private, info.Mode(), err)
		}
		for range 3 {
			b.idle()
			b.ok(b.Ack(b.must(b.lease("r")).ID))
		}
	})
}

// A rewind uses the cursor that it wrote, even if another object had its name.
func TestRewindReplacesWhatHasItsName(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(2, 10), Size: 40, Epochs: 1})
		b.idle()
		c := b.Cursor()
		b.ok(b.Ack(b.must(b.lease("r")).ID))
		b.ok(unix.Mkfifo(b.at(cursorName), 0o666))
		b.ok(b.Rewind([]Cursor{c}, func(int) int { return 0 }))
		var got Cursor
		text, err := os.ReadFile(b.at(cursorName))
		b.ok(err)
		b.ok(json.Unmarshal(text, &got))
		b.crash()
		b.idle()
		if l := b.must(b.lease("r")); l.Pos != 0 {
			t.Errorf("got position %d, want 0", l.Pos)
		}
		if strings.Join(b.ls(disk.Private), " ") == "" || got.Manifest != c.Manifest {
			t.Errorf("got a cursor of %q, want %q", got.Manifest, c.Manifest)
		}
	})
}
