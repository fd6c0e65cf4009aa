package checkpoint

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/mem"
)

// overwrite changes a file in place, like a trainer that saves to one name.
func overwrite(t *testing.T, name, text string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// A trainer that saves each step to last/ overwrites it in place as soon as the commit is
// accepted. The hard link in the snapshot changed with it, and the step was lost. A copy with
// shared blocks stays, also after a restart.
func TestNameWithoutNumberIsHeldByCopy(t *testing.T) {
	for _, restart := range []bool{false, true} {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		copies := 0
		u.snapshots.clone = func(to, from *os.File) error {
			copies++
			_, err := io.Copy(to, from)
			return err
		}
		write(t, filepath.Join(dir, "last"), model("before"))
		if err := os.Symlink("model.pt", filepath.Join(dir, "last/link.pt")); err != nil {
			t.Fatal(err)
		}
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "last", Step: 7}); err != nil {
			t.Fatal(err)
		}
		overwrite(t, filepath.Join(dir, "last/model.pt"), "OTHER")
		if restart {
			if err := u.Close(); err != nil {
				t.Fatal(err)
			}
			u = newUploader(t, dir, b, nil)
		}
		pass(t, u)
		_, files := restoreNewest(t, b)
		want := model("before")
		want["link.pt"] = want["model.pt"]
		equal(t, "restored", files, want)
		if want := len(model("")); copies != want {
			t.Errorf("got %d copies, want %d: one of each file, and none of a link", copies, want)
		}
	}
}

// Where the file system cannot share blocks, the file is copied byte by byte. Of six commits of
// one name five were lost, because the link in the snapshot changed with it. A name with a number
// is not copied. Without room for the copy the commit is refused at once.
func TestSnapshotCopiesWithoutSharedBlocks(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	u := newUploader(t, dir, b, nil)
	var tried []string
	u.snapshots.clone = func(_, from *os.File) error {
		tried = append(tried, from.Name())
		return unix.EOPNOTSUPP
	}
	for _, name := range []string{"last", "step-8"} {
		write(t, filepath.Join(dir, name), map[string]string{"model.pt": "before"})
	}
	if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-8", Step: -1}); err != nil || len(tried) > 0 {
		t.Errorf("got %v and copies of %q, want none of a name with a number", err, tried)
	}
	for step := int64(1); step <= 6; step++ {
		overwrite(t, filepath.Join(dir, "last/model.pt"), fmt.Sprintf("STEP %d", step))
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "last", Step: step}); err != nil {
			t.Fatal(err)
		}
	}
	overwrite(t, filepath.Join(dir, "last/model.pt"), "OTHER!")
	pass(t, u)
	for step := int64(1); step <= 6; step++ {
		to := filepath.Join(t.TempDir(), "restored")
		if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: to, Step: step}); err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprintf("step %d", step), read(t, to), map[string]string{"model.pt": fmt.Sprintf("STEP %d", step)})
	}
}
