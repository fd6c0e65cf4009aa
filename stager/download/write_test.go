package download

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/backends/sys"
	"github.com/stager-dev/stager/window/disk"
)

// cached returns how many bytes of a file are in the page cache.
func cached(t *testing.T, path string) (n int64) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped) //nolint:errcheck // the test ends
	pages := make([]byte, (len(mapped)+os.Getpagesize()-1)/os.Getpagesize())
	if _, _, failed := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mapped[0])), uintptr(len(mapped)), uintptr(unsafe.Pointer(&pages[0]))); failed != 0 {
		t.Fatal(failed)
	}
	for _, page := range pages {
		n += int64(page&1) * int64(os.Getpagesize())
	}
	return n
}

// onDisk returns a directory on a file system that supports direct writes.
func onDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	on, err := sys.FileSystemAt(dir)
	if err == nil && on.Name != "ext4" && on.Name != "xfs" {
		err = fmt.Errorf("%s is neither on ext4 nor on xfs; set TMPDIR to a directory that is", dir)
	}
	live.Require(t, "disk", err)
	return dir
}

// A trainer's own pages stay in the cache while its next shards are fetched.
func TestDirectWritesLeaveThePageCacheAlone(t *testing.T) {
	const size = 96 * mib
	for _, tt := range []struct {
		how         disk.Write
		sync        bool
		least, most int64
	}{
		{disk.WriteAuto, true, 0, size / 20}, // without a sync it depends on the disk
		{disk.WriteDirect, false, 0, size / 20},
		{disk.WriteBuffered, false, size / 20 * 19, size + 1<<20},
	} {
		s := newSource(t, backends.CRC64NVME)
		s.Generate("large.bin", size+1)
		s.faults.Add(conformance.Read, conformance.Cut(20*mib+1), conformance.Cut(4095)) // pages in two parts
		dir := onDisk(t)
		if _, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Write: tt.how, Sync: tt.sync}); err != nil {
			t.Fatal(err)
		}
		holds := cached(t, filepath.Join(dir, "large.bin"))
		if holds < tt.least || holds > tt.most {
			t.Errorf("%s: of %d bytes the page cache holds %d, want %d to %d", tt.how, size, holds, tt.least, tt.most)
		}
	}
}

// An object that is read in odd pieces, interrupted and retried is still correct.
func TestDirectWritesOfEverySize(t *testing.T) {
	for _, how := range []disk.Write{disk.WriteDirect, disk.WriteAuto} {
		t.Run(string(how), func(t *testing.T) { everySize(t, how) })
	}
}

func everySize(t *testing.T, how disk.Write) {
	s := newSource(t, backends.CRC64NVME)
	var sizes []int64
	for _, base := range []int64{8 * mib, 16 * mib, 65 * mib} {
		sizes = append(sizes, base-1, base, base+1, base+4095, base+4096, base+4097)
	}
	for _, size := range sizes {
		s.Generate(fmt.Sprint(size), size)
		s.faults.AddFor(conformance.Read, fmt.Sprint(size), conformance.Cut(size/3), conformance.Cut(mib+4096))
	}
	dir := onDisk(t)
	if _, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Write: how}); err != nil {
		t.Fatal(err)
	}
	for _, size := range sizes {
		holds(t, dir, fmt.Sprint(size), size)
	}
}
