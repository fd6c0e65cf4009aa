package checkpoint

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/file"
	"github.com/stager-dev/stager/backends/mem"
)

// counting counts writes, and requests other than listings.
type counting struct {
	backends.Backend
	created, stats atomic.Int64
}

func (c *counting) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	c.created.Add(1)
	return c.Backend.Create(ctx, key, opts)
}

func (c *counting) Stat(ctx context.Context, key string) (backends.Object, error) {
	c.stats.Add(1)
	return c.Backend.Stat(ctx, key)
}

// mirrorStores are stores with and without checksums.
var mirrorStores = map[string]func(t *testing.T) (backends.Backend, func(key string) string){
	"with checksums": func(*testing.T) (backends.Backend, func(string) string) {
		b := mem.New()
		return b, func(key string) string {
			text, _ := b.Get(key)
			return string(text)
		}
	},
	"without": func(t *testing.T) (backends.Backend, func(string) string) {
		dir := t.TempDir()
		return file.New(dir), func(key string) string {
			text, err := os.ReadFile(filepath.Join(dir, key))
			if err != nil {
				t.Error(err)
			}
			return string(text)
		}
	},
}

// age sets the times of a file back.
func age(t *testing.T, dir, name string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
		t.Fatal(err)
	}
}

// Regression: mv candidate.pt best.pt puts an older file of the same size at a name that was
// pushed. As the store's copy was newer, it was considered the same, and the old content stayed.
func TestPushSendsAnOlderFileOfTheSameSize(t *testing.T) {
	for name, open := range mirrorStores {
		for _, memory := range []string{"", t.TempDir()} {
			t.Run(name+" "+filepath.Base(memory), func(t *testing.T) {
				b, get := open(t)
				counted, dir := &counting{Backend: b}, t.TempDir()
				write(t, dir, map[string]string{"best.pt": "the first", "candidate.pt": "the other", "log": "log"})
				age(t, dir, "candidate.pt", time.Hour)
				cfg := PushConfig{Store: newStore(counted), Path: dir, Memory: memory}
				if _, err := Push(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(filepath.Join(dir, "candidate.pt"), filepath.Join(dir, "best.pt")); err != nil {
					t.Fatal(err)
				}
				got, err := Push(t.Context(), cfg)
				if err != nil || got.Files < 1 {
					t.Errorf("after the rename: %+v, %v; want best.pt sent", got, err)
				}
				if text := get("best.pt"); text != "the other" {
					t.Errorf("best.pt in the store is %q, want %q", text, "the other")
				}
				if memory == "" {
					return
				}
				// In the usual case, nothing is sent, and no file is read or requested.
				counted.created.Store(0)
				counted.stats.Store(0)
				if got, err := Push(t.Context(), cfg); err != nil || got.Unchanged != 2 || counted.created.Load()+counted.stats.Load() != 0 {
					t.Errorf("again: %+v, %v with %d sent and %d asked for; want 2 unchanged and none", got, err, counted.created.Load(), counted.stats.Load())
				}
			})
		}
	}
}

// The same for an output, across a restart of stager.
func TestMirrorSendsAnOlderFileOfTheSameSize(t *testing.T) {
	for name, open := range mirrorStores {
		t.Run(name, func(t *testing.T) {
			b, get := open(t)
			counted, dir := &counting{Backend: b}, t.TempDir()
			write(t, dir, map[string]string{"best": "the first", "candidate": "the other", "log": "log"})
			age(t, dir, "candidate", time.Hour)
			end := func() int64 {
				u := newUploader(t, dir, counted, nil)
				before := counted.created.Load()
				if err := u.Drain(t.Context(), Exit{Success: true, Gone: true}); err != nil {
					t.Fatal(err)
				}
				if err := u.Close(); err != nil {
					t.Fatal(err)
				}
				return counted.created.Load() - before
			}
			if n := end(); n != 3 {
				t.Fatalf("sent %d files, want 3", n)
			}
			if n := end(); n != 0 {
				t.Errorf("sent %d files after a restart, want none", n)
			}
			if err := os.Rename(filepath.Join(dir, "candidate"), filepath.Join(dir, "best")); err != nil {
				t.Fatal(err)
			}
			if n := end(); n != 1 {
				t.Errorf("sent %d files after a rename, want 1", n)
			}
			if text := get(filesDir + "/best"); text != "the other" {
				t.Errorf("best in the store is %q, want %q", text, "the other")
			}
			// The store does not have what was sent, because another tool has written there.
			if name == "with checksums" {
				b.(*mem.Backend).Put(filesDir+"/log", []byte("not"))
				if end(); get(filesDir+"/log") != "log" {
					t.Errorf("log in the store is %q, want what is here", get(filesDir+"/log"))
				}
			}
		})
	}
}

// If a kill cuts off the last line of a ledger, later lines are still valid.
func TestLedgerOutlivesATornLine(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	at := func(path string, size int64) plain { return plain{local: local{Path: path, Size: size}, CTime: 7} }
	there := backends.Object{Version: "v"}
	has := func(l *ledger) (got []bool) {
		return []bool{l.has(at("a", 1), there), l.has(at("b", 2), there), l.has(at("a", 2), there), l.has(at("a", 1), backends.Object{Version: "w"})}
	}
	l := openLedger(root, "sent", "here")
	l.note(at("a", 1), "v")
	l.close()
	name := filepath.Join(dir, "sent")
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"path":"c`); err != nil {
		t.Fatal(err)
	}
	file.Close()
	l = openLedger(root, "sent", "here")
	l.note(at("b", 2), "v")
	l.close()
	l = openLedger(root, "sent", "here")
	defer l.close()
	if got := has(l); !got[0] || !got[1] || got[2] || got[3] {
		t.Errorf("got %v, want a and b in their states and versions alone", got)
	}
	other := openLedger(root, "sent", "elsewhere")
	defer other.close()
	if got := has(other); got[0] || got[1] {
		t.Errorf("of another store it has %v, want nothing", got)
	}
	if err := fs.WalkDir(root.FS(), ".", func(p string, _ fs.DirEntry, err error) error {
		if strings.Contains(p, ".new") {
			t.Errorf("left behind %s", p)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
