package trial

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/lossyfs"
)

// failure is a way in which a call fails.
type failure struct {
	name  string
	errno syscall.Errno
	stays bool // from that call on, all calls of its kind on its path
	fills bool // from that call on, everything that needs room
}

var failures = []failure{
	{name: "EIO once", errno: syscall.EIO},
	{name: "EIO", errno: syscall.EIO, stays: true},
	{name: "ESTALE", errno: syscall.ESTALE, stays: true},
	{name: "ENOSPC", errno: syscall.ENOSPC, fills: true},
	{name: "a short write", errno: lossyfs.Short},
	{name: "a slow call", errno: lossyfs.Slow},
}

// applies reports whether calls of a kind can fail so.
func (f failure) applies(c lossyfs.Call) bool {
	room := slices.Contains([]string{"write", "create", "mkdir", "mknod", "symlink", "link", "rename", "fallocate"}, c.Op)
	switch f.errno {
	case lossyfs.Short:
		return c.Op == "write"
	case syscall.ENOSPC:
		return room
	}
	return true
}

// failAt has the nth call fail, and appends to failed each call that does.
func (f failure) failAt(n int, failed *[]lossyfs.Call) lossyfs.Fault {
	return func(c lossyfs.Call) syscall.Errno {
		switch {
		case !f.applies(c), c.N < n, len(*failed) == 0 && c.N > n:
			return 0
		case c.N == n, f.fills, f.stays && c.Op == (*failed)[0].Op && c.Path == (*failed)[0].Path:
			*failed = append(*failed, c)
			return f.errno
		}
		return 0
	}
}

// foreseen are the exit codes of failures that somebody thought of.
var foreseen = []int{0, 66, 69, 73, 74, 75, 76, 77, 78}

// TestFailingCalls has each call of stager to the file system fail in turn, in each way:
// stager goes on, or ends with a code of the manual and a sentence that names what failed;
// a second start, after the fault, completes the work, and nothing is lost.
// STAGER_TRIAL=full takes all calls, STAGER_TRIAL=faults 40 of each scene, and the short form 8.
func TestFailingCalls(t *testing.T) {
	most := 8
	if os.Getenv("STAGER_TRIAL") == "faults" {
		most = 40
	}
	binary := build(t)
	for _, sc := range slices.Concat(lossyScenes, restartScenes, sourceScenes) {
		t.Run(sc.name, func(t *testing.T) {
			if most == 8 && !full {
				t.Parallel()
			}
			dir := t.TempDir()
			ready := prepared(t, binary, dir, sc)
			calls := countCalls(t, binary, dir, sc, ready)
			type point struct {
				n int
				failure
			}
			var points []point
			for n := 1; n <= calls; n++ {
				for _, f := range failures {
					points = append(points, point{n, f})
				}
			}
			all := len(points)
			if !full {
				var some []point
				for i := 0; i < all; i += max(1, all/most) | 1 {
					some = append(some, points[i])
				}
				points = some
			}
			var next, bad, hits atomic.Int64
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for i := int(next.Add(1)) - 1; i < len(points) && bad.Load() < 20; i = int(next.Add(1)) - 1 {
						p := points[i]
						call, err := fail(binary, dir, sc, ready, p.n, p.failure)
						if call != nil {
							hits.Add(1)
						}
						if err != nil {
							bad.Add(1)
							t.Errorf("call %d of %d, %+v, fails with %s: %v", p.n, calls, call, p.name, err)
						}
					}
				})
			}
			wg.Wait()
			t.Logf("%d runs of %d for %d calls; %d had a fault; %d are bad", min(int(next.Load()), len(points)), all, calls, hits.Load(), bad.Load())
		})
	}
}

// prepared is the file system on which a scene begins.
func prepared(t *testing.T, binary, dir string, sc scene) *lossyfs.FS {
	t.Helper()
	s, err := mountStage(binary, dir, lossyfs.New())
	live.Require(t, "fuse", err)
	if sc.prepare != nil {
		err = sc.prepare(dir, s)
	}
	if err = errors.Join(err, s.close()); err != nil {
		t.Fatalf("%v\n%s", err, s.said())
	}
	return s.fs
}

// countCalls runs a scene without a fault, and returns how many calls there are.
func countCalls(t *testing.T, binary, dir string, sc scene, ready *lossyfs.FS) int {
	t.Helper()
	s, err := mountStage(binary, dir, ready.Clone())
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	s.watch = true
	s.fs.Record()
	s.fs.Inject(func(c lossyfs.Call) syscall.Errno { calls.Store(int64(c.N)); return 0 })
	code, err := sc.run(s)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err = errors.Join(err, s.close()); errors.Is(err, errUnwatched) {
		live.Require(t, "fuse", err)
	} else if err != nil {
		t.Fatalf("%v\n%s", err, s.said())
	}
	return int(calls.Load())
}

// fail runs a scene of which a call fails, and then once more without.
func fail(binary, dir string, sc scene, ready *lossyfs.FS, n int, f failure) (*lossyfs.Call, error) {
	s, err := mountStage(binary, dir, ready.Clone())
	if err != nil {
		return nil, err
	}
	var failed []lossyfs.Call
	s.brief, s.watch = true, true
	s.fs.Record()
	s.fs.Inject(f.failAt(n, &failed))
	code, err := sc.run(s)
	s.fs.Inject(nil)
	marks := s.fs.Recorded().Marks(s.fs.Recorded().Len())
	said := s.said()
	switch {
	case err != nil:
	case code == 0:
	case !slices.Contains(foreseen, code):
		err = fmt.Errorf("exit code %d", code)
	case !names(said, failed, s):
		err = fmt.Errorf("exit code %d, and no sentence that names the file", code)
	}
	if err == nil {
		s.brief, s.again, s.watch = false, true, false
		s.fs.Record()
		if code, err = sc.run(s); err == nil && code != 0 {
			err = fmt.Errorf("exit code %d of the run after the fault", code)
		}
	}
	if err == nil {
		err = sc.judge(s, marks, false)
	}
	if err != nil {
		err = fmt.Errorf("%w\nstager said:\n%s", err, s.said())
	}
	return first(failed), errors.Join(err, s.close())
}

func first(failed []lossyfs.Call) *lossyfs.Call {
	if len(failed) == 0 {
		return nil
	}
	return &failed[0]
}

// names reports whether a text names the file of a call that failed, or a directory that it
// is in, however short. A syncfs may be that of the machine's own disk.
func names(said string, failed []lossyfs.Call, s *stage) bool {
	place := s.mnt
	for _, call := range failed {
		if call.Op == "syncfs" {
			place = s.dir
		}
		for path := call.Path; path != "." && path != "/" && path != ""; path = filepath.Dir(path) {
			if strings.Contains(said, filepath.Base(path)) {
				return true
			}
		}
	}
	return len(failed) == 0 || strings.Contains(said, place)
}
