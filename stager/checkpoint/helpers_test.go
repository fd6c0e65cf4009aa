package checkpoint

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/mem"
)

// write creates files below dir, with their parent directories.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(files[name]), 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

// read returns all files below dir except RESTORED.json.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == restored {
			return err
		}
		text, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		files[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// model returns the files of a checkpoint, whose contents name the step.
func model(step string) map[string]string {
	return map[string]string{
		"model.pt":       strings.Repeat("model of "+step+" ", 1000),
		"optim/rank0.pt": "optimizer of " + step,
		"empty":          "",
	}
}

func newStore(b backends.Backend) *backends.Store {
	return backends.NewStore(b, "mem://test", backends.Options{RetryFor: time.Millisecond})
}

// newUploader returns an Uploader of dir; more changes its Config.
func newUploader(t *testing.T, dir string, b backends.Backend, more func(*Config)) *Uploader {
	t.Helper()
	cfg := Config{Output: "ckpt", Dir: dir, Store: newStore(b), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if more != nil {
		more(&cfg)
	}
	u, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// pass runs one Sync and fails the test on an error.
func pass(t *testing.T, u *Uploader) {
	t.Helper()
	if err := u.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// settled runs two passes, one quiet period apart.
func settled(t *testing.T, u *Uploader) {
	t.Helper()
	pass(t, u)
	time.Sleep(u.cfg.QuietPeriod)
	pass(t, u)
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

// commits lists the directories that have a COMMIT.json.
func commits(b *mem.Backend) (dirs []string) {
	for _, key := range b.Keys() {
		if dir, ok := strings.CutSuffix(key, "/"+commitKey); ok {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// restoreNewest restores to a new directory and returns the files.
func restoreNewest(t *testing.T, b backends.Backend) (Restored, map[string]string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	r, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: Newest})
	if err != nil {
		t.Fatal(err)
	}
	return r, read(t, dir)
}

// unreferenced lists the keys that no COMMIT references.
func unreferenced(t *testing.T, b *mem.Backend) (keys []string) {
	t.Helper()
	data := make(map[string]bool)
	for _, dir := range commits(b) {
		text, _ := b.Get(dir + "/" + commitKey)
		c, err := DecodeCommit(text)
		if err != nil {
			t.Fatal(err)
		}
		c.name(dir, data)
		data[dir+"/"+commitKey] = true
	}
	for _, key := range b.Keys() {
		if !data[key] && key != latestKey && !strings.HasPrefix(key, filesDir+"/") {
			keys = append(keys, key)
		}
	}
	return keys
}

func equal(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got files %v, want %v", what, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		for name, text := range got {
			if w, ok := want[name]; ok && w != text {
				t.Errorf("%s: %s begins %.40q, want %.40q", what, name, text, w)
			}
		}
	}
}

// dying is a backend whose process is killed after a number of modifying calls: every later call
// fails. With lost, the last call takes effect, but its response is lost.
type dying struct {
	backends.Backend
	lost bool

	mu   sync.Mutex // guards left
	left int
}

func (d *dying) dead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left < 0
}

func (d *dying) around(do func() error) error {
	d.mu.Lock()
	killed := d.left < 0
	d.left--
	last := d.left < 0
	d.mu.Unlock()
	if !last {
		return do()
	}
	if d.lost && !killed {
		_ = do()
	}
	return backends.Errorf(backends.Permission, "", "", "the process was killed")
}

func (d *dying) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	w, err := d.Backend.Create(ctx, key, opts)
	return &dyingWriter{w, d}, err
}

func (d *dying) Delete(ctx context.Context, key string) error {
	return d.around(func() error { return d.Backend.Delete(ctx, key) })
}

func (d *dying) Stat(ctx context.Context, key string) (backends.Object, error) {
	if d.dead() {
		return backends.Object{}, backends.Errorf(backends.Permission, "", "", "the process was killed")
	}
	return d.Backend.Stat(ctx, key)
}

type dyingWriter struct {
	backends.Writer
	d *dying
}

func (w *dyingWriter) Commit(ctx context.Context) (obj backends.Object, err error) {
	err = w.d.around(func() error {
		obj, err = w.Writer.Commit(ctx)
		return err
	})
	return obj, err
}
