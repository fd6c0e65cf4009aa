package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func lockable(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, filepath.Join(dir, LockName)
}

func TestLockNamesItsHolder(t *testing.T) {
	root, name := lockable(t)
	if _, err := Acquire(root, "here", "one", false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a lock file: %v, want not-exist", err)
	}
	one, err := Acquire(root, "here", "one", true)
	if err != nil {
		t.Fatal(err)
	}
	var busy *BusyError
	if _, err := Acquire(root, "here", "two", true); !errors.As(err, &busy) || *busy != (BusyError{"here", "one"}) {
		t.Errorf("the second: %v, want a BusyError that names one", err)
	}
	if err := os.WriteFile(name, []byte("\x1b[2Jone\nmore\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(root, "here", "two", true); !errors.As(err, &busy) || busy.Holder != "[2Jonemore" {
		t.Errorf("with a hostile note: %q, want it without control characters", busy.Holder)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	two, err := Acquire(root, "here", "two", false)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	if text, err := os.ReadFile(name); string(text) != "two\n" {
		t.Errorf("the note is %q (%v), want that of the second", text, err)
	}
}

// A holder removes its lock file, and another process creates a new one. A process that locked the
// old file meanwhile does not hold the lock.
func TestLockOfAFileThatLostItsNameIsNotHeld(t *testing.T) {
	root, _ := lockable(t)
	one, err := Acquire(root, "here", "one", true)
	if err != nil {
		t.Fatal(err)
	}
	if !one.Held() {
		t.Error("it is not held")
	}
	if err := one.Remove(); err != nil {
		t.Fatal(err)
	}
	if one.Held() {
		t.Error("it is held without its file")
	}
	two, err := Acquire(root, "here", "two", true)
	if err != nil {
		t.Fatal(err)
	}
	if one.Held() || !two.Held() {
		t.Errorf("held: %t and %t, want the second alone", one.Held(), two.Held())
	}
	if err := errors.Join(one.Close(), two.Close()); err != nil {
		t.Error(err)
	}
}

// The lock of a window was opened through a planted link, and the holder's name was written to the
// target.
func TestLockRejectsLinksAndPipes(t *testing.T) {
	for name, plant := range map[string]func(name string) error{
		"a link": func(name string) error { return os.Symlink("precious", name) },
		"a pipe": func(name string) error { return unix.Mkfifo(name, 0o644) },
	} {
		root, lock := lockable(t)
		precious := filepath.Join(filepath.Dir(lock), "precious")
		if err := errors.Join(plant(lock), os.WriteFile(precious, []byte("mine"), 0o644)); err != nil {
			t.Fatal(err)
		}
		l, err := Acquire(root, "here", "one", true)
		if err == nil {
			t.Errorf("%s was locked", name)
			l.Close()
		}
		if text, err := os.ReadFile(precious); string(text) != "mine" {
			t.Errorf("%s: the file holds %q (%v), want what was there", name, text, err)
		}
	}
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	err := errors.Join(os.WriteFile(precious, []byte("mine"), 0o644), os.Mkdir(filepath.Join(dir, Private), 0o755),
		os.Symlink("../precious", filepath.Join(dir, Private, LockName)))
	if err != nil {
		t.Fatal(err)
	}
	directory, err := Open(dir, "one")
	if err != nil {
		t.Fatalf("got %v, want the link replaced by a lock", err)
	}
	defer directory.Close()
	if text, err := os.ReadFile(precious); string(text) != "mine" {
		t.Errorf("the file behind the link holds %q (%v), want what was there", text, err)
	}
}

// A directory in the place of a lock was removed with all that was in it.
func TestForeignDirectoryInPlaceOfAFileIsKept(t *testing.T) {
	for name, use := range map[string]func(dir string, root *os.Root) error{
		LockName: func(dir string, _ *os.Root) error {
			d, err := Open(dir, "one")
			if err == nil {
				err = d.Close()
			}
			return err
		},
		"lock": func(_ string, root *os.Root) error {
			_, err := AcquireFile(root, Private+"/lock")
			return err
		},
		"own": func(_ string, root *os.Root) error {
			_, err := OpenOwn(root, Private+"/own", os.O_RDWR, 0o600)
			return err
		},
		"small": func(_ string, root *os.Root) error {
			return ReplaceSmall(root, Private+"/small", []byte("x"), 0o600, false)
		},
	} {
		root, _ := lockable(t)
		precious := filepath.Join(root.Name(), Private, name, "precious")
		if err := errors.Join(os.MkdirAll(filepath.Dir(precious), 0o755), os.WriteFile(precious, []byte("mine"), 0o644)); err != nil {
			t.Fatal(err)
		}
		var odd *NotRegularError
		if err := use(root.Name(), root); !errors.As(err, &odd) || odd.Path != Private+"/"+name {
			t.Errorf("%s: got %v, want a NotRegularError with its path", name, err)
		}
		if text, err := os.ReadFile(precious); string(text) != "mine" {
			t.Errorf("%s: the file in the directory is %q (%v), want it unchanged", name, text, err)
		}
	}
}
