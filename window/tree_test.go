package window

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/window/disk"
)

// trees returns items of three files each.
func trees(n int) List {
	list := items(n, 3*disk.Block)
	for i := range list {
		list[i].Name, list[i].Tree = strings.TrimSuffix(list[i].Name, ".tar"), true
	}
	return list
}

// A directory is acknowledged like a file: by call, or by removing it or moving it to done/, even
// while stager does not run. A claim holds it.
func TestTreeIsAcknowledgedLikeAFile(t *testing.T) {
	for name, verb := range map[string]func(b *bench, path string) error{
		"removed":       func(_ *bench, path string) error { return os.RemoveAll(path) },
		"moved to done": func(b *bench, path string) error { return os.Rename(path, b.at("done", filepath.Base(path))) },
		"claimed, and removed": func(b *bench, path string) error {
			to := b.at("claimed", "v", "mine")
			b.ok(os.MkdirAll(filepath.Dir(to), 0o777))
			b.ok(os.Rename(path, to))
			b.idle()
			if s := b.Status(); s.Items[Leased] != 1 {
				b.t.Errorf("claimed: got %v, want it leased", s.Items)
			}
			b.ok(os.Remove(filepath.Join(to, "0"))) // a partial removal is not an acknowledgement
			b.idle()
			if s := b.Status(); s.Items[Leased] != 1 || s.Acknowledged != 0 {
				b.t.Errorf("half removed: got %v, want it leased", s.Items)
			}
			return os.RemoveAll(to)
		},
	} {
		for _, away := range []bool{false, true} {
			virtual(t, func(t *testing.T) {
				b := newBench(t, Config{Items: trees(2), Size: 6 * disk.Block, Epochs: 1})
				b.idle()
				b.ok(verb(b, b.at("ready", "e0000-00000000-s00")))
				if away {
					b.crash()
				}
				b.idle()
				b.want("ready", "e0000-00000001-s01")
				b.want("done")
				b.want(".stager/held", "e0000-00000001-s01")
				if s := b.Status(); s.Finished != 1 || s.Used != 3*disk.Block {
					t.Errorf("%s (stager away: %v): got %+v, want one settled", name, away, s)
				}
				if l := b.must(b.lease("r")); l.Pos != 1 || !l.Tree {
					t.Errorf("%s: then comes %+v, want the other", name, l)
				}
			})
		}
	}
}

// A tree that takes less than was reserved releases the difference once it is fetched. After a
// restart it is recognized with its actual size.
func TestTreeReturnsUnusedSpace(t *testing.T) {
	virtual(t, func(t *testing.T) {
		list := trees(3)
		for i := range list {
			list[i].UpTo = true
		}
		b := newBench(t, Config{Items: list, Size: 4 * disk.Block, Epochs: 1, Parallel: 3})
		b.idle()
		// They take 1 and 2 of their 3 blocks. The third has no room before its actual size is
		// known.
		for _, when := range []string{"at first", "after a kill"} {
			b.want("ready", "e0000-00000000-s00", "e0000-00000001-s01")
			if s := b.Status(); s.Used != 3*disk.Block || s.Peak > 4*disk.Block {
				t.Errorf("%s: %d bytes are used, and %d were; want 3 blocks, and 4 at most", when, s.Used, s.Peak)
			}
			b.crash()
			b.idle()
		}
		b.ok(b.Ack(b.must(b.lease("r")).ID))
		b.idle()
		if s := b.Status(); s.Used != 2*disk.Block {
			t.Errorf("%d bytes are used when 1 of 3 blocks went", s.Used)
		}
		// The report has the plan's position, which does not depend on what the tree took.
		if got := b.report(0); len(got) != 1 || got[0].Bytes != list[0].Size {
			t.Errorf("the report has %+v, want one position of %d bytes", got, list[0].Size)
		}
	})
}

// A trainer keeps one image of a directory mapped after its acknowledgement.
func TestTreeKeepsSpaceOfMappedFile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: trees(3), Size: 6 * disk.Block, Epochs: 1, Order: func(int) Order { return Indexes{1, 2, 0} }})
		b.idle()
		if !b.stage.seesOpen {
			t.Fatal("this file system does not report open files")
		}
		l := b.must(b.lease("r"))
		file, err := os.Open(filepath.Join(l.Path, "sub", "1"))
		b.ok(err)
		memory, err := unix.Mmap(int(file.Fd()), 0, 1, unix.PROT_READ, unix.MAP_SHARED)
		b.ok(err)
		b.ok(file.Close())
		b.ok(b.Ack(l.ID))
		for range 2 {
			b.advance(time.Minute)
			if s := b.Status(); s.Items[Zombie] != 1 || s.Items[Ready] != 1 || string(memory) != "b" {
				t.Errorf("while it is mapped got %+v and %q, want its room counted", s, memory)
			}
			b.crash() // the next process recovers it, too
		}
		b.ok(unix.Munmap(memory))
		b.advance(time.Second)
		b.want(".stager/pending")
		b.want(".stager/leaving")
		if s := b.Status(); s.Bytes[Zombie] != 0 || s.Items[Ready] != 2 {
			t.Errorf("when it is unmapped got %+v, want the last in its place", s)
		}
	})
}

// Stager does not delete files that a reader added to a directory.
func TestTreeKeepsReadersFiles(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: trees(1), Size: 3 * disk.Block, Epochs: 1})
		b.idle()
		l := b.must(b.lease("r"))
		b.ok(os.WriteFile(filepath.Join(l.Path, "sub", "cache"), []byte("theirs"), 0o644))
		b.ok(b.Ack(l.ID))
		b.advance(time.Minute)
		if s := b.Status(); !s.Done || s.Used != 0 {
			t.Errorf("got %+v, want it done and nothing counted", s)
		}
		found, err := filepath.Glob(b.at("done", "*", "sub", "cache"))
		if text, _ := os.ReadFile(strings.Join(found, "")); err != nil || string(text) != "theirs" {
			t.Errorf("done/ has %q with %q (%v), want the file that is not stager's", found, text, err)
		}
		if left, _ := filepath.Glob(b.at("done", "*", "*")); len(left) != 1 {
			t.Errorf("done/ has %q, want nothing of the directory itself", left)
		}
	})
}

// After a kill at any step of publishing or removing a directory, the next process finds all of it
// or nothing.
func TestTreeRecoversFromKill(t *testing.T) {
	first := seq{0, 0}.fileName("s00")
	for _, tt := range []struct {
		name string
		do   func(b *bench)
		want []int // positions that are delivered
	}{
		{"its links are half made", func(b *bench) {
			b.rename("ready/"+first, ".stager/whole/"+first)
			links, err := filepath.Glob(b.at(".stager/held", first, "*", "sub"))
			b.ok(err)
			b.ok(os.RemoveAll(links[0]))
		}, []int{0, 1}},
		{"its links are made", func(b *bench) { b.rename("ready/"+first, ".stager/whole/"+first) }, []int{0, 1}},
		{"acknowledged, and out of sight", func(b *bench) {
			l := b.must(b.lease("r"))
			b.ok(b.journal.add("ack", seq{0, 0}, l.ID))
			st, err := b.stage.ready.Stat(first)
			b.ok(err)
			b.rename("ready/"+first, ".stager/leaving/"+pendingName(first, st.Ino))
		}, []int{1}},
		{"acknowledged, and half removed", func(b *bench) {
			l := b.must(b.lease("r"))
			b.ok(b.journal.add("ack", seq{0, 0}, l.ID))
			st, err := b.stage.ready.Stat(first)
			b.ok(err)
			b.rename("ready/"+first, ".stager/leaving/"+pendingName(first, st.Ino))
			b.ok(os.Remove(b.at(".stager/leaving", pendingName(first, st.Ino), "0")))
			links, err := filepath.Glob(b.at(".stager/held", first, "*", "0"))
			b.ok(err)
			b.ok(os.Remove(links[0]))
		}, []int{1}},
		{"dropped, and out of sight", func(b *bench) {
			st, err := b.stage.ready.Stat(first)
			b.ok(err)
			b.ok(b.stage.doom(first, st.Ino))
			b.rename("ready/"+first, ".stager/leaving/"+pendingName(first, st.Ino))
		}, []int{0, 1}},
		{"dropped, and in sight", func(b *bench) {
			st, err := b.stage.ready.Stat(first)
			b.ok(err)
			b.ok(b.stage.doom(first, st.Ino))
		}, []int{0, 1}},
		{"another plan", func(b *bench) { b.cfg.Manifest = "plan-2" }, []int{0, 1}},
	} {
		virtual(t, func(t *testing.T) {
			b := newBench(t, Config{Items: trees(2), Size: 9 * disk.Block, Epochs: 1})
			b.idle()
			tt.do(b)
			b.crash()
			b.advance(time.Minute)
			var got []int
			for {
				l, err := b.lease("r")
				if isEnd(err, 0) {
					break
				}
				b.must(l, err)
				got = append(got, l.Pos)
				for i := range 3 {
					name, _ := treeFile(l.Pos, i)
					if text, err := os.ReadFile(filepath.Join(l.Path, name)); err != nil || string(text) != string(treeBytes(l.Pos, i)) {
						t.Errorf("%s: %s of position %d is %q, %v", tt.name, name, l.Pos, text, err)
					}
				}
				b.ok(b.Ack(l.ID))
				b.advance(time.Second)
			}
			b.advance(time.Second)
			if s := b.Status(); !slices.Equal(got, tt.want) || s.Used != 0 {
				t.Errorf("%s: came %v and %d bytes stay, want %v and none", tt.name, got, s.Used, tt.want)
			}
			for _, dir := range []string{"pending", "leaving", "whole", "incoming"} {
				b.want(".stager/" + dir)
			}
		})
	}
}

// An interrupted fetch resumes with the files that it has, even after a kill.
func TestTreeFetchResumes(t *testing.T) {
	directory, err := disk.Open(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	put := func(version string) *disk.IncomingTree {
		t.Helper()
		in, err := directory.IncomingTree("x", version)
		if err != nil {
			t.Fatal(err)
		}
		return in
	}
	in := put("v1")
	file, err := in.File("a/b", 1, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	if err := in.Keep("a/b", file); err != nil {
		t.Fatal(err)
	}
	if err := directory.Close(); err != nil {
		t.Fatal(err)
	}
	if directory, err = disk.Open(directory.Path(), "test"); err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	left, err := directory.Orphans()
	if err != nil {
		t.Fatal(err)
	}
	left.Claim("x")
	if err := left.Sweep(); err != nil {
		t.Fatal(err)
	}
	if in := put("v1"); !in.Has("a/b", 1) || in.Has("a/b", 2) || in.Has("a", 1) {
		t.Error("the file that was kept is not there, or others are")
	}
	if in := put("v2"); in.Has("a/b", 1) {
		t.Error("a file of another version is there")
	}
	if left, err = directory.Orphans(); err != nil {
		t.Fatal(err)
	}
	if err := left.Sweep(); err != nil {
		t.Fatal(err)
	}
	if names, _ := os.ReadDir(filepath.Join(directory.Path(), ".stager", "incoming")); len(names) != 0 {
		t.Errorf("what nobody claimed leaves %v", names)
	}
}

// wholeTree fails unless a tree has exactly its files.
func (m *model) wholeTree(path string, item int) {
	n := blocks(item, listOf(m.cfg)[item])
	for i := range n {
		name, _ := treeFile(item, i)
		if got, err := os.ReadFile(filepath.Join(path, name)); err != nil || !bytes.Equal(got, treeBytes(item, i)) {
			m.rt.Fatalf("%s/%s holds %q (%v)", path, name, got, err)
		}
	}
	files := 0
	err := filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files++
		}
		return err
	})
	if err != nil || files != n {
		m.rt.Fatalf("%s has %d files (%v), want %d", path, files, err, n)
	}
}
