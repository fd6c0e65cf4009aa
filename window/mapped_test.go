package window

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A trainer maps a shard, closes and acknowledges it, and continues to read: no descriptor is left.
// The window is full and needs the space. But the file stays, and counts, until it is unmapped.
func TestMappedFileStaysUntilUnmapped(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 20, Epochs: 1})
		b.idle()
		if !b.stage.seesOpen {
			t.Fatal("this file system does not report open files")
		}
		l := b.must(b.lease("r"))
		file, err := os.Open(l.Path)
		b.ok(err)
		memory, err := unix.Mmap(int(file.Fd()), 0, 10, unix.PROT_READ, unix.MAP_SHARED)
		b.ok(err)
		b.ok(file.Close())
		b.ok(b.Ack(l.ID))
		b.advance(time.Minute)
		if s := b.Status(); s.Bytes[Zombie] != 10 || s.Used != 20 || s.Items[Ready] != 1 {
			t.Errorf("while it is mapped got %+v, want its 10 bytes counted, and nothing fetched in their place", s)
		}
		b.crash() // the next process recovers it, too
		b.advance(time.Minute)
		if s := b.Status(); s.Bytes[Zombie] != 10 || s.Used != 20 {
			t.Errorf("after a restart got %+v, want its 10 bytes counted", s)
		}
		if left := b.ls(".stager/pending"); len(left) != 1 || string(memory) != "aaaaaaaaaa" {
			t.Errorf("pending holds %q, and the memory %q", left, memory)
		}
		b.ok(unix.Munmap(memory))
		b.advance(time.Second)
		b.want(".stager/pending")
		if s := b.Status(); s.Bytes[Zombie] != 0 || s.Items[Ready] != 2 || s.Used != 20 {
			t.Errorf("when it is unmapped got %+v, want the last shard in its place", s)
		}
	})
}

// A program that lists a rolling window can open each name as long as the file's modification time
// is less than minAge ago. A sampler that skips older files never finds a name missing.
func TestRollingKeepsNamesOpenableForMinAge(t *testing.T) {
	virtual(t, func(t *testing.T) {
		// One epoch, the default of a plan: the window once stopped at its end.
		b := newBench(t, Config{Items: items(5, 10), Size: 30, Release: ReleaseRolling, MinAge: time.Minute, Epochs: 1})
		visible := map[string]time.Time{}
		gone := 0
		for range 600 {
			b.advance(time.Second)
			there := map[string]bool{}
			for _, name := range b.ls("ready") {
				there[name] = true
				if visible[name].IsZero() {
					visible[name] = time.Now()
				}
			}
			for name, since := range visible {
				if !there[name] {
					gone++
					delete(visible, name)
					if age := time.Since(since); age < time.Minute {
						t.Errorf("%s went after %v, want at least a minute", name, age)
					}
				}
			}
		}
		if gone < 15 {
			t.Errorf("%d files were replaced in ten minutes; it should go on and on", gone)
		}
		for _, name := range b.ls("ready") {
			info, err := os.Stat(filepath.Join(b.dir, "ready", name))
			if err != nil || info.Size() != 10 {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// If the kernel does not report open files, as on NFS, the status lists the guarantees that do not
// hold.
func TestStatusWarnsIfOpenFilesAreInvisible(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(2, 10), Size: 20, Epochs: 1})
		if got := b.Status().Cautions; b.stage.seesOpen && len(got) > 0 {
			t.Errorf("got %q, want no caution", got)
		}
		b.stage.seesOpen = false
		b.idle()
		l := b.must(b.lease("r"))
		file, err := os.Open(l.Path)
		b.ok(err)
		defer file.Close()
		b.ok(b.Ack(l.ID))
		b.idle()
		s := b.Status()
		if s.Bytes[Zombie] != 0 || s.Used != 10 {
			t.Errorf("got %+v, want the file gone as soon as it is acknowledged", s)
		}
		if len(s.Cautions) != 1 || !strings.Contains(s.Cautions[0], b.stage.Kind()+") does not report open files: a shard is removed as soon as it is acknowledged") {
			t.Errorf("got %q, want one that says so", s.Cautions)
		}
	})
}
