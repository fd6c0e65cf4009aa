package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

const keptName = "kept"

// keep names a scratch file with a text.
func keep(t *testing.T, dir, text string) {
	t.Helper()
	file, err := Scratch(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := Keep(file, dir, keptName); err != nil {
		t.Fatal(err)
	}
}

func TestKeptReturnsWhatKeepNamed(t *testing.T) {
	dir := t.TempDir()
	if _, err := Kept(dir, keptName); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	for _, want := range []string{"one", "the second"} {
		keep(t, dir, want)
		file, err := Kept(dir, keptName)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 100)
		n, _ := file.Read(got)
		if string(got[:n]) != want {
			t.Errorf("got %q, want %q", got[:n], want)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := Unkeep(dir, keptName); err != nil {
			t.Error(err)
		}
	}
	if err := Unkeep(filepath.Join(dir, "missing"), keptName); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the directory has %v (%v), want nothing", entries, err)
	}
}

// Other processes may put anything in the place of a kept file.
func TestKeptOpensNoObjectOfOthers(t *testing.T) {
	parent := t.TempDir()
	other := filepath.Join(parent, "other")
	if err := os.WriteFile(other, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func(path string) error{
		"link":                    func(path string) error { return os.Symlink(other, path) },
		"hard link":               func(path string) error { return os.Link(other, path) },
		"FIFO":                    func(path string) error { return unix.Mkfifo(path, 0o600) },
		"directory":               func(path string) error { return os.Mkdir(path, 0o700) },
		"file that all may write": func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)) },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, keptName)
		if err := put(path); err != nil {
			t.Fatal(err)
		}
		if file, err := Kept(dir, keptName); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v (%v), want ErrNotExist", what, file, err)
		}
		keep(t, dir, "own") // replaces it
		file, err := Kept(dir, keptName)
		if err != nil {
			t.Errorf("%s: it was not replaced: %v", what, err)
			continue
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(other); string(text) != "secret" || err != nil {
		t.Errorf("the other file has %q (%v)", text, err)
	}
}

// Without O_TMPFILE, a scratch file had a name once and cannot get one again.
func TestKeepReportsThatAFileCannotBeNamed(t *testing.T) {
	dir := t.TempDir()
	root, err := MakeRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	file, err := Unnamed(root, "scratch")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := Keep(file, dir, keptName); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}
