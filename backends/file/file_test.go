package file_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/file"
)

func TestContract(t *testing.T) {
	dir := t.TempDir()
	conformance.Run(t, func(t *testing.T) *backends.Store {
		b := file.New(dir)
		t.Cleanup(func() { b.Close() })
		return backends.NewStore(b, "file://"+dir, backends.Options{})
	}, conformance.Options{})
}

func TestReplacements(t *testing.T) {
	dir := t.TempDir()
	conformance.Replacements(t, store(t, "file://"+dir), store(t, "file://"+dir))
}

// store opens the store of a URL, like users do.
func store(t *testing.T, url string) *backends.Store {
	t.Helper()
	s, err := backends.NewRegistry(file.Scheme()).Open(t.Context(), url, backends.Options{RetryFor: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, s *backends.Store, prefix string) (keys []string) {
	t.Helper()
	for obj, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, obj.Key)
	}
	return keys
}

func TestURL(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/models/m 1.bin", "12345")
	for _, url := range []string{"file://host/mnt/x", "file://mnt/source/", "file://user@/mnt/x"} {
		_, err := backends.NewRegistry(file.Scheme()).Open(t.Context(), url, backends.Options{})
		if backends.KindOf(err) != backends.Invalid || !strings.Contains(fmt.Sprint(err), "three slashes") {
			t.Errorf("%s: got %v, want kind invalid and a word of the slashes", url, err)
		}
	}
	parent, obj, err := store(t, "file://"+dir+"/models/m%201.bin").Self(t.Context())
	if err != nil || obj.Key != "m 1.bin" || obj.Size != 5 || parent.Name() != "file://"+dir+"/models" {
		t.Errorf("a URL of a file: got %+v, %v", obj, err)
	}
	if got, want := list(t, store(t, "file://"+dir), ""), []string{"models/m 1.bin"}; !slices.Equal(got, want) {
		t.Errorf("a URL of a directory lists %q, want %q", got, want)
	}
}

func TestDirMissing(t *testing.T) {
	s := store(t, "file://"+t.TempDir()+"/not/yet/")
	for _, err := range s.List(t.Context(), "") {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("listing it: got %v, want fs.ErrNotExist", err)
		}
	}
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Errorf("deleting in it: %v", err)
	}
	if _, err := s.PutBytes(t.Context(), "a/k", []byte("x"), backends.CreateOptions{}); err != nil {
		t.Errorf("the first write: %v", err)
	}
	if got := list(t, s, ""); !slices.Equal(got, []string{"a/k"}) {
		t.Errorf("after the first write: %q, want a/k", got)
	}
}

func TestLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, dir+"/real/x", "inside")
	write(t, outside+"/secret", "outside")
	for link, target := range map[string]string{
		"link": "real/x", "directory": "real", "real/loop": "..", "nowhere": "gone", "circle": "circle",
	} {
		if err := os.Symlink(target, dir+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(dir+"/pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	s := store(t, "file://"+dir)
	if got, want := list(t, s, ""), []string{"directory/x", "link", "real/x"}; !slices.Equal(got, want) {
		t.Errorf("list = %q, want %q", got, want)
	}
	for _, key := range []string{"link", "directory/x"} {
		if got, _, err := s.ReadAll(t.Context(), key, 100); string(got) != "inside" || err != nil {
			t.Errorf("%s reads %q, %v; want what it leads to", key, got, err)
		}
	}
	for _, key := range []string{"pipe", "real", "nowhere", "../" + filepath.Base(outside) + "/secret", "/etc/passwd", "a//b", ""} {
		_, err := s.ReadRange(t.Context(), backends.Object{Key: key, Size: 1, Version: "v"}, 0, 1, nil, nil)
		if backends.KindOf(err) != backends.NotExist {
			t.Errorf("reading %q: got %v, want kind not-exist", key, err)
		}
	}
	// Links that lead outside, as a file and as a directory.
	for link, target := range map[string]string{"escape": outside + "/secret", "escapes": outside} {
		if err := os.Symlink(target, dir+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"escape", "escapes/secret"} {
		_, err := s.Stat(t.Context(), key)
		if backends.KindOf(err) != backends.Permission || !strings.Contains(fmt.Sprint(err), "points outside the directory") {
			t.Errorf("stat of %s: got %v, want kind permission and the reason", key, err)
		}
		if _, err := s.PutBytes(t.Context(), "escapes/new", nil, backends.CreateOptions{}); err == nil {
			t.Error("a link leads a write out of the directory")
		}
	}
	var last error
	for _, err := range s.List(t.Context(), "") {
		last = err
	}
	if !regexp.MustCompile(`"escapes?" is a symbolic link that points outside the directory`).MatchString(fmt.Sprint(last)) {
		t.Errorf("list with a link that leads out: got %v, want the link and the reason", last)
	}
}

func TestOwnNamesAreNoObjects(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/.stager/journal", "x")
	write(t, dir+"/d/.stager-tmp-ABC", "x")
	write(t, dir+"/d/.stager", "this one is data")
	s := store(t, "file://"+dir)
	if got := list(t, s, ""); !slices.Equal(got, []string{"d/.stager"}) {
		t.Errorf("list = %q, want d/.stager alone", got)
	}
	for _, key := range []string{".stager/x", "d/.stager-tmp-x", "../x", "a//b", "/a", "a/", "", ".", "zero\x00byte", "\xff"} {
		if _, err := s.PutBytes(t.Context(), key, nil, backends.CreateOptions{}); backends.KindOf(err) != backends.Invalid {
			t.Errorf("putting %q: got %v, want kind invalid", key, err)
		}
	}
}

func TestNamesTaken(t *testing.T) {
	s := store(t, "file://"+t.TempDir())
	put := func(key string) error {
		_, err := s.PutBytes(t.Context(), key, []byte("x"), backends.CreateOptions{})
		return err
	}
	if err := errors.Join(put("a"), put("d/x")); err != nil {
		t.Fatal(err)
	}
	for key, words := range map[string]string{
		"a/b":                    "a parent of the key is a file",
		"a/b/c":                  "a parent of the key is a file",
		"d":                      "a directory has this name",
		strings.Repeat("n", 256): "at most 255 bytes",
	} {
		if err := put(key); backends.KindOf(err) != backends.Invalid || !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("putting %.20q: got %v, want kind invalid and %q", key, err, words)
		}
	}
	_, err := s.PutBytes(t.Context(), "d", nil, backends.CreateOptions{IfAbsent: true})
	if backends.KindOf(err) != backends.Invalid {
		t.Errorf("putting d if absent: got %v, want kind invalid", err)
	}
	if got := list(t, s, ""); !slices.Equal(got, []string{"a", "d/x"}) {
		t.Errorf("list = %q, want a and d/x", got)
	}
}

// A file that is written in place, not replaced, could yield a mixture.
func TestChangeInPlaceDuringRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/k", strings.Repeat("old.", 1000))
	b := file.New(dir)
	defer b.Close()
	obj, err := b.Stat(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	body, err := b.OpenRange(t.Context(), obj, 0, 4000)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	buf := make([]byte, 4000)
	if _, err := io.ReadFull(body, buf[:100]); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(dir+"/k", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("new."), 2000); err != nil {
		t.Fatal(err)
	}
	// File systems with coarse timestamps would miss the change, so set the time.
	later := obj.ModTime.Add(time.Second)
	if err := os.Chtimes(dir+"/k", later, later); err != nil {
		t.Fatal(err)
	}
	// Exactly the requested bytes, without reading EOF.
	if _, err := io.ReadFull(body, buf[100:]); backends.KindOf(err) != backends.Changed {
		t.Errorf("reading on after a change: got %v, want kind changed", err)
	}
}

func TestEmptyDirsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	s := store(t, "file://"+dir)
	for _, key := range []string{"a/b/c/x", "a/y"} {
		if _, err := s.PutBytes(t.Context(), key, nil, backends.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(t.Context(), "a/b/c/x"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"a/y": true, "a/b": false} {
		if _, err := os.Stat(dir + "/" + path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
	if err := s.Delete(t.Context(), "a/y"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v; want an empty directory", left, err)
	}
}

// Writers and removers of neighbouring files create and remove directories all the time.
func TestWritersAndRemoversOfOneDir(t *testing.T) {
	s := store(t, "file://"+t.TempDir())
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error {
			for range 20 {
				key := fmt.Sprint("a/b/", i)
				if _, err := s.PutBytes(t.Context(), key, nil, backends.CreateOptions{IfAbsent: true}); err != nil {
					return err
				}
				if err := s.Delete(t.Context(), key); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
