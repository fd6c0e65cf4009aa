package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

func TestPushSendsWhatTheStoreHasNot(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	write(t, dir, map[string]string{"a": "a", "b/c": "bc", "d.tmp": "final"})
	cfg := PushConfig{Store: newStore(b), Path: dir}
	push := func(what string, want PushSummary) {
		t.Helper()
		if got, err := Push(t.Context(), cfg); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v; want %+v", what, got, err, want)
		}
	}
	push("first", PushSummary{Files: 3, Bytes: 8})
	if got, want := b.Keys(), []string{"a", "b/c", "d.tmp"}; !slices.Equal(got, want) {
		t.Errorf("sent %v, want %v", got, want)
	}
	push("again", PushSummary{Unchanged: 3})
	write(t, dir, map[string]string{"a": "A!"})
	push("after a change", PushSummary{Files: 1, Bytes: 2, Unchanged: 2})
	cfg.Path = filepath.Join(dir, "b/c")
	push("a file", PushSummary{Files: 1, Bytes: 2})
	if _, ok := b.Get("c"); !ok {
		t.Error("a file does not keep its name")
	}
	cfg.Path = filepath.Join(dir, "missing")
	if _, err := Push(t.Context(), cfg); backends.KindOf(err) != backends.NotExist {
		t.Errorf("what is not there: %v, want not-exist", err)
	}
}

func TestPushCheckpointSaysWhatIsThere(t *testing.T) {
	b, dir := mem.New(), filepath.Join(t.TempDir(), "checkpoint-7")
	write(t, dir, model("7"))
	cfg := PushCheckpointConfig{Store: newStore(b), Path: dir, Step: -1}
	c, err := PushCheckpoint(t.Context(), cfg)
	if err != nil || c.Step != 7 || len(c.Files) != 3 {
		t.Fatalf("got %+v, %v; want step 7 of 3 files", c, err)
	}
	if again, err := PushCheckpoint(t.Context(), cfg); err != nil || again.Data != c.Data {
		t.Errorf("again: %+v, %v; want the same COMMIT", again, err)
	}
	write(t, dir, map[string]string{"model.pt": "other"})
	if _, err := PushCheckpoint(t.Context(), cfg); backends.KindOf(err) != backends.Exist {
		t.Errorf("with other content: %v, want exist", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "model.pt"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cfg.Step = 8
	if _, err := PushCheckpoint(t.Context(), cfg); backends.KindOf(err) != backends.Changed {
		t.Errorf("with a file open for writing: %v, want changed", err)
	}
	cfg.Conflict = "maybe"
	if _, err := PushCheckpoint(t.Context(), cfg); backends.KindOf(err) != backends.Invalid {
		t.Errorf("with an unknown conflict: %v, want invalid", err)
	}
}

// "push --commit" of a directory committed 5 of 9 files with exit code 0, because another process
// removed a subdirectory during the listing.
func TestListingOfATreeThatChangesIsAnError(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "a", "sub/b": "b", "sub/deep/c": "c"})
	for name, change := range map[string]func() error{
		"nothing":             func() error { return nil },
		"a file was removed":  func() error { return os.Remove(filepath.Join(dir, "sub/b")) },
		"a file came":         func() error { return os.WriteFile(filepath.Join(dir, "sub/deep/d"), nil, 0o600) },
		"a directory is gone": func() error { return os.RemoveAll(filepath.Join(dir, "sub/deep")) },
	} {
		t.Run(name, func(t *testing.T) {
			write(t, dir, map[string]string{"a": "a", "sub/b": "b", "sub/deep/c": "c"})
			root, _, err := openPath(dir)
			if err != nil {
				t.Fatal(err)
			}
			tr := tree{root: root}
			defer tr.close()
			if files, _, err := tr.files(); err != nil || len(files) < 3 {
				t.Fatalf("got %d files, %v; want all", len(files), err)
			}
			listed := make(map[string]fs.FileInfo)
			for _, p := range []string{".", "sub", "sub/deep"} {
				info, err := root.Lstat(p)
				if err != nil {
					t.Fatal(err)
				}
				// Use a time long ago, so that the clock resolution cannot hide a change.
				past := info.ModTime().Add(-time.Hour)
				if err := root.Chtimes(p, past, past); err != nil {
					t.Fatal(err)
				}
				if listed[p], err = root.Lstat(p); err != nil {
					t.Fatal(err)
				}
			}
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if got, want := errors.Is(tr.stood(listed), errChanged), name != "nothing"; got != want {
				t.Errorf("changed: got %v, want %v", got, want)
			}
		})
	}
}
