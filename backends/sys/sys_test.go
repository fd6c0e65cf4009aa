package sys

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// RenameNew is what keeps a file of another program.
func TestRenameNewReplacesNothing(t *testing.T) {
	dir, root := open(t, map[string]string{"a": "new", "b": "old"})
	fd := int(dir.Fd())
	if err := RenameNew(fd, "a", fd, "b"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want an error that is fs.ErrExist", err)
	}
	if err := RenameNew(fd, "a", fd, "c"); err != nil {
		t.Error(err)
	}
	if err := Exchange(fd, "c", fd, "b"); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{"b": "new", "c": "old"} {
		if got, err := root.ReadFile(name); string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestFileSystemHasANameAndSpace(t *testing.T) {
	dir, _ := open(t, nil)
	of, err := FileSystemOf(int(dir.Fd()))
	at, aerr := FileSystemAt(dir.Name())
	if err != nil || aerr != nil || of.Name != at.Name || of.Name == "" || of.Free <= 0 {
		t.Errorf("got %+v, %v, and by its path %+v, %v, want the same name and free space", of, err, at, aerr)
	}
}

func TestSyncTreeSucceedsOnFilesDirectoriesAndLinks(t *testing.T) {
	dir, root := open(t, map[string]string{"a": "1", "b/c": "2"})
	if err := root.Symlink("nowhere", "b/link"); err != nil {
		t.Fatal(err)
	}
	if err := SyncTree(root, dir); err != nil {
		t.Error(err)
	}
}

func TestBornIsTheTimeOfTheFile(t *testing.T) {
	_, root := open(t, map[string]string{"a": "1"})
	old := time.Now().Add(-time.Hour)
	if err := root.Chtimes("a", old, old); err != nil {
		t.Fatal(err)
	}
	if at, ok := Born(root, "a"); ok && at.Before(old.Add(time.Minute)) {
		t.Errorf("got %v, want a time after %v, which was set later", at, old)
	}
}

func TestBootIDStaysTheSame(t *testing.T) {
	first, err := BootID()
	second, again := BootID()
	if first == "" || first != second || err != nil || again != nil {
		t.Errorf("got %q, %v and %q, %v, want one id", first, err, second, again)
	}
}

func open(t *testing.T, files map[string]string) (*os.File, *os.Root) {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	for name, text := range files {
		if err := errors.Join(root.MkdirAll(filepath.Dir(name), 0o755), root.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(root.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir, root
}

// More writes are in flight than there are queues of asynchronous requests.
func TestWriteUnlockedWritesLikeWriteAt(t *testing.T) {
	const streams, each = 200, 3 << 12
	dir, root := open(t, map[string]string{"a": ""})
	file, err := root.OpenFile("a", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var writes sync.WaitGroup
	for i := range streams {
		writes.Go(func() {
			if n, err := WriteUnlocked(file, bytes.Repeat([]byte{byte(i)}, each), int64(i)*each); n != each || err != nil {
				t.Errorf("got %d, %v, want %d", n, err, each)
			}
		})
	}
	writes.Wait()
	got, err := os.ReadFile(filepath.Join(dir.Name(), "a"))
	if err != nil || len(got) != streams*each {
		t.Fatalf("got %d bytes, %v, want %d", len(got), err, streams*each)
	}
	for i, b := range got {
		if b != byte(i/each) {
			t.Fatalf("byte %d is %d, want %d", i, b, byte(i/each))
		}
	}
}

func TestWriteUnlockedReturnsTheErrorOfTheKernel(t *testing.T) {
	_, root := open(t, map[string]string{"a": "1"})
	file, err := root.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var path *fs.PathError
	if n, err := WriteUnlocked(file, []byte("2"), 0); n != 0 || !errors.As(err, &path) || !errors.Is(err, syscall.EBADF) {
		t.Errorf("got %d, %v, want 0 and a PathError with EBADF", n, err)
	}
}
