package stager

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// runDir returns a directory for a socket, with a short path.
func runDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// abandon creates a socket on which no process listens.
func abandon(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
}

// The socket of another program was mistaken for an orphan of stager and removed, however often
// stager was started.
func TestListenLeavesAnotherProgramsSocket(t *testing.T) {
	path := filepath.Join(runDir(t), "s.sock")
	abandon(t, path)
	for range 2 {
		var refused *SocketError
		if _, err := listen(path); !errors.As(err, &refused) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v, want a SocketError that names it", err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Fatalf("another program's socket is gone (%v)", err)
		}
	}
}

func TestListenReplacesTheSocketOfAKilledStager(t *testing.T) {
	path := filepath.Join(runDir(t), "s.sock")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := l.(*socket)
	// Like SIGKILL: the kernel closes everything, and removes nothing.
	if err := errors.Join(s.Listener.Close(), s.lock.Close(), s.root.Close()); err != nil {
		t.Fatal(err)
	}
	if l, err = listen(path); err != nil {
		t.Fatalf("got %v, want the socket replaced", err)
	}
	s = l.(*socket)
	if err := errors.Join(s.Listener.Close(), s.lock.Close(), s.root.Close(), os.Rename(path, path+".old")); err != nil {
		t.Fatal(err)
	}
	abandon(t, path) // by another program, after the kill
	if _, err := listen(path); err == nil {
		t.Error("another program's socket was replaced")
	}
}

// On exit stager removed any file with the name of its socket, whoever had created it.
func TestCloseLeavesWhatIsNotItsSocket(t *testing.T) {
	path := filepath.Join(runDir(t), "s.sock")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("precious"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("got %q (%v), want the file as it was", text, err)
	}
}

// In a directory where others may write, a FIFO had the name of the lock: stager blocked at its
// start and could only be killed.
func TestListenLocksAFileOfItsOwn(t *testing.T) {
	dir := runDir(t)
	path, victim := filepath.Join(dir, "s.sock"), filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for kind, err := range map[string]func() error{
		"FIFO":      func() error { return unix.Mkfifo(path+".lock", 0o666) },
		"link":      func() error { return os.Symlink(victim, path+".lock") },
		"hard link": func() error { return os.Link(victim, path+".lock") },
	} {
		if err := err(); err != nil {
			t.Fatal(err)
		}
		l, lerr := listen(path)
		if lerr != nil {
			t.Fatalf("%s: got %v, want a socket", kind, lerr)
		}
		var taken *SocketInUseError
		if _, err := listen(path); !errors.As(err, &taken) {
			t.Errorf("%s: got %v, want a SocketInUseError", kind, err)
		}
		if err := errors.Join(l.Close(), os.Remove(path+".lock")); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
			t.Errorf("%s: the victim holds %q (%v)", kind, text, err)
		}
	}
}

// A user's file PREEMPT beside the socket was removed at start and exit, and replaced by a drain;
// the file was written through a link at PREEMPT.new.
func TestPreemptLeavesFilesOfOthers(t *testing.T) {
	j := newJob(t, " inputs:\n"+prefetchInput)
	dir := filepath.Dir(j.socket)
	preempt, victim := filepath.Join(dir, "PREEMPT"), filepath.Join(dir, "victim")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(preempt, []byte("my notes"), 0o600), os.WriteFile(victim, []byte("precious"), 0o600), os.Symlink(victim, preempt+".new")); err != nil {
		t.Fatal(err)
	}
	j.start()
	j.ready()
	j.Drain(0)
	if err := j.finish(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{preempt: "my notes", victim: "precious"} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: got %q (%v), want %q", filepath.Base(path), text, err, want)
		}
	}
}

func TestPreemptIsWrittenAndRemoved(t *testing.T) {
	dir := runDir(t)
	preempt := filepath.Join(dir, "PREEMPT")
	for _, there := range []string{"", "{}\n"} { // nothing, and the file of a killed stager
		if there != "" {
			if err := os.WriteFile(preempt, []byte(there), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := writePreempt(dir, preemptionStatus{}); err != nil {
			t.Errorf("over %q: %v", there, err)
		}
		if text, err := os.ReadFile(preempt); err != nil || string(text) != "{}\n" {
			t.Errorf("got %q (%v), want {}", text, err)
		}
		removePreempt(dir)
		if _, err := os.Lstat(preempt); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("got %v, want no file", err)
		}
	}
	if err := unix.Mkfifo(preempt, 0o666); err != nil {
		t.Fatal(err)
	}
	removePreempt(dir)
	if err := writePreempt(dir, preemptionStatus{}); err == nil {
		t.Error("a FIFO was replaced")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("got %v (%v), want the FIFO alone", names, err)
	}
}
