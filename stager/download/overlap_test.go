package download

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window/disk"
)

// twoPages is a source with ten objects of 100,000 bytes. Its listing stops after half of them
// until everything that can be done meanwhile is done, and then calls f.
func twoPages(t *testing.T, f func(*source)) *source {
	s := newSource(t, backends.CRC64NVME)
	for i := range 10 {
		s.Generate(fmt.Sprintf("d/%d", i), 100_000)
	}
	s.faults.Add(conformance.List, conformance.Meanwhile(5, func() {
		synctest.Wait()
		f(s)
	}))
	return s
}

// tree returns everything below dir: mode, size, time (except of directories) and contents.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		is := info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			is += fmt.Sprintf(" %v %q", info.ModTime(), data)
		}
		if name, _ := filepath.Rel(dir, path); name != disk.Private+"/LOCK" {
			all[name] = is
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestOverlapPublishesAfterTheListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := twoPages(t, func(s *source) {
			if reads, waiting := s.calls(conformance.Read), waiting(t, dir); reads != 5 || len(waiting) != 5 {
				t.Errorf("when the list was half done, %d were read and %q waited, want 5", reads, waiting)
			}
			if extra := extra(t, dir); len(extra) > 0 {
				t.Errorf("when the list was half done, there were %q", extra)
			}
		})
		sum, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir})
		if err != nil || sum.FetchedFiles != 10 || sum.Verified["crc64nvme"] != 10 || sum.Bytes != 1_000_000 {
			t.Errorf("summary %+v, %v; want 10 files", sum, err)
		}
		for i := range 10 {
			holds(t, dir, fmt.Sprintf("d/%d", i), 100_000)
		}
		if reads, left := s.calls(conformance.Read), waiting(t, dir); reads != 10 || len(left) > 0 {
			t.Errorf("%d were read, and left behind %q; want 10 and none", reads, left)
		}
		sum, err = Prefetch(t.Context(), Config{Store: s.store, Dir: dir})
		if err != nil || sum.WarmFiles != 10 {
			t.Errorf("again: summary %+v, %v; want 10 warm files", sum, err)
		}
	})
}

// A prefetch is refused at the end of its listing, when transfers have already begun.
func TestOverlapErrorChangesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(dir string, s *source) error
		cfg     Config
		want    backends.Kind
	}{
		"a file in the way": {
			func(dir string, _ *source) error {
				return os.WriteFile(filepath.Join(dir, "d/9"), []byte("mine"), 0o600)
			}, Config{}, backends.Exist,
		},
		"a directory in the way": {
			func(dir string, _ *source) error { return os.Mkdir(filepath.Join(dir, "d/9"), 0o700) }, Config{Overwrite: true}, backends.Exist,
		},
		"too many bytes": {nil, Config{Listing: plan.Listing{MaxBytes: 999_999}}, backends.Invalid},
		"no room": {
			nil, Config{free: func(*disk.Dir) (int64, error) { return 10*102_400 - 500_000, nil }}, backends.NoSpace,
		},
		"a key that is no path": {
			func(_ string, s *source) error { s.Generate("z/../../e", 1); return nil }, Config{}, backends.Invalid,
		},
		"an end from outside": {nil, Config{}, backends.Canceled},
		"a read that failed before": {
			func(dir string, s *source) error {
				s.faults.AddFor(conformance.Read, "d/2", conformance.Fail(backends.Permission))
				return os.WriteFile(filepath.Join(dir, "d/9"), []byte("mine"), 0o600)
			}, Config{}, backends.Exist,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				reads := 0
				s := twoPages(t, func(s *source) {
					reads = s.calls(conformance.Read)
					if tt.want == backends.Canceled {
						end()
					}
				})
				dir := t.TempDir()
				if err := os.MkdirAll(filepath.Join(dir, "d"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "d/other"), []byte("other"), 0o644); err != nil {
					t.Fatal(err)
				}
				if tt.prepare != nil {
					if err := tt.prepare(dir, s); err != nil {
						t.Fatal(err)
					}
				}
				directory, err := disk.Open(dir, "before")
				if err != nil {
					t.Fatal(err)
				}
				directory.Close()
				before := tree(t, dir)
				tt.cfg.Store, tt.cfg.Dir = s.store, dir
				sum, err := Prefetch(ctx, tt.cfg)
				if backends.KindOf(err) != tt.want || sum.FetchedFiles != 0 {
					t.Errorf("got %v and %d files, want kind %v", err, sum.FetchedFiles, tt.want)
				}
				if reads == 0 {
					t.Error("there was no head start")
				}
				if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
					t.Errorf("the directory changed (-before +after):\n%.2000s", diff)
				}
			})
		})
	}
}

func TestOverlapResumesAfterKill(t *testing.T) {
	for name, filter := range map[string]plan.Filter{"the same again": {}, "another choice": {Include: []string{"d/7"}}} {
		synctest.Test(t, func(t *testing.T) {
			killed := t.TempDir()
			dir := t.TempDir()
			s := twoPages(t, func(*source) {
				// This is the state after a kill.
				if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
					t.Error(err)
				}
			})
			if _, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir}); err != nil {
				t.Fatal(err)
			}
			if left := waiting(t, killed); len(left) != 5 {
				t.Errorf("%s: the kill leaves %q, want 5", name, left)
			}
			sum, err := Prefetch(t.Context(), Config{Store: s.store, Dir: killed, Listing: plan.Listing{Filter: filter}})
			if err != nil || sum.WarmFiles != 0 {
				t.Errorf("%s: summary %+v, %v; want none warm", name, sum, err)
			}
			holds(t, killed, "d/7", 100_000)
			if left := waiting(t, killed); len(left) > 0 {
				t.Errorf("%s: left behind %q", name, left)
			}
		})
	}
}

func TestOverlapErrorKeepsAnEarlierRun(t *testing.T) {
	s := newSource(t, backends.CRC64NVME)
	few(s)
	s.Generate("large.bin", 80*mib)
	dir := t.TempDir()
	ctx, kill := context.WithCancel(t.Context())
	s.faults.AddFor(conformance.Read, "large.bin", conformance.Pass(), conformance.Meanwhile(9*mib, kill))
	if _, err := Prefetch(ctx, Config{Store: s.store, Dir: dir, Parallel: 1}); backends.KindOf(err) != backends.Canceled {
		t.Fatalf("got %v, want kind Canceled", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "z.txt"), []byte("mine!!"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir}); backends.KindOf(err) != backends.Exist {
		t.Fatalf("got %v, want kind Exist", err)
	}
	sum, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir, Overwrite: true})
	if err != nil || sum.ResumedBytes < 24*mib {
		t.Errorf("resumed %d bytes (%v), want 24 MiB or more", sum.ResumedBytes, err)
	}
}

// Disk space used during the listing is no longer free, and is part of the space that is needed.
func TestOverlapCountsSpaceOnce(t *testing.T) {
	const need = 10 * 102_400
	for size, fits := range map[int64]bool{need: true, need - 1: false} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			s := twoPages(t, func(*source) {})
			_, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir, free: diskOf(t, size)})
			if fits && err != nil || !fits && backends.KindOf(err) != backends.NoSpace {
				t.Errorf("with %d bytes free of %d: %v", size, need, err)
			}
		})
	}
}

func TestOverlapLimit(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel() // nobody waits
	for name, tt := range map[string]struct {
		head *listingOverlap
		size int64
		want int
	}{
		"so many objects": {newListingOverlap(1<<50, false), 1, aheadObjects},
		"so many bytes":   {newListingOverlap(1<<50, false), 1 << 30, aheadBytes >> 30},
		"half the room":   {newListingOverlap(10<<20, false), 1 << 20, 5},
		"none":            {newListingOverlap(1<<50, true), 1, 0},
	} {
		for range 2 * aheadObjects {
			tt.head.enter(over, backends.Object{Size: tt.size})
		}
		if tt.head.begun != tt.want {
			t.Errorf("%s: it takes %d objects of %d bytes, want %d", name, tt.head.begun, tt.size, tt.want)
		}
	}
}
