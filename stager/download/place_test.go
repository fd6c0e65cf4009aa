package download

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	localfile "github.com/stager-dev/stager/backends/file"
	"github.com/stager-dev/stager/stager/plan"
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
