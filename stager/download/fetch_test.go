package download

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/window/disk"
)

// source is a store in memory with scripted faults.
type source struct {
	*mem.Backend
	faults conformance.Faults
	store  *backends.Store

	mu      sync.Mutex
	corrupt map[string]int // number of reads of a key with a wrong byte
}

func newSource(t testing.TB, sum backends.Algorithm) *source {
	t.Helper()
	s := &source{
		Backend: mem.NewWith(backends.Capabilities{Parallelism: 4, Checksum: sum}),
		corrupt: make(map[string]int),
	}
	s.store = backends.NewStore(s.faults.Wrap(&corrupting{s.Backend, s}), "mem://test/data", backends.Options{
		RetryFor: time.Minute,
	})
	return s
}

// reads returns the requested ranges of a key, ascending.
func (s *source) reads(key string) (ranges []disk.Range) {
	for _, c := range s.faults.Calls(conformance.Read) {
		if c.Key == key {
			ranges = append(ranges, disk.Range{Off: c.Off, Len: c.N})
		}
	}
	slices.SortFunc(ranges, func(a, b disk.Range) int { return int(a.Off - b.Off) })
	return ranges
}

func (s *source) calls(op conformance.Op) int { return len(s.faults.Calls(op)) }

// corrupting is a backend that flips a bit.
type corrupting struct {
	backends.Backend
	s *source
}

func (c *corrupting) OpenRange(ctx context.Context, obj backends.Object, off, n int64) (io.ReadCloser, error) {
	body, err := c.Backend.OpenRange(ctx, obj, off, n)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err != nil || c.s.corrupt[obj.Key] == 0 {
		return body, err
	}
	c.s.corrupt[obj.Key]--
	return &corruptBody{ReadCloser: body, sum: body.(backends.ChecksumReader).ObjectChecksum()}, nil
}

type corruptBody struct {
	io.ReadCloser
	sum  backends.Checksum
	done bool
}

func (b *corruptBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !b.done {
		p[0] ^= 1
		b.done = true
	}
	return n, err
}

func (b *corruptBody) ObjectChecksum() backends.Checksum { return b.sum }

// recordName is the path of the record within a directory.
const recordName = disk.Private + "/" + recordFile

func directory(t *testing.T, dir string) *disk.Dir {
	t.Helper()
	f, err := disk.Open(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func incoming(t *testing.T, f *disk.Dir, obj backends.Object) *disk.Incoming {
	t.Helper()
	in, err := f.Incoming(obj.Key, obj.Size, string(obj.Version))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

// holds checks that a file has the contents that were generated for key.
func holds(t *testing.T, dir, key string, size int64) {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, key))
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() != size || info.Mode().Perm() != 0o644 {
		t.Errorf("%s is %v with %d bytes, want -rw-r--r-- with %d", key, info.Mode(), info.Size(), size)
	}
	got, want := make([]byte, 1<<20), make([]byte, 1<<20)
	contents := conformance.ContentsOf(key, size)
	for off := int64(0); off < size; off += 1 << 20 {
		n, _ := contents.ReadAt(want, off)
		if m, err := file.ReadAt(got[:n], off); m != n || !bytes.Equal(got[:n], want[:n]) {
			t.Errorf("%s differs from the object in the MiB at %d (%v)", key, off, err)
			return
		}
	}
}

// extra returns the files below dir that are neither wanted nor stager's own.
func extra(t *testing.T, dir string, wanted ...string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if err == nil && !e.IsDir() && !strings.HasPrefix(name, disk.Private+"/") && !slices.Contains(wanted, name) {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// waiting returns the incomplete files below dir, by their temporary names.
func waiting(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, disk.Private, "incoming"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// diskOf simulates a disk of size bytes that contains only the incomplete files.
func diskOf(t *testing.T, size int64) func(*disk.Dir) (int64, error) {
	return func(f *disk.Dir) (int64, error) {
		free := size
		for _, name := range waiting(t, f.Path()) {
			var st unix.Stat_t
			err := unix.Stat(filepath.Join(f.Path(), disk.Private, "incoming", name), &st)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return 0, err
			}
			free -= st.Blocks * 512
		}
		return free, nil
	}
}
