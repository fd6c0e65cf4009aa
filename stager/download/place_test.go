package download

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	localfile "github.com/stager-dev/stager/backends/file"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window/disk"
)

// A prefetch into a directory of its own source copied .stager/LOCK and its own records. The next
// one copied everything that the first had fetched, one level deeper each time.
func TestPrefetchIntoItsOwnSource(t *testing.T) {
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "a.tar"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(src, link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dir, exclude, want string
	}{
		{"a directory of it", src + "/copy", "", "copied into itself; use another one, or exclude it with --exclude 'copy/**'"},
		{"by a symbolic link", link + "/deep/copy", "", "--exclude 'deep/copy/**'"},
		{"the source itself", src, "", "is the source itself"},
		{"beside it, with a name that begins alike", src + "-copy", "", ""},
		{"left out", src + "/out", "out/**", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Cleanup(func() { os.RemoveAll(src + "-copy") })
			var listing plan.Listing
			if tt.exclude != "" {
				listing.Filter.Exclude = []string{tt.exclude}
			}
			store := backends.NewStore(localfile.New(src), "file://"+src, backends.Options{})
			_, err := Prefetch(t.Context(), Config{Store: store, Dir: tt.dir, Listing: listing})
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				if names := below(t, tt.dir); len(names) != 1 || names[0] != "a.tar" {
					t.Errorf("got %q, want a.tar alone", names)
				}
				return
			}
			if err == nil || backends.KindOf(err) != backends.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an invalid destination and %q", err, tt.want)
			}
			if _, err := os.Lstat(filepath.Join(tt.dir, ".stager")); err == nil {
				t.Error("the refused run left its records")
			}
		})
	}
}

// below returns the files below a directory, without stager's own.
func below(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.Name() == ".stager":
			return filepath.SkipDir
		case !e.IsDir():
			name, err := filepath.Rel(dir, path)
			names = append(names, name)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A prefetch that fetched nothing left .stager with its records, and the directories that it had
// created.
func TestPrefetchLeavesNothingIfItFetchedNothing(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setup func(t *testing.T, dir string, s *source)
		made  bool // the run created the directory
	}{
		{"the listing fails", func(_ *testing.T, _ string, s *source) {
			s.faults.Always(conformance.List, conformance.Fail(backends.Permission))
		}, true},
		{"nothing can be read", func(_ *testing.T, _ string, s *source) {
			s.Put("a", []byte("aaaa"))
			s.faults.Always(conformance.Read, conformance.Fail(backends.Permission))
		}, true},
		{"the directory was there, and empty", func(t *testing.T, dir string, _ *source) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"it holds a file of the user", func(t *testing.T, dir string, _ *source) {
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/mine", nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "deep", "data")
			s := newSource(t, "")
			tt.setup(t, dir, s)
			if _, err := Prefetch(t.Context(), Config{Store: s.store, Dir: dir}); err == nil {
				t.Fatal("got no error, want one")
			}
			if _, err := os.Lstat(filepath.Join(dir, ".stager")); err == nil {
				t.Error("the records are still there")
			}
			if _, err := os.Lstat(filepath.Join(top, "deep")); (err == nil) == tt.made {
				t.Errorf("directories: got %v, want them gone: %v", err, tt.made)
			}
		})
	}
}

// A prefetch that fails half-way leaves complete files alone under their names. It names the
// directory with the rest, and the next run continues from there.
func TestPrefetchNamesWhatAFailureLeaves(t *testing.T) {
	s := newSource(t, backends.CRC64NVME)
	sizes := dataset(s)
	// The large file records its progress every 8 MiB.
	s.faults.AddFor(conformance.Read, "large.bin", conformance.Pass(), conformance.Break(9*mib, &backends.Error{Op: "read", Key: "large.bin", Kind: backends.Permission, Err: errors.New("expired")}))
	dir := filepath.Join(t.TempDir(), "data")
	var said bytes.Buffer
	cfg := Config{Store: s.store, Dir: dir, Parallel: 1, Log: slog.New(slog.NewTextHandler(&said, nil))}
	if _, err := Prefetch(t.Context(), cfg); backends.KindOf(err) != backends.Permission {
		t.Fatalf("got %v, want kind Permission", err)
	}
	for _, name := range extra(t, dir) {
		if size, ok := sizes[name]; !ok || name == "large.bin" {
			t.Errorf("%s is there, want complete files alone", name)
		} else {
			holds(t, dir, name, size)
		}
	}
	if got := said.String(); strings.Count(got, "the prefetch is not complete") != 1 || !strings.Contains(got, "unfinished="+filepath.Join(dir, disk.Private)) {
		t.Errorf("the log does not name what is left once:\n%s", got)
	}
	if _, err := os.Lstat(filepath.Join(dir, disk.Private)); err != nil {
		t.Errorf("what the log names is not there: %v", err)
	}
	said.Reset()
	sum, err := Prefetch(t.Context(), cfg)
	if err != nil || sum.ResumedBytes < 8*mib {
		t.Errorf("the next run: %+v, %v; want 8 MiB or more resumed", sum, err)
	}
	for name, size := range sizes {
		holds(t, dir, name, size)
	}
	if strings.Contains(said.String(), "not complete") {
		t.Errorf("the next run was complete, and the log has %s", said.String())
	}
}

// A source file that was rewritten with its former size and modification time is fetched anew.
func TestPrefetchNoticesARewrittenFileWithItsSizeAndTime(t *testing.T) {
	src, dir := t.TempDir(), t.TempDir()
	name := filepath.Join(src, "a.tar")
	if err := os.WriteFile(name, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Store: backends.NewStore(localfile.New(src), "file://"+src, backends.Options{}), Dir: dir}
	if _, err := Prefetch(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	was, err := cfg.Store.Stat(t.Context(), "a.tar")
	if err != nil {
		t.Fatal(err)
	}
	for now, tries := was, 0; now.Version == was.Version; tries++ { // until the clock of the file system has moved on
		if err := errors.Join(os.WriteFile(name, []byte("after."), 0o644), os.Chtimes(name, was.ModTime, was.ModTime)); err != nil {
			t.Fatal(err)
		}
		if now, err = cfg.Store.Stat(t.Context(), "a.tar"); err != nil {
			t.Fatal(err)
		}
		if now.Size != was.Size || !now.ModTime.Equal(was.ModTime) {
			t.Fatalf("got %+v, want the size and time of %+v", now, was)
		}
		if tries > 20_000 {
			t.Fatal("the version did not change")
		}
	}
	sum, err := Prefetch(t.Context(), cfg)
	if text, rerr := os.ReadFile(filepath.Join(dir, "a.tar")); err != nil || rerr != nil || string(text) != "after." || sum.FetchedFiles != 1 {
		t.Errorf("got %q with %+v (%v), want the new bytes", text, sum, errors.Join(err, rerr))
	}
}
