package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/conformance/live"
)

func subdir(t *testing.T) (*Dir, *Subdir) {
	t.Helper()
	f := open(t, t.TempDir())
	s, err := f.Subdir("ready", 0o777)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return f, s
}

func seen(t *testing.T, f *Dir) {
	t.Helper()
	if !f.SeesOpenFiles() {
		live.Require(t, "leases", errors.New("this file system does not report open files"))
	}
}

func TestSubdirModeIgnoresUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	f := open(t, t.TempDir())
	s, err := f.Subdir("claimed", 0o777|fs.ModeSticky)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, err := os.Stat(filepath.Join(f.Path(), "claimed"))
	if err != nil || info.Mode() != fs.ModeDir|fs.ModeSticky|0o777 {
		t.Errorf("got %v (%v), want drwxrwxrwt", info.Mode(), err)
	}
}

func TestSubdirNamesAreSingle(t *testing.T) {
	_, s := subdir(t)
	for _, name := range []string{"", ".", "..", "a/b", "../x", "/etc/passwd", "a\x00b"} {
		if _, err := s.Stat(name); err == nil {
			t.Errorf("stat %q: got nil, want an error", name)
		}
		if err := s.Create(name, 0o444); err == nil {
			t.Errorf("create %q: got nil, want an error", name)
		}
	}
}

func TestMoveAndLinkNeverReplace(t *testing.T) {
	_, s := subdir(t)
	for _, name := range []string{"a", "b"} {
		if err := s.Create(name, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Move("a", s, "b"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("move: got %v, want ErrExist", err)
	}
	if err := s.Link("a", s, "b"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("link: got %v, want ErrExist", err)
	}
	st, err := s.Stat("b")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveSame("a", st.Ino); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stat("a"); err != nil {
		t.Errorf("removed a file that was another: %v", err)
	}
	if err := s.RemoveSame("b", st.Ino); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stat("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want it removed", err)
	}
}

func TestRemoveIdleKeepsOpenFiles(t *testing.T) {
	f, s := subdir(t)
	seen(t, f)
	path := filepath.Join(f.Path(), "ready", "x")
	if err := os.WriteFile(path, make([]byte, 4096), 0o444); err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what string, idle bool) {
		t.Helper()
		if got, err := s.Idle("x"); err != nil || got != idle {
			t.Errorf("%s: idle %v (%v), want %v", what, got, err, idle)
		}
	}
	expect("open", false)
	if removed, err := s.RemoveIdle("x"); removed || err != nil {
		t.Fatalf("open: removed %v (%v), want it to stay", removed, err)
	}
	mapped, err := unix.Mmap(int(reader.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	expect("mapped", false)
	if err := unix.Munmap(mapped); err != nil {
		t.Fatal(err)
	}
	expect("let go", true)

	if err := s.Link("x", s, "y"); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.RemoveIdle("x"); removed || err != nil {
		t.Errorf("with two names: removed %v (%v), want it to stay", removed, err)
	}
	if err := s.Remove("y"); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.RemoveIdle("x"); !removed || err != nil {
		t.Errorf("let go: removed %v (%v), want it gone", removed, err)
	}
	if _, err := s.RemoveIdle("x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("gone: got %v, want ErrNotExist", err)
	}
}

// An open during the lease breaks it. The signal must not end the process, and the open must
// succeed as soon as the lease is released.
func TestOpenDuringFileLeaseIsHarmless(t *testing.T) {
	f, s := subdir(t)
	seen(t, f)
	path := filepath.Join(f.Path(), "ready", "x")
	if err := os.WriteFile(path, []byte("x"), 0o444); err != nil {
		t.Fatal(err)
	}
	file, err := s.open("x", unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease(file); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("open without waiting: got %v, want EWOULDBLOCK", err)
	}
	opened := make(chan error)
	go func() {
		other, err := os.Open(path)
		if err == nil {
			err = other.Close()
		}
		opened <- err
	}()
	if err := unlease(file); err != nil {
		t.Error(err)
	}
	if err := <-opened; err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
