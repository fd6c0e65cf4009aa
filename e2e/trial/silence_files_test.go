package trial

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// foreignFiles put something else in the place of a file of stager's, and know whether it is there still.
var foreignFiles = []struct {
	name string
	make func(path string) error
}{
	{"a directory", func(p string) error {
		return errors.Join(os.Mkdir(p, 0o755), os.WriteFile(filepath.Join(p, "mine"), []byte("mine"), 0o600))
	}},
	{"a FIFO", func(p string) error { return syscall.Mkfifo(p, 0o644) }},
	{"a link", func(p string) error { return os.Symlink(filepath.Join(filepath.Dir(p), "../../mine"), p) }},
	{"another format", func(p string) error { return os.WriteFile(p, []byte("hello\n"), 0o600) }},
	{"no permission", func(p string) error { return os.WriteFile(p, nil, 0) }},
}

// TestForeignFilesInPlaceOfOwn replaces each file that stager keeps in the directory of a window, of
// an output and of a prefetch. A directory in the place of a window's journal ended "stager run"
// with 70. Any outcome with a sentence will do, but none that asks for a report, none without an
// end, and no harm to what a link leads to.
func TestForeignFilesInPlaceOfOwn(t *testing.T) {
	binary := build(t)
	for _, kind := range []struct{ name, dir, plan string }{
		{"window", "win", window("", "")},
		{"output", "out", output("", "")},
		{"prefetch", "to", ""},
	} {
		run := func(q *quiet, step int) (string, error) {
			args := []string{"prefetch", "file://" + q.path("src/"), q.path("to")}
			if kind.plan != "" {
				q.write("plan.yaml", "apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: own}\nspec:\n"+q.here(kind.plan))
				save := fmt.Sprintf("mkdir -p %[1]s/new && echo x >%[1]s/new/model && mv %[1]s/new %[1]s/step-%[2]d", q.path("out"), step)
				args = []string{"run", "-f", q.path("plan.yaml"), "--socket", q.path("s"), "--", "sh", "-c", save}
			}
			out, err := exec.Command(binary, args...).CombinedOutput()
			return string(out), err
		}
		prepare := func(t *testing.T) *quiet {
			q := newQuiet(t, binary)
			q.shards(2)
			q.write("mine", "mine")
			if out, err := run(q, 1); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return q
		}
		files, err := filepath.Glob(filepath.Join(prepare(t).path(kind.dir), ".stager", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			info, err := os.Lstat(file)
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			for _, foreign := range foreignFiles {
				name := filepath.Base(file)
				t.Run(strings.Join([]string{kind.name, name, foreign.name}, "/"), func(t *testing.T) {
					t.Parallel()
					q := prepare(t)
					path := q.path(filepath.Join(kind.dir, ".stager", name))
					q.must(errors.Join(os.Remove(path), foreign.make(path)))
					out, err := run(q, 2)
					judgeForeign(q, path, out, err)
				})
			}
		}
	}
}

// judgeForeign looks at how stager ended where path is another program's.
func judgeForeign(q *quiet, path, out string, err error) {
	q.t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case !errors.As(err, &exit) || exit.ExitCode() == 70 || exit.ExitCode() < 64:
		q.t.Errorf("got %v, want success or an exit code of its own: %s", err, out)
	case !strings.Contains(out, filepath.Base(path)):
		q.t.Errorf("the message names no %s: %s", filepath.Base(path), out)
	}
	if text, err := os.ReadFile(q.path("mine")); err != nil || string(text) != "mine" {
		q.t.Errorf("got %q, %v of the foreign file, want it unchanged", text, err)
	}
	kept, err := os.ReadFile(filepath.Join(path, "mine"))
	// A LOCK that cannot be locked is removed, whatever is in it.
	if filepath.Base(path) != "LOCK" && errors.Is(err, fs.ErrNotExist) && strings.HasSuffix(q.t.Name(), "a_directory") {
		q.t.Errorf("got %q, %v of the file in the foreign directory, want it unchanged", kept, err)
	}
}
