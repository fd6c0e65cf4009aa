package checkpoint

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// overwrite changes a file in place, as a trainer does that saves to one name.
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
// taken on. The link that held it changed with it, and the step was lost. A copy that
// shares its blocks stays, also over a restart.
func TestANameWithoutANumberIsHeldByACopy(t *testing.T) {
	for _, restart := range []bool{false, true} {
		b, dir := mem.New(), t.TempDir()
		u := newUploader(t, dir, b, nil)
		copies := 0
		u.shelf.clone = func(to, from *os.File) error {
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

// Where the file system cannot share blocks, the file is held by a link, and the step is
// refused when it was overwritten. A name with a number is not copied.
func TestWithoutCopiesAnOverwrittenFileIsRefused(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	u := newUploader(t, dir, b, nil)
	var tried []string
	u.shelf.clone = func(_, from *os.File) error {
		tried = append(tried, from.Name())
		return unix.EOPNOTSUPP
	}
	for _, name := range []string{"last", "step-8"} {
		write(t, filepath.Join(dir, name), map[string]string{"model.pt": "before"})
	}
	if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-8", Step: -1}); err != nil || len(tried) > 0 {
		t.Errorf("got %v and copies of %q, want none of a name with a number", err, tried)
	}
	if _, err := u.Commit(t.Context(), CommitRequest{Path: "last", Step: 7}); err != nil || len(tried) != 1 {
		t.Errorf("got %v and copies of %q, want that of one file tried", err, tried)
	}
	overwrite(t, filepath.Join(dir, "last/model.pt"), "OTHER")
	pass(t, u)
	err := u.Wait(t.Context(), 7)
	if got := commits(b); backends.KindOf(err) != backends.Changed || !strings.Contains(err.Error(), "commit it again") || len(got) != 1 {
		t.Errorf("got %v and committed %v, want an error of kind changed, and step 8 alone", err, got)
	}
}
