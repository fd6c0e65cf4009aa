package trial

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/lossyfs"
)

// TestPowerLoss records what stager writes, renames, links, removes and syncs in each
// scene, builds the states that a loss of power after any of it may leave, and starts
// stager on each: nothing is lost that was promised, no wrong byte passes for a right one,
// and nothing refuses to start. STAGER_TRIAL=full takes all states, otherwise some.
func TestPowerLoss(t *testing.T) {
	binary := build(t)
	for _, sc := range slices.Concat(lossyScenes, restartScenes) {
		t.Run(sc.name, func(t *testing.T) {
			dir := t.TempDir()
			r := record(t, binary, dir, sc)
			r.Ordered = sc.ordered
			type point struct {
				n    int
				loss lossyfs.Loss
			}
			var points []point
			for n := range r.Len() + 1 {
				if n > 0 && n < r.Len() && !r.Changes(n) {
					continue
				}
				for loss := range lossyfs.Losses {
					points = append(points, point{n, loss})
				}
			}
			all := len(points)
			if !full { // so that each loss comes at different changes
				var some []point
				for i := 0; i < all; i += max(1, all/14) | 1 {
					some = append(some, points[i])
				}
				for _, p := range points {
					if sc.seldom && p.loss == lossyfs.Some {
						some = append(some, p)
					}
				}
				points = append(some, points[all-int(lossyfs.Losses):]...)
			}
			var next, bad atomic.Int64
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					for i := int(next.Add(1)) - 1; i < len(points) && bad.Load() < 20; i = int(next.Add(1)) - 1 {
						p := points[i]
						if err := replay(binary, dir, sc, r, p.n, p.loss); err != nil {
							bad.Add(1)
							t.Errorf("power is lost after change %s, with the loss of %s: %v", r.Describe(p.n), p.loss, err)
						}
					}
				})
			}
			wg.Wait()
			t.Logf("%d of %d states of %d changes, %d of them bad", len(points), all, r.Len(), bad.Load())
		})
	}
}

// record runs a scene on a file system of its own.
func record(t *testing.T, binary, dir string, sc scene) *lossyfs.Recording {
	t.Helper()
	s, err := mountStage(binary, dir, lossyfs.New())
	live.Require(t, "fuse", err)
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	if sc.prepare != nil {
		if err := sc.prepare(dir, s); err != nil {
			t.Fatalf("%v\n%s", err, s.said())
		}
	}
	s.watch = true
	s.fs.Record()
	code, err := sc.run(s)
	if errors.Is(err, errUnwatched) {
		live.Require(t, "fuse", err)
	}
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	r := s.fs.Recorded()
	if err == nil {
		err = sc.judge(s, nil, false)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, s.said())
	}
	return r
}

// replay starts stager on what a loss of power left.
func replay(binary, dir string, sc scene, r *lossyfs.Recording, n int, loss lossyfs.Loss) error {
	s, err := mountStage(binary, dir, r.After(n, loss, 1))
	if err != nil {
		return err
	}
	s.again = true
	if loss != lossyfs.Killed {
		if err := s.anotherBoot(2); err != nil {
			return errors.Join(err, s.close())
		}
	}
	s.fs.Record()
	code, err := sc.run(s)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	if err == nil {
		err = sc.judge(s, r.Marks(n), loss == lossyfs.Killed)
	}
	if err != nil {
		err = fmt.Errorf("%w\nstager said:\n%s", err, s.said())
		if os.Getenv("STAGER_TRIAL_LOOK") != "" {
			for name, body := range r.After(n, loss, 1).Files() {
				err = fmt.Errorf("%w\n%s: %d bytes %.60q", err, name, len(body), body)
			}
		}
	}
	return errors.Join(err, s.close())
}
