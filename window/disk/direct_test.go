package disk

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/sys"
)

// aligned returns a copy of p in memory that is aligned for direct writes.
func aligned(p []byte) []byte {
	raw := make([]byte, len(p)+4096)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(raw))) & 4095)
	return append(raw[skip:skip], p...)
}

// direct opens a directory in which files of every size are written directly.
func direct(t *testing.T, dir string) *Dir {
	t.Helper()
	f := open(t, dir)
	if err := f.SetWrite(WriteDirect, false, func(err error) { t.Logf("buffered: %v", err) }); err != nil {
		t.Fatal(err)
	}
	f.writing.from = 1
	return f
}

const part = 64 << 10

// FuzzDirectWritesAreWhatArrived writes a file in pieces like network streams: up to the next
// multiple of the buffer, interrupted at odd offsets, several at once, and with a kill in between.
func FuzzDirectWritesAreWhatArrived(f *testing.F) {
	for _, size := range []uint32{0, 1, 511, 512, 4095, 4096, 4097, part - 1, part, part + 1, 2*part - 1, 2*part + 4097, 3 * part, 3*part + 1} {
		f.Add(size, uint64(size)+7, false)
		f.Add(size, uint64(size), true)
	}
	f.Fuzz(func(t *testing.T, size uint32, seed uint64, killed bool) {
		size %= 3*part + 2
		random := rand.New(rand.NewPCG(seed, 1))
		want := make([]byte, size)
		for i := range want {
			want[i] = byte(random.Uint32())
		}
		dir := t.TempDir()
		directory := direct(t, dir)
		in, err := directory.Incoming("x", int64(size), "v")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range random.Perm(4) {
			for at, end := int64(r*part), min(int64(r+1)*part, int64(size)); at < end; {
				n := min(part/4-at%(part/4), end-at)
				if random.IntN(4) == 0 {
					n = random.Int64N(n) + 1 // the stream breaks off here
				}
				if _, err := in.WriteAt(aligned(want[at:at+n]), at); err != nil {
					t.Fatal(err)
				}
				at += n
			}
			if killed && random.IntN(2) == 0 { // ranges that were not recorded are received again
				again := random.Int64N(int64(size) + 1)
				if _, err := in.WriteAt(aligned(want[again:]), again); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := make([]byte, size)
		if _, err := in.ReadAt(got, 0); size > 0 && (err != nil || !bytes.Equal(got, want)) {
			t.Fatalf("%d bytes are not what was written (%v)", size, err)
		}
		if err := in.Publish("x", 0o644, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("the file of %d bytes is not what was written (%v)", size, err)
		}
	})
}

func TestWriteIsBufferedWhereDirectIsRefused(t *testing.T) {
	dir := t.TempDir()
	f := direct(t, dir)
	reported := 0
	f.writing.refused = func(error) { reported++ }
	for _, name := range []string{"a", "b"} {
		in, err := f.Incoming(name, 8192, "v")
		if err != nil {
			t.Fatal(err)
		}
		// Simulates a file system that accepts O_DIRECT at open but not at write: the memory is
		// misaligned, and isAligned does not notice.
		odd := aligned(make([]byte, 8193))[1:]
		if in.file.direct != nil {
			if _, err := in.file.direct.WriteAt(odd, 0); isRefusal(err) {
				f.writing.refuse(err)
			} else {
				t.Logf("this file system takes memory at odd places (%v)", err)
				f.writing.refuse(unix.EINVAL)
			}
		}
		if _, err := in.WriteAt(aligned(bytes.Repeat([]byte(name), 8192)), 0); err != nil {
			t.Fatal(err)
		}
		if err := in.Publish(name, 0o644, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != string(bytes.Repeat([]byte(name), 8192)) {
			t.Errorf("%s is not what was written (%v)", name, err)
		}
	}
	if reported != 1 || f.writing.direct.Load() {
		t.Errorf("refusals were told %d times, and direct is %v, want once and false", reported, f.writing.direct.Load())
	}
}

func TestWriteOfAnUnknownKindIsRefused(t *testing.T) {
	if err := open(t, t.TempDir()).SetWrite("diirect", false, nil); err == nil {
		t.Error("it was taken")
	}
}

func TestWriteAutoIsBufferedInMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "stager-test-")
	if errors.Is(err, os.ErrNotExist) {
		dir = t.TempDir() // no tmpfs here: use the file system that there is
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	on, err := sys.FileSystemAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, dir)
	want := on.Name == "ext4" || on.Name == "xfs"
	for _, synced := range []bool{false, true} {
		if err := f.SetWrite(WriteAuto, synced, nil); err != nil {
			t.Fatal(err)
		}
		if got := f.writing.direct.Load(); got != want {
			t.Errorf("synced %v: direct is %v on %s, want %v", synced, got, on.Name, want)
		}
	}
}

func TestSpeedLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	for _, how := range []Write{WriteDirect, WriteBuffered} {
		rate, _, err := Speed(t.Context(), dir, how, 0) // on a busy machine any time is over before the first write
		if err != nil || rate <= 0 {
			t.Errorf("%s: %v bytes a second (%v), want some", how, rate, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left (%v), want nothing", left, err)
	}
}
