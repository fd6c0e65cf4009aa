package window

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/window/disk"
)

// bytes reads a leased shard as the endpoint next sends it.
func (b *bench) bytes(l Lease) string {
	b.t.Helper()
	shard, err := b.Open(l.ID)
	b.ok(err)
	defer shard.Close()
	text, err := io.ReadAll(shard.File)
	b.ok(err)
	return string(text)
}

// readAll leases and acknowledges the rest of an epoch. It fails if the bytes are not the item's.
func (b *bench) readAll(epoch int) (positions int) {
	b.t.Helper()
	for range 20 {
		b.idle()
		l, err := b.lease("r")
		if isEnd(err, epoch) {
			return positions
		}
		b.must(l, err)
		want := strings.Repeat(string(rune('a'+l.Name[2]-'0')), int(l.Size)) // s00.tar, s01.tar
		if got := b.bytes(l); got != want {
			b.t.Errorf("position %d: got %q, want %q", l.Pos, got, want)
		}
		b.ok(b.Ack(l.ID))
		positions++
	}
	b.t.Fatalf("epoch %d does not end", epoch)
	return positions
}

// A program of the same user put links and FIFOs into the directories of the second links. Every
// start then failed: "open .stager/whole/x: too many levels of symbolic links", "lease
// .stager/whole/x: invalid argument".
func TestStartRemovesLinksFromOwnDirectories(t *testing.T) {
	for kind, put := range map[string]func(path, victim string) error{
		"link":   func(path, victim string) error { return os.Symlink(victim, path) },
		"FIFO":   func(path, _ string) error { return unix.Mkfifo(path, 0o666) },
		"socket": func(path, _ string) error { return unix.Mknod(path, unix.S_IFSOCK|0o666, 0) },
	} {
		for _, dir := range []string{"whole", "held", "pending", "leaving"} {
			t.Run(kind+" in "+dir, func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					b := newBench(t, Config{Items: items(3, 10), Size: 20, Epochs: 1})
					b.idle()
					victim := filepath.Join(t.TempDir(), "victim")
					b.ok(os.WriteFile(victim, []byte("mine"), 0o600))
					odd := b.at(disk.Private, dir, "x")
					b.ok(put(odd, victim))
					b.crash()
					if got := b.readAll(0); got != 3 {
						t.Errorf("%d positions were delivered, want 3", got)
					}
					if _, err := os.Lstat(odd); !errors.Is(err, os.ErrNotExist) {
						t.Errorf("the %s: got %v, want it removed", kind, err)
					}
					if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
						t.Errorf("the neighbour's file holds %q (%v), want %q", text, err, "mine")
					}
				})
			})
		}
	}
}

// The same with files and directories: "open .stager/leaving/x: not a directory".
func TestStartIgnoresForeignFilesInOwnDirectories(t *testing.T) {
	for kind, put := range map[string]func(path string) error{
		"file":      func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"directory": func(path string) error { return os.MkdirAll(path, 0) },
		"filled directory": func(path string) error {
			return errors.Join(os.MkdirAll(path+"/sub", 0o755), unix.Mkfifo(path+"/sub/f", 0))
		},
	} {
		for _, dir := range []string{"whole", "held", "pending", "leaving", "incoming"} {
			for _, name := range []string{"x", "e0000-00000007-x", "e0007.END"} {
				t.Run(kind+" in "+dir+" as "+name, func(t *testing.T) {
					virtual(t, func(t *testing.T) {
						b := newBench(t, Config{Items: items(3, 10), Size: 1 << 14, Epochs: 1})
						b.idle()
						b.ok(put(b.at(disk.Private, dir, name)))
						for range 2 {
							b.crash()
							b.idle()
						}
						if got := b.readAll(0); got != 3 {
							t.Errorf("%d positions were delivered, want 3", got)
						}
					})
				})
			}
		}
	}
}

// A program of the same user moved a file to the name with which the window records the end of an
// epoch. The epochs before it were then not delivered.
func TestStartIgnoresForeignEndOfEpoch(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 20, Epochs: 1})
		b.idle()
		b.ok(os.WriteFile(b.at(disk.Private, "held", endName(0)), []byte("foreign"), 0o444))
		b.crash()
		if got := b.readAll(0); got != 3 {
			t.Errorf("%d positions were delivered, want 3", got)
		}
	})
}

// A program of the same user exchanged two shards of the same size, or wrote to one, while stager
// was down. After the start, one shard was delivered under the name of the other.
func TestStartAcceptsOnlyVerifiedFiles(t *testing.T) {
	exchange := func(a, b string) error {
		return sys.Exchange(unix.AT_FDCWD, a, unix.AT_FDCWD, b)
	}
	for name, spoil := range map[string]func(b *bench, dir string, files []string) error{
		"exchanged": func(b *bench, dir string, files []string) error {
			if dir == "held" {
				if err := exchange(b.at("ready", files[0]), b.at("ready", files[1])); err != nil {
					return err
				}
			}
			return exchange(b.at(disk.Private, dir, files[0]), b.at(disk.Private, dir, files[1]))
		},
		"written to": func(b *bench, dir string, files []string) error {
			path := b.at(disk.Private, dir, files[0])
			return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("bbbbbbbbbb"), 0))
		},
		"exchanged, and the journal lost": func(b *bench, dir string, files []string) error {
			if dir == "held" {
				if err := exchange(b.at("ready", files[0]), b.at("ready", files[1])); err != nil {
					return err
				}
			}
			return errors.Join(exchange(b.at(disk.Private, dir, files[0]), b.at(disk.Private, dir, files[1])), os.Remove(b.at(disk.Private, "journal")))
		},
	} {
		for dir, epoch := range map[string]int{"held": 0, "whole": 1} {
			t.Run(name+" in "+dir, func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					b := newBench(t, Config{Items: items(2, 10), Size: 40, Epochs: 2})
					b.idle() // the first epoch is published, the second lies in whole/
					files := b.ls(filepath.Join(disk.Private, dir))
					if len(files) != 2 {
						t.Fatalf("%s holds %q, want two shards of epoch %d", dir, files, epoch)
					}
					b.ok(spoil(b, dir, files))
					b.crash()
					for e := range 2 {
						if got := b.readAll(e); got != 2 {
							t.Errorf("%d positions of epoch %d were delivered, want 2", got, e)
						}
					}
				})
			})
		}
	}
}

// The same was possible between the fetch of a shard and its publication. A removed file was never
// fetched again, and the epoch did not end.
func TestPublishAcceptsOnlyTheVerifiedFile(t *testing.T) {
	for name, spoil := range map[string]func(a, b string) error{
		"removed": func(a, _ string) error { return os.Remove(a) },
		"exchanged": func(a, b string) error {
			return sys.Exchange(unix.AT_FDCWD, a, unix.AT_FDCWD, b)
		},
		"FIFO": func(a, _ string) error { return errors.Join(os.Remove(a), unix.Mkfifo(a, 0o666)) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				b := newBench(t, Config{Items: items(2, 10), Size: 40, Epochs: 2})
				b.idle()
				files := b.ls(disk.Private + "/whole")
				if len(files) != 2 {
					t.Fatalf("whole/ holds %q, want the two shards of epoch 1", files)
				}
				b.ok(spoil(b.at(disk.Private, "whole", files[0]), b.at(disk.Private, "whole", files[1])))
				for e := range 2 {
					if got := b.readAll(e); got != 2 {
						t.Errorf("%d positions of epoch %d were delivered, want 2", got, e)
					}
				}
			})
		})
	}
}

// A reader of a broadcast input had claimed a shard when another program removed the window's
// second link: stager panicked.
func TestLostClaimOfABroadcastShardIsFetchedAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(1, 10), Size: 40, Epochs: 1, Groups: 2})
		b.idle()
		name := b.ls("ready")[0]
		b.ok(os.MkdirAll(b.at("claimed", "v"), 0o777))
		b.ok(os.Rename(b.at("ready", name), b.at("claimed", "v", name)))
		b.idle()
		b.ok(os.Remove(b.at(disk.Private, "held", name)))
		b.idle()
		for _, reader := range []string{"a", "b"} {
			if l := b.must(b.lease(reader)); b.bytes(l) != "aaaaaaaaaa" {
				t.Errorf("%s got another shard's bytes", reader)
			}
		}
	})
}
