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

// nobody is a user without rights.
const nobody = 65534

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
// an output and of a prefetch, as root and as an ordinary user. A directory in the place of a
// window's journal ended "stager run" with 70, one in the place of its lock was removed with all that
// was in it, and those of an output ended with 74. Stager ends with 78 and names the file, or with 77
// where it has no permission, or does its work: then the file is its own again, or a warning names
// it. It never harms what a link leads to or what is in a directory.
func TestForeignFilesInPlaceOfOwn(t *testing.T) {
	binary := build(t)
	users := []string{"user"}
	if os.Geteuid() == 0 {
		users = []string{"root", "nobody"}
	}
	for _, user := range users {
		for _, k := range ownKinds {
			files, err := filepath.Glob(filepath.Join(k.prepare(t, binary, user).path(k.dir), ".stager", "*"))
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
					t.Run(strings.Join([]string{user, k.name, name, foreign.name}, "/"), func(t *testing.T) {
						t.Parallel()
						q := k.prepare(t, binary, user)
						path := q.path(filepath.Join(k.dir, ".stager", name))
						if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) { // this time it may not be there yet
							q.must(err)
						}
						q.must(foreign.make(path))
						q.own(path, user)
						out, err := k.run(q, user, 2)
						judgeForeign(q, path, out, err)
					})
				}
			}
		}
	}
}

// ownKind is a directory in which stager keeps files of its own.
type ownKind struct{ name, dir, plan string }

var ownKinds = []ownKind{
	{"window", "win", window("", "")},
	{"output", "out", output("", "")},
	{"prefetch", "to", ""},
}

// run has stager do its work there, in which it writes all of these files.
func (k ownKind) run(q *quiet, user string, step int) (string, error) {
	args := []string{"prefetch", "file://" + q.path("src/"), q.path("to")}
	if k.plan != "" {
		q.write("plan.yaml", "apiVersion: stager.dev/v1alpha1\nkind: StagePlan\nmetadata: {name: own}\nspec:\n"+q.here(k.plan))
		save := fmt.Sprintf("mkdir -p %[1]s/new && echo x >%[1]s/new/model && mv %[1]s/new %[1]s/step-%[2]d", q.path("out"), step)
		args = []string{"run", "-f", q.path("plan.yaml"), "--socket", q.path("s"), "--", "sh", "-c", save}
	}
	cmd := exec.Command(q.binary, args...)
	if user == "nobody" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// prepare makes a row in which stager has done its work once.
func (k ownKind) prepare(t *testing.T, binary, user string) *quiet {
	t.Helper()
	q := newQuiet(t, binary)
	if user == "nobody" {
		q.letIn()
	}
	q.shards(2)
	q.write("mine", "mine")
	q.own(q.dir, user)
	if out, err := k.run(q, user, 1); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return q
}

// own gives all below a path to the row's user.
func (q *quiet) own(path, user string) {
	q.t.Helper()
	if user != "nobody" {
		return
	}
	q.must(filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, nobody, nobody))
	}))
}

// judgeForeign looks at how stager ended where path is another program's.
func judgeForeign(q *quiet, path, out string, err error) {
	q.t.Helper()
	var exit *exec.ExitError
	code, name, named := 0, filepath.Base(path), false
	for line := range strings.Lines(out) {
		named = named || strings.Contains(line, name) && strings.Contains(line, ".stager") && !strings.Contains(line, "level=INFO")
	}
	if errors.As(err, &exit) {
		code, err = exit.ExitCode(), nil
	}
	info, gone := os.Lstat(path)
	again := gone == nil && info.Mode().IsRegular() // root reads it whatever its mode is
	q.t.Logf("exit code %d, named: %t, own again: %t", code, named, again)
	refused := strings.HasSuffix(q.t.Name(), "no_permission")
	switch {
	case err != nil:
		q.t.Errorf("got %v, want an end of the process: %s", err, out)
	case code != 0 && code != 78 && (code != 77 || !refused):
		q.t.Errorf("got the exit code %d, want 0 or 78: %s", code, out)
	case code != 0 && !named:
		q.t.Errorf("got the exit code %d without a word about .stager/%s: %s", code, name, out)
	case code == 0 && !again && !named:
		q.t.Errorf("got success without a word, and .stager/%s is not as stager made it (%v, %v): %s", name, info, gone, out)
	}
	if mended := "the mode of a file of stager was changed, restoring it"; refused && code == 0 && strings.Contains(q.t.Name(), "/output/") && !strings.Contains(out, mended) {
		q.t.Errorf("the log has no %q: %s", mended, out)
	}
	if text, err := os.ReadFile(q.path("mine")); err != nil || string(text) != "mine" {
		q.t.Errorf("got %q, %v of the foreign file, want it unchanged", text, err)
	}
	if kept, err := os.ReadFile(filepath.Join(path, "mine")); strings.HasSuffix(q.t.Name(), "a_directory") && string(kept) != "mine" {
		q.t.Errorf("got %q, %v of the file in the foreign directory, want it unchanged", kept, err)
	}
}
