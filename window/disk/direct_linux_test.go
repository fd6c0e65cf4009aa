package disk

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/backends/sys"
)

// A direct write held the lock of its file until the device had taken the data. So a file that several
// streams wrote could not be continued in the page cache while the device was slow: each cached write
// waited as long as all direct ones before it.
func TestCachedWritesDoNotWaitForDirectOnes(t *testing.T) {
	const (
		streams, each = 8, 1 << 20
		page          = 4096
		enough        = 100 // cached writes while one direct write waits
	)
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			live.Mount(t, kind, dir, 400<<20)
			var how Writing
			if err := how.Set(dir, WriteAuto, false, nil); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			file, err := root.Create("f")
			if err != nil {
				t.Fatal(err)
			}
			f, err := how.Open(root, "f", file, streams*each+enough*page)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			lift := live.Throttle(t, dir, each)
			var direct sync.WaitGroup
			var begun, done atomic.Int32
			for i := range streams {
				direct.Go(func() {
					begun.Add(1)
					if n, err := sys.WriteUnlocked(f.direct, aligned(bytes.Repeat([]byte{byte(1 + i)}, each)), int64(i)*each); n != each || err != nil {
						t.Errorf("wrote %d bytes, %v, want %d", n, err, each)
					}
					done.Add(1)
				})
			}
			for begun.Load() < streams {
				runtime.Gosched()
			}
			cached := 0
			for done.Load() < streams && cached < 100*enough {
				if _, err := f.writeCached(bytes.Repeat([]byte{255}, page), int64(streams*each+cached%enough*page)); err != nil {
					t.Fatal(err)
				}
				cached++
			}
			waiting := streams - done.Load()
			lift()
			direct.Wait()
			if cached < enough || waiting == 0 {
				t.Errorf("%d writes through the page cache ended while %d direct ones waited for the device, want %d, and 1 at least", cached, waiting, enough)
			}
			got, err := root.ReadFile("f")
			if err := errors.Join(err, f.Sync()); err != nil {
				t.Fatal(err)
			}
			for i := range streams {
				if !bytes.Equal(got[i*each:(i+1)*each], bytes.Repeat([]byte{byte(1 + i)}, each)) {
					t.Errorf("the direct write of stream %d is not in the file", i)
				}
			}
			if !bytes.Equal(got[streams*each:], bytes.Repeat([]byte{255}, enough*page)) {
				t.Error("the writes through the page cache are not in the file")
			}
		})
	}
}
