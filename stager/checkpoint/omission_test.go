package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// oddTree writes one entry of every kind.
func oddTree(t *testing.T, dir string) {
	t.Helper()
	write(t, dir, map[string]string{
		".hidden": "1", "tmp_x": "2", "y_temp": "3", "tmp-z": "4", ".stagerrc": "5", "d/x.tmp": "6", "file": "7",
		"bad\xff": "8", "bad\xfe/in": "9", ".stager/own": "no", "d/.stager-tmp-1": "no",
	})
	for name, target := range map[string]string{
		"link": "d/x.tmp", "absolute": filepath.Join(dir, "file"), "out": "/etc/passwd", "up": "../elsewhere", "lost": "nowhere", "dirlink": "d",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600), os.Mkdir(filepath.Join(dir, "void"), 0o700)); err != nil {
		t.Fatal(err)
	}
}

var (
	oddSaved = map[string]string{
		".hidden": "1", "tmp_x": "2", "y_temp": "3", "tmp-z": "4", ".stagerrc": "5", "d/x.tmp": "6", "file": "7", "link": "6", "absolute": "7",
	}
	oddNotSaved = []string{"bad\xfe", "bad\xff", "out", "up"}
	oddEmpty    = []string{"dirlink", "fifo", "lost", "void"}
)

func namesOf(omissions []Omission) (names []string) {
	for _, o := range omissions {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names
}

func contents(b *mem.Backend) map[string]string {
	all := make(map[string]string)
	for _, key := range b.Keys() {
		p, _ := b.Get(key)
		all[key] = string(p)
	}
	return all
}

// Push omitted almost all of these entries with exit code 0 and without a message.
func TestPushSavesEveryFileAndNamesTheRest(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	oddTree(t, dir)
	got, err := Push(t.Context(), PushConfig{Store: newStore(b), Path: dir})
	var omitted *OmittedError
	if !errors.As(err, &omitted) || !strings.Contains(err.Error(), `"out": a symbolic link that cannot be followed`) {
		t.Errorf("got %v, want an OmittedError that names the link", err)
	}
	if saved := contents(b); !maps.Equal(saved, oddSaved) {
		t.Errorf("saved %q, want %q", saved, oddSaved)
	}
	if names := namesOf(got.NotSaved); !slices.Equal(names, oddNotSaved) {
		t.Errorf("not saved %q, want %q", names, oddNotSaved)
	}
	if names := namesOf(got.Empty); !slices.Equal(names, oddEmpty) {
		t.Errorf("empty %q, want %q", names, oddEmpty)
	}
	if got.Files != len(oddSaved) {
		t.Errorf("got %d files, want %d", got.Files, len(oddSaved))
	}
}

func TestMirrorSavesEveryFileAndNamesTheRest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		oddTree(t, dir)
		write(t, dir, map[string]string{"tmp-500/model.pt": "half"})
		if err := os.Symlink("checkpoint-7/model.pt", filepath.Join(dir, "last.pt")); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "checkpoint-7"), model("7"))
		u := newUploader(t, dir, b, nil)
		err := u.Drain(t.Context(), Exit{Success: true, Gone: true})
		var omitted *OmittedError
		if !errors.As(err, &omitted) || !slices.Equal(namesOf(omitted.Files), oddNotSaved) {
			t.Errorf("got %v, want an OmittedError with %q", err, oddNotSaved)
		}
		saved := contents(b)
		maps.DeleteFunc(saved, func(key, _ string) bool { return !strings.HasPrefix(key, "files/") })
		want := make(map[string]string)
		for name, text := range oddSaved {
			want["files/"+name] = text
		}
		if !maps.Equal(saved, want) {
			t.Errorf("saved %q, want %q", saved, want)
		}
		s := u.Status()
		if got := namesOf(s.NotSaved); !slices.Equal(got, oddNotSaved) {
			t.Errorf("status: not saved %q, want %q", got, oddNotSaved)
		}
		if !slices.Contains(s.Waiting, Waiting{"tmp-500", halfWritten}) {
			t.Errorf("status: waiting %+v, want tmp-500", s.Waiting)
		}
	})
}

// choosy refuses some keys, like stores whose rules only the server knows.
type choosy struct{ backends.Backend }

func (p choosy) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	if strings.Contains(key, "?") {
		return nil, backends.Errorf(backends.Invalid, "create", key, "the server has no such names")
	}
	return p.Backend.Create(ctx, key, opts)
}

// One such name stopped all later files of an output from being sent.
func TestNameThatAStoreRefusesStopsNoOtherFile(t *testing.T) {
	files := map[string]string{"a?": "1", "b": "2", "c/d?": "3", "e": "4"}
	want := []string{"a?", "c/d?"}
	t.Run("mirror", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			b, dir := mem.New(), t.TempDir()
			write(t, dir, files)
			u := newUploader(t, dir, choosy{b}, func(c *Config) { c.Mode = ModeNone })
			settled(t, u)
			if got := b.Keys(); !slices.Equal(got, []string{"b", "e"}) {
				t.Errorf("mirrored %q, want b and e", got)
			}
			var omitted *OmittedError
			if err := u.Drain(t.Context(), Exit{Success: true}); !errors.As(err, &omitted) || !slices.Equal(namesOf(omitted.Files), want) {
				t.Errorf("the end: got %v, want %q", err, want)
			}
			for name := range files {
				if err := os.Rename(filepath.Join(dir, name), filepath.Join(dir, strings.ReplaceAll(name, "?", "!"))); err != nil {
					t.Fatal(err)
				}
			}
			if err := u.Drain(t.Context(), Exit{Success: true}); err != nil || len(b.Keys()) != 4 {
				t.Errorf("after they were renamed: got %v, %q; want 4 files", err, b.Keys())
			}
		})
	})
	t.Run("push", func(t *testing.T) {
		b, dir := mem.New(), t.TempDir()
		write(t, dir, files)
		var omitted *OmittedError
		if _, err := Push(t.Context(), PushConfig{Store: newStore(choosy{b}), Path: dir}); !errors.As(err, &omitted) || !slices.Equal(namesOf(omitted.Files), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if got := b.Keys(); !slices.Equal(got, []string{"b", "e"}) {
			t.Errorf("sent %q, want b and e", got)
		}
		// A destination that accepts nothing is a different case.
		_, err := Push(t.Context(), PushConfig{Store: newStore(choosy{b}).Sub("no?"), Path: dir})
		if backends.KindOf(err) != backends.Invalid || errors.As(err, &omitted) {
			t.Errorf("to a bad place: got %v, want invalid", err)
		}
	})
}

// caseless stores keys that differ only in case as one, under the first name, like Windows.
type caseless struct {
	backends.Backend
	mem *mem.Backend
}

func (c caseless) name(key string) string {
	for _, there := range c.mem.Keys() {
		if strings.EqualFold(there, key) {
			return there
		}
	}
	return key
}

func (c caseless) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	return c.Backend.Create(ctx, c.name(key), opts)
}

func (c caseless) Stat(ctx context.Context, key string) (backends.Object, error) {
	return c.Backend.Stat(ctx, c.name(key))
}

// A push of A.txt and a.txt to a share that ignores case reported that everything was saved, but
// one file had the content of the other.
func TestFilesThatAStoreKeepsAsOneAreNamed(t *testing.T) {
	files := map[string]string{"A.txt": "first", "a.txt": "other", "b": "b"}
	for name, tt := range map[string]struct {
		store func(*mem.Backend) backends.Backend
		keys  []string
	}{
		"ignores case": {func(b *mem.Backend) backends.Backend { return caseless{b, b} }, []string{"A.txt", "b"}},
		"knows case":   {func(b *mem.Backend) backends.Backend { return b }, []string{"A.txt", "a.txt", "b"}},
	} {
		t.Run("push to a store that "+name, func(t *testing.T) {
			b, dir := mem.New(), t.TempDir()
			write(t, dir, files)
			for range 2 {
				_, err := Push(t.Context(), PushConfig{Store: newStore(tt.store(b)), Path: dir})
				if bad := errors.As(err, new(*OmittedError)); bad != (len(tt.keys) == 2) || bad && !strings.Contains(err.Error(), `"a.txt"`) {
					t.Errorf("got %v, want an error only where case is ignored", err)
				}
				if got := b.Keys(); !slices.Equal(got, tt.keys) {
					t.Errorf("sent %q, want %q", got, tt.keys)
				}
				if got, _ := b.Get("A.txt"); string(got) != "first" {
					t.Errorf("A.txt has %q, want its own content", got)
				}
			}
		})
		t.Run("mirror to a store that "+name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				write(t, dir, map[string]string{"a.txt": "other", "b": "b"})
				u := newUploader(t, dir, tt.store(b), func(c *Config) { c.Mode = ModeNone })
				settled(t, u)
				write(t, dir, map[string]string{"A.txt": "second"})
				settled(t, u)
				if got, _ := b.Get("a.txt"); string(got) != "other" {
					t.Errorf("a.txt has %q, want its own content", got)
				}
				err := u.Drain(t.Context(), Exit{Success: true})
				if bad := errors.As(err, new(*OmittedError)); bad != (len(tt.keys) == 2) || bad && !strings.Contains(err.Error(), `"A.txt"`) {
					t.Errorf("got %v, want an error only where case is ignored", err)
				}
				if got := len(b.Keys()); got != len(tt.keys) {
					t.Errorf("mirrored %d files, want %d", got, len(tt.keys))
				}
			})
		})
	}
}

// A directory loses a subdirectory while it is listed, and another while it is sent. All that is
// left is saved, what is missing is named, and the command ends with an error.
func TestPushNamesASubdirectoryThatIsRemovedMeanwhile(t *testing.T) {
	b, dir := mem.New(), t.TempDir()
	write(t, dir, map[string]string{"a": "a", "later/b": "b", "later/c": "c", "z": "z"})
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	write(t, dir, map[string]string{"listed/d": "d"})
	tree, err := plainWalk(root, true, func(p string) bool {
		if p == "listed" {
			removeAll(t, dir, "listed")
		}
		return false
	})
	if err != nil || len(tree.omitted) != 1 || tree.omitted[0].Name != "listed" || !strings.Contains(tree.omitted[0].Reason, "was removed while the directory was listed") {
		t.Errorf("listing: got %v, %v; want the directory that vanished", tree.omitted, err)
	}
	store := newStore(&hooked{Backend: b, onCreate: func(string) { removeAll(t, dir, "later") }})
	var said bytes.Buffer
	sum, err := Push(t.Context(), PushConfig{Store: store, Path: dir, Parallel: 1, Log: slog.New(slog.NewTextHandler(&said, nil))})
	var omitted *OmittedError
	if !errors.As(err, &omitted) || len(sum.NotSaved) != 2 || sum.Files != 2 {
		t.Errorf("push: got %+v, %v; want two files sent, and two that are not", sum, err)
	}
	for _, name := range []string{"later/b", "later/c"} {
		want := Omission{name, "it was removed since the directory was listed"}
		if !slices.Contains(sum.NotSaved, want) || !strings.Contains(said.String(), name) {
			t.Errorf("%s is not named: %v\n%s", name, sum.NotSaved, said.String())
		}
	}
	for _, name := range []string{"a", "z"} {
		if _, ok := b.Get(name); !ok {
			t.Errorf("%s is not sent", name)
		}
	}
}
