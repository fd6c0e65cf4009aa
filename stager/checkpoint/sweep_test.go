package checkpoint

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/file"
	"github.com/stager-dev/stager/backends/mem"
)

// stored returns a destination in a directory, where incomplete uploads are visible.
func stored(t *testing.T, dir string) *backends.Store {
	t.Helper()
	s := backends.NewStore(file.New(dir), "file://"+dir, backends.Options{})
	t.Cleanup(func() { s.Close() })
	return s
}

// killed creates the orphans of a killed writer, with the given age.
func killed(t *testing.T, dir string, age time.Duration, names ...string) {
	t.Helper()
	for _, name := range names {
		write(t, dir, map[string]string{name: "half"})
		at := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// An Uploader removes its own orphans of killed uploads at once, and orphans of unknown owners
// when they are old. Uploads that another process may be writing stay.
func TestRestartRemovesOrphans(t *testing.T) {
	dir, dest := t.TempDir(), t.TempDir()
	const own, foreign = "0123456789abcdef", "fedcba9876543210"
	write(t, dir, map[string]string{uploadsName: own + "\n"})
	going := []string{
		"step-00000002/data/" + own + "/" + file.Temporary + "fresh",
		"step-00000009/data/" + own + "/deep/" + file.Temporary + "fresh",
	}
	killed(t, dest, 0, going...)
	old := []string{
		"step-00000002/data/" + foreign + "/" + file.Temporary + "old",
		"files/logs/" + file.Temporary + "old",
		file.Temporary + "latest",
	}
	killed(t, dest, Abandoned+time.Hour, old...)
	killed(t, dest, Abandoned+time.Minute, "step-00000002/"+file.Temporary+"commit")
	staying := []string{
		"step-00000002/data/" + foreign + "/" + file.Temporary + "fresh",
		"step-00000002/parts/" + file.Temporary + "fresh",
		"files/" + file.Temporary + "fresh",
	}
	killed(t, dest, time.Minute, staying...)
	staying = append(staying, "step-00000002/"+file.Temporary+"slow")
	killed(t, dest, time.Hour, "step-00000002/"+file.Temporary+"slow")
	for _, name := range []string{"step-00000001/data/" + own + "/optim", "files/theirs"} {
		if err := os.MkdirAll(filepath.Join(dest, name), 0o755); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-2 * Abandoned)
		if err := os.Chtimes(filepath.Join(dest, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	going, staying = append(going, "step-00000001"), append(staying, "files/theirs")
	u := newUploader(t, dir, file.New(dest), nil)
	write(t, filepath.Join(dir, "step-3"), model("3"))
	write(t, filepath.Join(dir, "step-3"), map[string]string{markerName: ""})
	pass(t, u)
	for _, name := range append(append(going, old...), "step-00000002/"+file.Temporary+"commit", "step-00000009") {
		if exists(dest, name) {
			t.Errorf("%s is left, want it swept", name)
		}
	}
	for _, name := range staying {
		if !exists(dest, name) {
			t.Errorf("%s is swept, and another may be writing it", name)
		}
	}
	if ids := recallIDs(u.root); len(ids) != 0 {
		t.Errorf("after all was looked through the ids %v are remembered, want none", ids)
	}
}

// The hint of its own uploads is written before anything is sent, and outlives the process.
func TestIDsAreNotedBeforeAnythingIsSent(t *testing.T) {
	dir := t.TempDir()
	u := newUploader(t, dir, file.New(t.TempDir()), nil)
	write(t, filepath.Join(dir, "step-3"), model("3"))
	write(t, filepath.Join(dir, "step-3"), map[string]string{markerName: ""})
	if err := u.scan(false); err != nil {
		t.Fatal(err)
	}
	if ids := recallIDs(u.root); len(ids) != 1 || !ids[u.snaps[3].ID] {
		t.Errorf("noted are %v, want the id of %+v", ids, u.snaps)
	}
}

func TestPruneReportsIncompleteWrites(t *testing.T) {
	dest := t.TempDir()
	left := "step-00000001/data/0123456789abcdef/" + file.Temporary + "x"
	killed(t, dest, time.Hour, left)
	cfg := PruneConfig{Store: stored(t, dest), Keep: Keep{Last: 1}, Abandoned: Abandoned, DryRun: true}
	for _, tt := range []struct {
		abandoned time.Duration
		dry, want bool
	}{{Abandoned, false, false}, {0, true, true}, {0, false, true}} {
		cfg.Abandoned, cfg.DryRun = tt.abandoned, tt.dry
		gone, err := Prune(t.Context(), cfg)
		reported := slices.Contains(gone, Pruned{Step: 1, Dir: "step-00000001", Objects: 1, Bytes: 4, Unfinished: true})
		if err != nil || reported != tt.want || exists(dest, left) != (tt.dry || !tt.want) {
			t.Errorf("%+v: got %+v (%v), and it is there: %t", tt, gone, err, exists(dest, left))
		}
	}
}

// noLooking is a store whose user may not list incomplete uploads.
type noLooking struct {
	*mem.Backend
	asked int
}

func (n *noLooking) Sweep(context.Context, string, func(backends.Orphan) bool) error {
	n.asked++
	return backends.Errorf(backends.Permission, "sweep", "", "only administrators may look")
}

// The missing permission is reported once, and neither retention nor a prune fails.
func TestUploadsWithoutPermissionToListOrphans(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := &noLooking{Backend: mem.New()}, t.TempDir()
		u := newUploader(t, dir, b, func(c *Config) { c.Keep.Last = 1 })
		for _, step := range []string{"1", "2", "3"} {
			write(t, filepath.Join(dir, "step-"+step), model(step))
			settled(t, u)
		}
		if got, want := commits(b.Backend), []string{stepDir(3, 0)}; !slices.Equal(got, want) || b.asked != 1 {
			t.Errorf("committed %v, want %v; asked %d times, want 1", got, want, b.asked)
		}
		if _, err := Prune(t.Context(), PruneConfig{Store: newStore(b), Keep: Keep{Last: 1}}); err != nil {
			t.Errorf("a prune: %v", err)
		}
	})
}

// badLooking is a store that fails to list incomplete uploads, as s3proxy does for good once an
// upload was cut.
type badLooking struct {
	*mem.Backend
	began chan struct{}
}

func (b *badLooking) Sweep(context.Context, string, func(backends.Orphan) bool) error {
	select {
	case b.began <- struct{}{}:
	default:
	}
	return backends.Errorf(backends.Unavailable, "sweep", "", "HTTP 500")
}

// A store that fails to list incomplete uploads delayed a checkpoint by RetryFor, two minutes: the
// sweep was tried again before the checkpoint was sent, and a drain with less time lost it.
func TestSweepDoesNotDelayCheckpoint(t *testing.T) {
	for _, drained := range []bool{false, true} {
		t.Run(fmt.Sprintf("drained %t", drained), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := &badLooking{mem.New(), make(chan struct{}, 1)}, t.TempDir()
				u := newUploader(t, dir, b, func(c *Config) {
					c.Store = backends.NewStore(b, "mem://test", backends.Options{RetryFor: 2 * time.Minute})
				})
				run, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { u.run(run, nil) })
				<-b.began
				write(t, filepath.Join(dir, "step-1"), model("1"))
				if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
					t.Fatal(err)
				}
				within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				var err error
				if drained {
					err = u.Drain(within, Exit{})
				} else {
					err = u.Wait(within, 1)
				}
				if got, want := commits(b.Backend), []string{stepDir(1, 0)}; err != nil || !slices.Equal(got, want) {
					t.Errorf("got %v committed and %v within 30 s, want %v", got, err, want)
				}
				stop()
				running.Wait()
			})
		})
	}
}
