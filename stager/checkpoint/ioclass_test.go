package checkpoint

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/backends/sys"
)

// classed is a file that records the I/O class in which it was read.
type classed struct {
	io.ReaderAt
	got int
}

func (c *classed) ReadAt(p []byte, off int64) (int, error) {
	c.got, _ = sys.IOClass()
	return c.ReaderAt.ReadAt(p, off)
}

// Uploads read in the idle class until the drain starts, and restore the class of their thread.
func TestUploadsReadInTheIdleClassUntilTheEnd(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, ok := sys.IOClass()
	if !ok {
		t.Fatal("this kernel does not tell a thread's class")
	}
	u := newUploader(t, t.TempDir(), mem.New(), nil)
	u.classes = true
	file := &classed{ReaderAt: strings.NewReader("data")}
	read := func(want int) {
		t.Helper()
		if _, err := io.ReadAll(io.NewSectionReader(giveWay{file, u.givesWay}, 0, 4)); err != nil {
			t.Fatal(err)
		}
		if after, _ := sys.IOClass(); file.got != want || after != before {
			t.Errorf("it was read in class %#x, and the thread has %#x then; want %#x and %#x", file.got, after, want, before)
		}
	}
	read(ioClassIdle)
	if err := u.Drain(t.Context(), Exit{}); err != nil {
		t.Fatal(err)
	}
	read(before)
	u = newUploader(t, t.TempDir(), mem.New(), nil)
	u.classes = false
	read(before)
}

func TestWhichDisksHaveClasses(t *testing.T) {
	sys := t.TempDir()
	put := func(name, text string) {
		name = filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("8:0/queue/scheduler", "none mq-deadline kyber [bfq]\n")
	put("8:16/queue/scheduler", "[none] mq-deadline kyber bfq\n")
	put("8:32/queue/scheduler", "none [mq-deadline] kyber bfq\n")
	put("253:0/queue/scheduler", "none\n")
	put("253:0/slaves/sda", "")
	put("sdb/queue/scheduler", "[none]\n")
	put("sdb/sdb1/partition", "1")
	if err := os.Symlink("sdb/sdb1", filepath.Join(sys, "8:17")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		major, minor uint32
		want         bool
	}{
		{8, 0, true},
		{8, 16, false},
		{8, 32, true},
		{253, 0, true},
		{8, 17, false},
		{9, 9, true},   // no information
		{0, 42, false}, // tmpfs, NFS
	} {
		if got := mayHaveClasses(sys, tt.major, tt.minor); got != tt.want {
			t.Errorf("%d:%d: got %t, want %t", tt.major, tt.minor, got, tt.want)
		}
	}
}
