package checkpoint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

// Another program of the same user takes the access to each directory and file of stager's from
// its owner, while stager is down. Regression: the next process ended with "openat .stager/snap:
// permission denied", and a checkpoint that was held there was never saved.
func TestChangedModesAreRestored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir, faults := mem.New(), t.TempDir(), new(conformance.Faults)
		u := newUploader(t, dir, faults.Wrap(b), nil)
		faults.Always(conformance.Create, conformance.Fail(backends.Unavailable))
		write(t, filepath.Join(dir, "step-1"), model("1"))
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "step-1")); err != nil {
			t.Fatal(err)
		}
		if err := u.Close(); err != nil {
			t.Fatal(err)
		}
		foreign := filepath.Join(dir, "foreign") // somebody's file with a second name here
		write(t, dir, map[string]string{"foreign": "x"})
		if err := os.Link(foreign, filepath.Join(dir, private, "second")); err != nil {
			t.Fatal(err)
		}
		var own []string
		err := filepath.WalkDir(filepath.Join(dir, private), func(p string, d fs.DirEntry, err error) error {
			if err == nil && (d.IsDir() || !strings.Contains(p, "/"+dataDir+"/") && d.Name() != "second") {
				own = append(own, p)
			}
			return err
		})
		if err != nil || len(own) < 6 {
			t.Fatalf("got %q, %v, want stager's own directories and files", own, err)
		}
		for _, p := range append([]string{foreign}, own...) {
			if err := os.Chmod(p, 0); err != nil {
				t.Fatal(err)
			}
		}
		pass(t, newUploader(t, dir, b, nil))
		for _, p := range own {
			info, err := os.Lstat(p)
			if os.IsNotExist(err) {
				continue // of the snapshot, which is saved
			}
			if err != nil || info.Mode().Perm()&0o600 != 0o600 || info.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
				t.Errorf("%s: got %v, %v, want the owner's access", p, info.Mode(), err)
			}
		}
		if info, err := os.Lstat(foreign); err != nil || info.Mode().Perm() != 0 {
			t.Errorf("somebody's file: got %v, %v, want it unchanged", info.Mode(), err)
		}
		_, files := restoreNewest(t, b)
		equal(t, "restored", files, model("1"))
	})
}

// The mode changes while stager runs. The next scan restores it, so the next checkpoint is saved.
func TestModesChangedMeanwhileAreRestored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		for _, name := range []string{private, snapshotsName} {
			if err := os.Chmod(filepath.Join(dir, name), 0o055); err != nil {
				t.Fatal(err)
			}
			pass(t, u)
			if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%s: got %v, %v, want 0755", name, info.Mode(), err)
			}
			time.Sleep(time.Second)
		}
	})
}
