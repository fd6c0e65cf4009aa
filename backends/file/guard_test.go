package file

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// In a directory that other machines may write to, kernel locks are not a sufficient guard.
func TestContractOfASharedDir(t *testing.T) {
	dir := t.TempDir()
	conformance.Run(t, func(t *testing.T) *backends.Store {
		b := New(dir)
		b.sharedKnown = func() bool { return true }
		t.Cleanup(func() { b.Close() })
		store := backends.NewStore(b, "file://"+dir, backends.Options{})
		if got := store.Capabilities().Guard; got != backends.GuardClaim {
			t.Errorf("Guard of a shared directory = %q, want %q", got, backends.GuardClaim)
		}
		return store
	}, conformance.Options{MaxSize: 1 << 20, Many: 50, Without: []string{conformance.AnyOrder}})
}

func TestLockFileIsKeptWhileItIsLocked(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	b := New(dir)
	defer b.Close()
	left := filepath.Join(dir, lockName("other"))
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unlock, err := lock(t.Context(), root, "key")
	if err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(dir, lockName("key"))
	if err := b.Sweep(t.Context(), "", func(backends.Orphan) bool { return true }); err != nil {
		t.Errorf("Sweep: %v", err)
	}
	if _, err := os.Lstat(held); err != nil {
		t.Errorf("the lock file that is locked: got %v, want it kept", err)
	}
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("the lock file of a killed process: got %v, want it removed", err)
	}
	unlock()
	if _, err := os.Lstat(held); !os.IsNotExist(err) {
		t.Errorf("the lock file after unlock: got %v, want it removed", err)
	}
}

// In a directory that others can write to, the name of the lock file may be taken by anything.
func TestLockFileNotRegular(t *testing.T) {
	for what, plant := range map[string]func(name string) error{
		"a link": func(name string) error { return os.Symlink("secret", name) },
		"a pipe": func(name string) error { return syscall.Mkfifo(name, 0o666) },
	} {
		dir := t.TempDir()
		b := New(dir)
		store := backends.NewStore(b, "file://"+dir, backends.Options{RetryFor: 1})
		defer store.Close()
		was, err := store.PutBytes(t.Context(), "key", []byte("one"), backends.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("s"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := plant(filepath.Join(dir, lockName("key"))); err != nil {
			t.Fatal(err)
		}
		if _, err := store.PutBytes(t.Context(), "key", []byte("two"), backends.CreateOptions{IfVersion: was.Version}); err == nil {
			t.Errorf("where %s has the name of the lock file a write works, want an error", what)
		}
		if is, err := store.Stat(t.Context(), "key"); err != nil || is.Version != was.Version {
			t.Errorf("where %s has the name of the lock file the object is %q (%v), want %q", what, is.Version, err, was.Version)
		}
	}
}

// A writer that dies with its claim blocks the next for ClaimTimeout. No Store treats that as a
// stall, and its files are removed.
func TestClaimOfADeadWriterIsTakenOver(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := New(dir)
		b.sharedKnown = func() bool { return true }
		store := backends.NewStore(b, "file://"+dir, backends.Options{RetryFor: time.Nanosecond})
		defer store.Close()
		was, err := store.PutBytes(t.Context(), "d/key", []byte("one"), backends.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		current := func(context.Context) (backends.Version, error) { return was.Version, nil }
		dies := backends.Errorf(backends.Unavailable, "commit", "d/key", "the writer dies")
		err = backends.NewClaim(b, "d/key", was.Version).Replace(t.Context(), current, func(context.Context) error { return dies })
		if backends.KindOf(err) != backends.Unavailable {
			t.Fatalf("the writer that dies: got %v, want kind unavailable", err)
		}
		began := time.Now()
		if _, err := store.PutBytes(t.Context(), "d/key", []byte("two"), backends.CreateOptions{IfVersion: was.Version}); err != nil {
			t.Fatalf("the next writer: %v", err)
		}
		if took := time.Since(began); took < backends.ClaimTimeout || took > 2*backends.ClaimTimeout {
			t.Errorf("the next writer waited for %v, want a little more than %v", took, backends.ClaimTimeout)
		}
		if left, err := os.ReadDir(filepath.Join(dir, "d")); err != nil || len(left) != 1 {
			t.Errorf("there are %v (%v), want only the key", left, err)
		}
	})
}
