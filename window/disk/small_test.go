package disk

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// plants create the objects that another program may put in place of a file of stager's own. Each
// function receives the path, and the path of a victim: a file of another program.
var plants = map[string]func(t *testing.T, path, victim string) error{
	"link":          func(_ *testing.T, path, victim string) error { return os.Symlink(victim, path) },
	"dangling link": func(_ *testing.T, path, victim string) error { return os.Symlink(victim+".none", path) },
	"hard link":     func(_ *testing.T, path, victim string) error { return os.Link(victim, path) },
	"FIFO":          func(_ *testing.T, path, _ string) error { return unix.Mkfifo(path, 0o666) },
	"directory":     func(_ *testing.T, path, _ string) error { return os.Mkdir(path, 0o777) },
	"socket": func(t *testing.T, path, _ string) error {
		t.Chdir(filepath.Dir(path)) // the kernel accepts only short paths
		l, err := net.Listen("unix", filepath.Base(path))
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	},
}

// plant runs the test with each of them at a path below a new directory. It checks that the victim
// is unchanged.
func plant(t *testing.T, name string, test func(t *testing.T, dir string, root *os.Root, kind string)) {
	for kind, put := range plants {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			victim := filepath.Join(dir, "victim")
			const text = "of somebody else"
			if err := errors.Join(os.WriteFile(victim, []byte(text), 0o600), os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)); err != nil {
				t.Fatal(err)
			}
			if err := put(t, filepath.Join(dir, name), victim); err != nil {
				t.Fatal(err)
			}
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			test(t, dir, root, kind)
			if got, err := os.ReadFile(victim); err != nil || string(got) != text {
				t.Errorf("the victim holds %q (%v), want %q", got, err, text)
			}
			if info, err := os.Lstat(victim); err != nil || info.Mode() != 0o600 {
				t.Errorf("the victim has mode %v (%v), want -rw-------", info.Mode(), err)
			}
			if _, err := os.Lstat(victim + ".none"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file was made through a dangling link (%v)", err)
			}
		})
	}
}

func TestReadSmallReadsRegularFilesOnly(t *testing.T) {
	plant(t, "small", func(t *testing.T, _ string, root *os.Root, kind string) {
		text, err := ReadSmall(root, "small", 100)
		var odd *NotRegularError
		if kind == "hard link" { // it is a file; its owner is unknown
			if err != nil {
				t.Errorf("got %v, want its text", err)
			}
		} else if !errors.As(err, &odd) {
			t.Errorf("got %q, %v; want a NotRegularError", text, err)
		}
	})
}

func TestReadSmallReadsNoMoreThanItsLimit(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := ReadSmall(root, "small", 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "small"), []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadSmall(root, "small", 10); err != nil || string(text) != "0123456789" {
		t.Errorf("got %q, %v; want all of it", text, err)
	}
	if err := os.Truncate(filepath.Join(dir, "small"), 1<<40); err != nil { // a sparse file
		t.Fatal(err)
	}
	var large *TooLargeError
	if _, err := ReadSmall(root, "small", 10); !errors.As(err, &large) {
		t.Errorf("got %v, want a TooLargeError", err)
	}
}

func TestReplaceSmallWritesThroughNoLink(t *testing.T) {
	for _, name := range []string{"small", "small.new"} {
		plant(t, name, func(t *testing.T, dir string, root *os.Root, kind string) {
			err := ReplaceSmall(root, "small", []byte("new"), 0o640, true)
			if kind == "directory" && name == "small" {
				if err == nil {
					t.Error("a directory was replaced")
				}
				return
			}
			got, rerr := os.ReadFile(filepath.Join(dir, "small"))
			if err != nil || rerr != nil || string(got) != "new" {
				t.Errorf("got %q (%v, %v), want the new text", got, err, rerr)
			}
			names, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range names {
				if strings.Contains(n.Name(), ".new-") {
					t.Errorf("%s is left", n.Name())
				}
			}
		})
	}
}

func TestOpenOwnMakesAFileOfItsOwn(t *testing.T) {
	plant(t, "log", func(t *testing.T, dir string, root *os.Root, _ string) {
		for _, text := range []string{"one\n", "two\n"} {
			file, err := OpenOwn(root, "log", os.O_WRONLY|os.O_APPEND, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteString(text); err != nil {
				t.Fatal(err)
			}
			file.Close()
		}
		if got, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || string(got) != "one\ntwo\n" {
			t.Errorf("got %q (%v), want both lines", got, err)
		}
	})
}

// The lock file was a hard link to another program's file, which was overwritten with stager's
// note. An object that is not a file stopped every later stager, although nothing else is lost when
// it is removed from stager's own directory.
func TestOpenLocksAFileOfItsOwn(t *testing.T) {
	plant(t, Private+"/"+LockName, func(t *testing.T, dir string, _ *os.Root, kind string) {
		f, err := Open(dir, "first")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var busy *BusyError
		if _, err := Open(dir, "second"); !errors.As(err, &busy) || busy.Holder != "first" {
			t.Errorf("got %v, want a BusyError that names the first", err)
		}
	})
}

func TestAcquireFileKeepsTheNote(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	first, err := AcquireFile(root, "LOCK")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.SetNote([]byte("me")); err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := AcquireFile(root, "LOCK"); !errors.As(err, &busy) || *busy != (BusyError{"LOCK", "me"}) {
		t.Errorf("got %v, want a BusyError with the note", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := AcquireFile(root, "LOCK")
	if err != nil {
		t.Fatal(err)
	}
	if note, err := second.Note(); err != nil || string(note) != "me" {
		t.Errorf("got %q (%v), want the note of before", note, err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// An object with the name of an incoming file was opened as it was: the target of a link below the
// directory was written, and another program's file was truncated through a hard link.
func TestIncomingIsAFileOfItsOwn(t *testing.T) {
	for _, size := range []int64{5, 2 * directFrom} {
		plant(t, incomingDir+"/"+incomingName("a"), func(t *testing.T, dir string, _ *os.Root, _ string) {
			f, err := Open(dir, "test")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.SetWrite(WriteDirect, false, nil); err != nil {
				t.Fatal(err)
			}
			in, err := f.Incoming("a", size, "v")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := in.WriteAt([]byte(strings.Repeat("x", int(size))), 0); err != nil {
				t.Fatal(err)
			}
			if err := in.Publish("a", 0o644, time.Time{}); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Lstat(filepath.Join(dir, "a")); err != nil || !info.Mode().IsRegular() || info.Size() != size {
				t.Errorf("got %v (%v), want a file of %d bytes", info, err, size)
			}
		})
	}
}

func TestAcquireOpensThatFileOnly(t *testing.T) {
	plant(t, "held/a", func(t *testing.T, dir string, _ *os.Root, kind string) {
		f, err := Open(dir, "test")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s, err := f.Subdir("held", 0o755)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		st, err := s.Stat("a")
		if err != nil {
			t.Fatal(err)
		}
		for _, ino := range []uint64{st.Ino, st.Ino + 1} {
			file, err := s.Open("a", ino, st.Size, 0)
			if kind == "hard link" && ino == st.Ino {
				if err != nil {
					t.Fatal(err)
				}
				file.Close()
				_, err = s.Open("a", ino, st.Size+1, 0)
			}
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %v, want fs.ErrNotExist", err)
			}
		}
	})
}

func TestRestoreModesOfDirectories(t *testing.T) {
	dir := t.TempDir()
	f, err := Open(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := f.Subdir("claimed", 0o777|fs.ModeSticky)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f.Keep(s)
	if err := f.MakePrivate(); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Mend(); n != 0 || err != nil {
		t.Errorf("got %d (%v), want nothing mended", n, err)
	}
	want := map[string]fs.FileMode{incomingDir: 0o755, "claimed": 0o777 | fs.ModeSticky, Private: 0o700}
	for _, name := range []string{incomingDir, "claimed", Private} {
		if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := f.Mend(); n != 3 || err != nil {
		t.Errorf("mended %d (%v), want 3", n, err)
	}
	for name, mode := range want {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != mode|fs.ModeDir {
			t.Errorf("%s has mode %v (%v), want %v", name, info.Mode(), err, mode|fs.ModeDir)
		}
	}
}

func TestRestoreModeLeavesOthersAlone(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "own"), nil, 0o400),
		os.WriteFile(filepath.Join(dir, "linked"), nil, 0o400),
		os.Link(filepath.Join(dir, "linked"), filepath.Join(dir, "second")),
		os.Symlink("linked", filepath.Join(dir, "link")),
		os.Mkdir(filepath.Join(dir, "directory"), 0o500),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o400),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	writable := func(mode fs.FileMode) fs.FileMode { return mode | 0o200 }
	for name, want := range map[string]fs.FileMode{"own": 0o600, "directory": 0o700, "linked": 0o400, "link": 0o777, "fifo": 0o400, "missing": 0} {
		was, restored, err := RestoreMode(root, name, writable)
		if err != nil || restored != (want&0o200 != 0 && name != "link") {
			t.Errorf("%s of mode %v: got restored %v, %v", name, was, restored, err)
		}
		if info, err := root.Lstat(name); err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode().Perm(), want)
		}
	}
}
